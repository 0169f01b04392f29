//! The study's findings: sentences over its records, for each device.

use adverb_report::format;
use adverb_results::Record;
use adverb_units::three_digits;

use super::figures::FIGURES;
use crate::programs::{of_each_device, parameter, word};

/// Returns what the records of the study show, device by device.
pub(super) fn sentences(records: &[Record]) -> Vec<String> {
    of_each_device(
        &FIGURES,
        records,
        &[machine, placement, inversion, contention, store, torn],
    )
}

/// Returns the rate of the open loop with packed slots of 8 B, this operation and node, and this many workers; of a model with
/// one switch less if `is_nearer`, as cells with workers have.
fn rate(
    records: &[&Record],
    op: &str,
    memory: &str,
    (workers, is_nearer): (u64, bool),
) -> Option<f64> {
    let is_plain = |record: &&&Record| {
        let params = &record.params;
        ["load_threads", "flush", "ddio", "link_mtu_bytes"]
            .iter()
            .all(|name| !params.contains_key(*name))
            && (workers == 0
                || params
                    .get("worker_writes")
                    .and_then(serde_json::Value::as_f64)
                    == Some(0.9))
    };
    let found = records.iter().filter(is_plain).find(|record| {
        record.program == "open-loop"
            && word(record, "op") == op
            && word(record, "numa_memory") == memory
            && parameter(record, "size_bytes") == 8
            && parameter(record, "clients") < 32
            && parameter(record, "workers") == workers
            && (parameter(record, "fewer_switches") > 0) == is_nearer
    });
    found?.metric("requests_per_s")
}

/// The largest number of workers among the records.
fn most_workers(records: &[&Record]) -> Option<u64> {
    records
        .iter()
        .map(|record| parameter(record, "workers"))
        .max()
        .filter(|n| *n > 0)
}

/// Whether cells with workers are at a place of the network that is a switch nearer.
fn is_nearer(records: &[&Record]) -> bool {
    records
        .iter()
        .any(|record| parameter(record, "fewer_switches") > 0)
}

/// What memory of another node costs the CPUs of this machine.
fn machine(records: &[&Record]) -> Option<String> {
    let cells = || records.iter().filter(|record| record.program == "nodes");
    let is_same =
        |record: &Record| parameter(record, "cpu_node") == parameter(record, "memory_node");
    let least = |same: bool, metric: &str| {
        let own = cells().filter(|record| is_same(record) == same);
        let values = own.filter_map(|record| record.metric(metric));
        values.min_by(f64::total_cmp)
    };
    let (cache, memory) = (least(true, "cached_ns")?, least(true, "memory_ns")?);
    let other = match least(false, "memory_ns") {
        Some(other) => format!("from memory of another node in {}", format::time(other)),
        None => "the machine has one NUMA node, so that the price of another one cannot be told"
            .to_owned(),
    };
    Some(format!(
        "a CPU of this machine loads from its last-level cache in {}, from memory of its node in {}; {other}.",
        format::time(cache),
        format::time(memory)
    ))
}

fn placement(records: &[&Record]) -> Option<String> {
    let of =
        |op| Some(rate(records, op, "other", (0, false))? / rate(records, op, "nic", (0, false))?);
    let (read, write) = (of("read")?, of("write")?);
    Some(format!(
        "memory on the other node has {} of the rate of READs of 8 B, and {} of the rate of WRITEs.",
        format::percent(100.0 * read),
        format::percent(100.0 * write)
    ))
}

fn inversion(records: &[&Record]) -> Option<String> {
    let with = (most_workers(records)?.min(16), is_nearer(records));
    let workers = with.0;
    let of = |op| Some(rate(records, op, "other", with)? / rate(records, op, "nic", with)?);
    let (read, write) = (of("read")?, of("write")?);
    let [read, write] = [read, write].map(three_digits);
    Some(format!(
        "with {workers} workers on the same cache line, which write in 90 % of their accesses, memory on the other node is {read} times as fast for READs and {write} times for WRITEs.",
    ))
}

fn contention(records: &[&Record]) -> Option<String> {
    let (workers, nearer) = (most_workers(records)?, is_nearer(records));
    let of = |op| {
        let rate = |node: &str, workers| rate(records, op, node, (workers, nearer));
        let node = ["nic", ""]
            .into_iter()
            .find(|node| rate(node, 0).is_some())?;
        Some(rate(node, workers)? / rate(node, 0)?)
    };
    let (read, write) = (of("read")?, of("write")?);
    // Workers do not make requests faster: the noise of these records is larger than their effect.
    if read.max(write) > 1.1 {
        return None;
    }
    Some(format!(
        "with {workers} worker{} on the accessible words, which write in 90 % of their accesses, READs of 8 B have {} of their rate, and WRITEs {}.",
        if workers == 1 { "" } else { "s" },
        format::percent(100.0 * read),
        format::percent(100.0 * write)
    ))
}

/// How much of its rate without load a store keeps, over its placements.
fn store(records: &[&Record]) -> Option<String> {
    let stores = || records.iter().filter(|record| record.program == "store");
    let most = stores()
        .map(|record| parameter(record, "connections"))
        .max()?;
    // The node of the load is empty if it is not bound.
    let rate = |server: &str, load: Option<&str>| {
        let found = stores().find(|record| {
            parameter(record, "connections") == most
                && word(record, "numa_server") == server
                && word(record, "numa_client") != "other"
                && (parameter(record, "load_threads") > 0) == load.is_some()
                && word(record, "numa_load") == load.unwrap_or_default()
        });
        found?.metric("requests_per_s")
    };
    let near = ["nic", ""]
        .into_iter()
        .find(|node| rate(node, None).is_some())?;
    let alone = rate(near, None)?;
    let others = [
        ("nic", Some(""), "under a load on any node"),
        ("", Some(""), "under a load"),
        ("nic", Some("nic"), "under a load on the server's node"),
        ("other", None, "with server and values on the other node"),
    ];
    let others = others.into_iter().filter_map(|(server, load, how)| {
        let share = format::percent(100.0 * rate(server, load)? / alone);
        Some(format!("{share} of that {how}"))
    });
    let others: Vec<String> = others.collect();
    let others = match &others[..] {
        [] => String::new(),
        others => format!("; {}", others.join(", ")),
    };
    Some(format!(
        "a store with {most} connections reaches {} without load{others}.",
        format::rate(alone),
    ))
}

fn torn(records: &[&Record]) -> Option<String> {
    let sum = |name: &str| {
        records
            .iter()
            .filter_map(|record| record.metric(name))
            .sum::<f64>()
    };
    let (checked, torn) = (sum("words_checked"), sum("words_torn"));
    (checked > 0.0).then(|| {
        format!(
            "{torn} of {:.1} million words of 8 B that were read while others wrote them were torn.",
            checked / 1e6
        )
    })
}
