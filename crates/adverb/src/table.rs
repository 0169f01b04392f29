//! Records as table rows. Rows are printed as cells end, so the columns have fixed widths.

use adverb_report::format;
use adverb_results::{Completion, CpuShare, Latency, Opcode, PairRecord, Program, Transport};
use adverb_units::{MessageRate, Span};
use adverb_verbs::AckTimeout;
use adverb_workload::pair::{CellSpec, Request};

type Column = (&'static str, usize, fn(&PairRecord) -> Option<String>);

/// Unit of the throughput column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThroughputUnit {
    BytesPerSecond,
    BitsPerSecond,
}

const TIMES: [Column; 5] = [
    ("±95 %", 9, interval),
    ("p50", 9, |r| time(r, latency(r)?.p50)),
    ("p99", 9, |r| time(r, latency(r)?.p99)),
    ("p99.9", 9, |r| time(r, latency(r)?.p999)),
    ("max", 9, |r| time(r, latency(r)?.max)),
];

const RATE: Column = ("rate", 9, |r| {
    Some(r.metrics.as_ref()?.messages_per_s?.to_string())
});

const CPU: [Column; 2] = [
    ("active user+sys", 15, |r| {
        cpu(r.metrics.as_ref()?.cpu.active)
    }),
    ("passive user+sys", 16, |r| {
        cpu(r.metrics.as_ref()?.cpu.passive)
    }),
];

/// Returns the first column: the mean time.
fn timed(program: Program, op: Opcode) -> Column {
    let mean: fn(&PairRecord) -> Option<String> = |r| time(r, latency(r)?.mean);
    match program {
        Program::Blast => ("time per message", 16, mean),
        Program::Ping if program.is_round_trip(op) => ("round trip", 10, mean),
        Program::Ping => ("one-way", 9, mean),
    }
}

fn latency(record: &PairRecord) -> Option<&Latency> {
    Some(&record.metrics.as_ref()?.one_way_ns)
}

/// Returns the half-width of the mean's interval; `None` without noise.
fn interval(record: &PairRecord) -> Option<String> {
    let half = latency(record)?.ci95.filter(|_| record.has_noise())?;
    Some(adverb_report::format::half_width(record.shown_ns(half)))
}

fn shown(record: &PairRecord, one_way_ns: Option<f64>) -> Option<Span> {
    Some(Span::from_ns_f64(record.shown_ns(one_way_ns?)))
}

fn time(record: &PairRecord, one_way_ns: Option<f64>) -> Option<String> {
    Some(shown(record, one_way_ns)?.to_string())
}

/// Returns the 99th percentile of a record's latency, as its row shows it.
pub(crate) fn p99(record: &PairRecord) -> Option<Span> {
    shown(record, latency(record)?.p99)
}

fn throughput(unit: ThroughputUnit) -> Column {
    match unit {
        ThroughputUnit::BytesPerSecond => ("throughput", 10, |r| {
            Some(r.metrics.as_ref()?.bytes_per_s?.to_string())
        }),
        ThroughputUnit::BitsPerSecond => ("throughput", 11, |r| {
            Some(r.metrics.as_ref()?.bytes_per_s?.in_bits())
        }),
    }
}

/// Returns the throughput of one direction of a `ping` in which both sides send: what the paper counts.
fn one_direction(unit: ThroughputUnit) -> Column {
    match unit {
        ThroughputUnit::BytesPerSecond => ("one direction", 13, |r| {
            Some(r.metrics.as_ref()?.bytes_per_s?.halved().to_string())
        }),
        ThroughputUnit::BitsPerSecond => ("one direction", 13, |r| {
            Some(r.metrics.as_ref()?.bytes_per_s?.halved().in_bits())
        }),
    }
}

/// Program, operation and transport, on which the columns depend.
pub(crate) type Measured = (Program, Opcode, Transport);

const LOST: Column = ("lost", 9, |r| {
    let lost = r.metrics.as_ref()?.delivery?.loss_percent()?;
    Some(format!("{lost:.2} %"))
});

fn all_columns((program, op, transport): Measured, unit: ThroughputUnit) -> Vec<Column> {
    let size: Column = ("size", 8, |r| Some(r.params.size_bytes.to_string()));
    let (first, rates) = ([size, timed(program, op)], [RATE, throughput(unit)]);
    let may_lose = program == Program::Blast && !transport.is_reliable() && op.consumes_receive();
    let losses: &[Column] = if may_lose { &[LOST] } else { &[] };
    let paper = [one_direction(unit)];
    let sends_both_ways = program == Program::Ping && !program.is_round_trip(op);
    let paper: &[Column] = if sends_both_ways { &paper } else { &[] };
    [&first[..], &TIMES, &rates, paper, losses, &CPU].concat()
}

/// Returns program, operation and transport of a record.
pub(crate) fn measured(record: &PairRecord) -> Measured {
    let params = &record.params;
    (record.program, params.op, params.traffic.transport)
}

/// Names and widths of the columns.
pub(crate) fn columns(measured: Measured, unit: ThroughputUnit) -> Vec<(&'static str, usize)> {
    let all = all_columns(measured, unit).into_iter();
    all.map(|(name, width, _)| (name, width)).collect()
}

/// The row of a record.
pub(crate) fn row(record: &PairRecord, unit: ThroughputUnit) -> Vec<Option<String>> {
    let all = all_columns(measured(record), unit).into_iter();
    all.map(|(_, _, value)| value(record)).collect()
}

/// The same for a record of TCP.
fn stream_title(record: &PairRecord, asked: &[CellSpec]) -> String {
    let p = &record.params;
    let how = match p.completion {
        _ if !are_same(asked, |r| r.completion) => "",
        Completion::Poll => "polling ",
        Completion::Event | Completion::Hybrid(_) => "sleeping ",
    };
    let mut title = format!(
        "{} {} on {}: {how}sockets, TCP_NODELAY",
        record.program, p.op, record.device
    );
    if record.program == Program::Blast && are_same(asked, |r| r.buffers) {
        title += &format!(", {}", format::buffers(p.buffers));
    }
    if p.traffic.reversed {
        title += ", reversed";
    }
    if let Some(faults) = p
        .impairment
        .filter(|_| are_same(asked, |r| r.path.impairment))
    {
        title += &format!(", {faults}");
    }
    title + &passive_side(record)
}

/// Whether all points have the same value of a parameter. Columns show the others.
fn are_same<T: PartialEq>(points: &[CellSpec], of: impl Fn(&Request) -> T) -> bool {
    let mut pairs = points.windows(2);
    pairs.all(|two| of(&two[0].params) == of(&two[1].params))
}

/// Returns the title above the rows of the points `asked`: the parameters that they share.
pub(crate) fn title(record: &PairRecord, asked: &[CellSpec]) -> String {
    let p = &record.params;
    if p.traffic.transport == Transport::Tcp {
        return stream_title(record, asked);
    }
    let is_blast = record.program == Program::Blast;
    let traffic = p.traffic;
    let may_wait = p.impairment.is_some_and(|impairment| !impairment.is_none());
    let asks = |r: &Request| r.path.ack_timeout.is_some() || r.path.retries.is_some();
    let may_retry = may_wait || asked.iter().any(|spec| asks(&spec.params));
    let timeout = p.ack_timeout.and_then(AckTimeout::at_least);
    let timeout = timeout.filter(|_| may_retry && are_same(asked, |r| r.path.ack_timeout));
    let retries = p
        .retry_cnt
        .filter(|_| may_retry && are_same(asked, |r| r.path.retries));
    let inline = if p.inline { "inline" } else { "not inline" };
    let qps =
        (is_blast && traffic.qps != 1).then(|| format!("on each of {} queue pairs", traffic.qps));
    let parts = [
        are_same(asked, |r| r.inline).then(|| inline.to_owned()),
        are_same(asked, |r| r.completion).then(|| format!("completions by {}", p.completion)),
        (is_blast && are_same(asked, |r| r.buffers)).then(|| format::buffers(p.buffers)),
        (is_blast && are_same(asked, |r| r.post)).then(|| format!("{} posts", p.post)),
        qps.filter(|_| are_same(asked, |r| r.traffic.qps)),
        (is_blast && traffic.bidirectional).then(|| "both directions".to_owned()),
        (!traffic.transport.is_default()).then(|| format!("transport {}", traffic.transport)),
        traffic.reversed.then(|| "reversed".to_owned()),
        are_same(asked, |r| r.signal).then(|| format!("signaled: {}", p.signal)),
        p.path_mtu_bytes
            .filter(|_| are_same(asked, |r| r.path.path_mtu))
            .map(|mtu| format!("path MTU {mtu}")),
        timeout.map(|timeout| format!("ACK timeout {timeout}")),
        retries.map(|count| format!("{count} retries")),
        p.impairment
            .filter(|_| are_same(asked, |r| r.path.impairment))
            .map(|impairment| impairment.to_string()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let of = format!("{} {} on {}", record.program, p.op, record.device);
    format!("{of}: {}{}", parts.join(", "), passive_side(record))
}

/// `, passive side at nodeB, payload verified`.
fn passive_side(record: &PairRecord) -> String {
    let mut title = String::new();
    if let Some(passive) = &record.provenance.passive {
        title += &format!(", passive side at {}", passive.host);
        // The name is there only if it is another device.
        if let Some(device) = passive.device.get("name") {
            title += &format!(" on {device}");
        }
    }
    if record.params.verify {
        title += ", payload verified";
    }
    title
}

/// Formats a ratio with two decimal places.
pub(crate) fn two_places(value: f64) -> String {
    format!("{value:.2}")
}

/// Formats nanoseconds with a unit.
pub(crate) fn ns(ns: f64) -> String {
    Span::from_ns_f64(ns).to_string()
}

/// Formats a number per second, such as messages; `None` if it is 0.
pub(crate) fn per_second(rate: f64) -> Option<String> {
    let rate = MessageRate::over((rate * 1e3).round() as u64, Span::from_secs(1000));
    rate.map(|rate| rate.to_string())
}

/// User and system part: `62+31 %`.
fn cpu(share: CpuShare) -> Option<String> {
    Some(format!("{:.0}+{:.0} %", share.user?, share.system?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_figures_are_none() {
        assert_eq!(ns(104.25), "104 ns");
        assert_eq!(cpu(CpuShare::default()), None);
    }
}
