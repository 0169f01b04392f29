//! The study's findings: sentences over its records, for each device.

use std::collections::BTreeSet;

use adverb_report::findings::EQUAL;
use adverb_report::format;
use adverb_results::Record;
use adverb_units::three_digits;

use super::FIGURES;
use super::figures::{by, by_protocol, delay, is_tcp, loss, with_sleeping_readers};
use crate::programs::{of_each_device, parameter};

/// Returns what the records of the study show, device by device.
pub(super) fn sentences(records: &[Record]) -> Vec<String> {
    of_each_device(
        &FIGURES,
        records,
        &[
            routed, round_trip, overlap, progress, stolen, protocols, streams,
        ],
    )
}

/// Says which path was used, if it was not the devices' own.
fn routed(records: &[&Record]) -> Option<String> {
    records[0].params.get("routed")?;
    let devices: BTreeSet<_> = records.iter().map(|r| r.device.to_string()).collect();
    let devices: Vec<String> = devices.into_iter().collect();
    Some(format!(
        "the packets of {} passed the same router between two network namespaces of this host, `adverb degen`, which has \
         the delay and the loss of each cell.",
        format::and(&devices)
    ))
}

/// Returns the value of a record of messages that were sent this way, and of these parameters.
fn value(
    records: &[&Record],
    (program, way): (&str, &str),
    wanted: &[(&str, u64)],
    metric: &str,
) -> Option<f64> {
    let is_wanted = |record: &&&Record| {
        record.program == program
            && by(record) == way
            && wanted.iter().all(|(name, value)| match *name {
                "delay_ns" => delay(record) == *value,
                name => parameter(record, name) == *value,
            })
    };
    records.iter().rev().find(is_wanted)?.metric(metric)
}

fn round_trip(records: &[&Record]) -> Option<String> {
    let of = |way: &str, delay| {
        let wanted = [("size_bytes", 1024), ("compute_ns", 0), ("delay_ns", delay)];
        value(records, ("overlap", way), &wanted, "communication_ns.p50")
    };
    let (write, tcp) = (of("WRITE", 0)?, of("TCP", 0)?);
    let asleep = of(&with_sleeping_readers("TCP"), 0).map_or_else(String::new, |time| {
        format!(" ({} if its readers sleep)", format::time(time))
    });
    let far = of("WRITE", 4_000_000).zip(of("TCP", 4_000_000));
    let far = far.map_or_else(String::new, |(write, tcp)| {
        format!(
            "; over a path of 4 ms it is {} of it",
            format::percent(100.0 * write / tcp)
        )
    });
    Some(format!(
        "the round trip of 1 KiB by WRITE takes {}, {} of TCP's {}{asleep}{far}.",
        format::time(write),
        format::percent(100.0 * write / tcp),
        format::time(tcp)
    ))
}

fn overlap(records: &[&Record]) -> Option<String> {
    let computations = |way: &str| -> BTreeSet<u64> {
        let own = records.iter().filter(|record| {
            record.program == "overlap" && by(record) == way && delay(record) == 0
        });
        own.map(|record| parameter(record, "compute_ns")).collect()
    };
    let of = |way, compute| {
        let wanted = [
            ("size_bytes", 1024),
            ("compute_ns", compute),
            ("delay_ns", 0),
        ];
        value(records, ("overlap", way), &wanted, "overlap_ratio")
    };
    // The first computation that is at least as long as the exchange by TCP.
    let idle = [("size_bytes", 1024), ("compute_ns", 0), ("delay_ns", 0)];
    let alone = value(records, ("overlap", "TCP"), &idle, "communication_ns.p50")?;
    let compute = computations("TCP")
        .into_iter()
        .find(|ns| *ns as f64 >= alone)?;
    let (write, tcp) = (of("WRITE", compute)?, of("TCP", compute)?);
    Some(format!(
        "a computation of {} makes up {} of an exchange by WRITE, and {} by TCP, the rest of which it does not hide.",
        format::time(compute as f64),
        format::percent(100.0 * write),
        format::percent(100.0 * tcp)
    ))
}

fn progress(records: &[&Record]) -> Option<String> {
    let of = |way, load| {
        let wanted = [("response_delay_ns", load), ("delay_ns", 0)];
        value(records, ("fetch", way), &wanted, "latency_ns.p50")
    };
    let busy = 10_000_000;
    let (read, idle) = (of("READ", busy)?, of("READ", 0)?);
    let others = ["SEND", "TCP"].map(|way| Some((way, of(way, busy)?)));
    let others = others.into_iter().flatten();
    let others: Vec<String> = others
        .map(|(way, time)| format!("{} by {way}", format::time(time)))
        .collect();
    Some(format!(
        "fetching 1 KiB from a server that answers after 10 ms takes {} by READ ({} if the server is idle) and {}.",
        format::time(read),
        format::time(idle),
        format::and(&others)
    ))
}

fn stolen(records: &[&Record]) -> Option<String> {
    let of = |way: &str| {
        let wanted = [
            ("size_bytes", 16_384),
            ("delay_ns", 0),
            ("read_memory_bytes", 0),
        ];
        let slowdown = value(records, ("interference", way), &wanted, "slowdown")?;
        let with = way.replace(", ", " and a ");
        Some(match slowdown < EQUAL {
            true => format!("no longer with {with}"),
            false => format!("{} times as long with {with}", three_digits(slowdown)),
        })
    };
    let all: Vec<String> = ["WRITE", "SEND", "TCP", &with_sleeping_readers("TCP")]
        .into_iter()
        .filter_map(of)
        .collect();
    (!all.is_empty()).then(|| {
        format!(
            "next to clients that stream messages of 16 KiB a computation at the server takes {} as alone.",
            format::and(&all)
        )
    })
}

fn protocols(records: &[&Record]) -> Option<String> {
    let own = records
        .iter()
        .filter(|record| record.program == "rendezvous");
    let own: Vec<_> = own.filter(|record| delay(record) == 0).collect();
    let sizes: BTreeSet<u64> = own.iter().map(|r| parameter(r, "size_bytes")).collect();
    let best = |size: &u64| {
        let of_size = own.iter().filter(|r| parameter(r, "size_bytes") == *size);
        let timed = of_size.filter_map(|r| Some((by_protocol(r), r.metric("one_way_ns.p50")?)));
        let agreed: Vec<_> = (timed.filter(|(protocol, _)| protocol != "prearranged")).collect();
        let least = agreed.iter().map(|(_, ns)| *ns).min_by(f64::total_cmp)?;
        let fastest = agreed.into_iter().filter(|(_, ns)| *ns < EQUAL * least);
        let names: Vec<String> = fastest.map(|(protocol, _)| protocol).collect();
        Some(format!(
            "for {} {} ({})",
            format::size(*size),
            format::and(&names),
            format::time(least)
        ))
    };
    let (first, last) = (sizes.first()?, sizes.last()?);
    Some(format!(
        "of the protocols without a prearranged buffer the fastest are {}, and {}.",
        best(first)?,
        best(last)?
    ))
}

/// Compares the best stream of RC with TCP's at the largest delay and loss that both were measured at.
fn streams(records: &[&Record]) -> Option<String> {
    let own = records.iter().filter(|record| record.program == "blast");
    let goodput = |of_tcp: bool, at: (u64, f64)| {
        let own = own.clone().filter(|r| is_tcp(r) == of_tcp);
        let there = own.filter(|r| (delay(r), loss(r)) == at);
        let rates = there.filter_map(|record| record.metric("bytes_per_s"));
        rates.max_by(f64::total_cmp)
    };
    let both = |at: (u64, f64)| {
        let (rc, tcp) = (goodput(false, at)?, goodput(true, at)?);
        let lost = match at.1 {
            0.0 => "without loss".to_owned(),
            share => format!("with {} loss", format::percent(100.0 * share)),
        };
        Some(format!(
            "{lost} RC reaches {} and TCP {}",
            format::throughput(rc),
            format::throughput(tcp)
        ))
    };
    let at = own.clone().filter(|record| loss(record) > 0.0);
    let far = at.map(|record| (delay(record), loss(record)));
    let (delay, most) = far.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
    let found = [both((delay, 0.0)), both((delay, most))]
        .into_iter()
        .flatten();
    let found: Vec<String> = found.collect();
    (!found.is_empty()).then(|| {
        format!(
            "over a path of {} {}, at the best number of messages of 64 KiB in flight.",
            format::time(delay as f64),
            format::and(&found)
        )
    })
}
