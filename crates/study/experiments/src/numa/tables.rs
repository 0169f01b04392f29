//! Tables of the study's figures.

use adverb_report::{Table, format};
use adverb_results::Record;

use super::figures::{MEAN, RATE, by_local, by_memory};
use crate::programs::{parameter, word};

/// The mean latency of each client's queue pair, and how far they are apart.
pub(super) fn by_queue_pair(records: &[&Record]) -> Table {
    let rows = records.iter().filter_map(|record| {
        let means = record.of_requesters(MEAN.0);
        let least = means.iter().copied().min_by(f64::total_cmp)?;
        let most = means.iter().copied().max_by(f64::total_cmp)?;
        let of = |part: &[f64]| match part.len() {
            0 => "–".to_owned(),
            n => format::time(part.iter().sum::<f64>() / n as f64),
        };
        let (first, rest) = means.split_at(means.len().min(7));
        Some(vec![
            record.device.to_string(),
            by_memory(record),
            means.len().to_string(),
            of(first),
            of(rest),
            format::time(least),
            format::time(most),
        ])
    });
    Table {
        columns: vec![
            "Device",
            "Operation",
            "Queue pairs",
            "First seven",
            "Others",
            "Fastest",
            "Slowest",
        ],
        rows: rows.collect(),
    }
}

/// Updates of the word, and how many were lost.
pub(super) fn updates(records: &[&Record]) -> Table {
    let rows = records.iter().map(|record| {
        let metric = |name: &str| record.metric(&format!("word.{name}"));
        let shown = |value: Option<f64>, show: fn(f64) -> String| {
            value.map_or_else(|| "–".to_owned(), show)
        };
        vec![
            record.device.to_string(),
            by_local(record),
            shown(metric("updates"), |count| count.to_string()),
            shown(metric("lost"), |count| count.to_string()),
            shown(metric("remote.updates_per_s"), format::rate),
            shown(metric("local.updates_per_s"), format::rate),
        ]
    });
    Table {
        columns: vec![
            "Device",
            "Local updates by",
            "Updates",
            "Lost",
            "Remote",
            "Local",
        ],
        rows: rows.collect(),
    }
}

/// Rates with and without each change.
pub(super) fn remedies(records: &[&Record]) -> Table {
    let rows = records.iter().filter_map(|record| {
        let rate = record.metric(RATE.0)?;
        let change = match () {
            () if parameter(record, "workers") > 0 => "without DDIO, one worker",
            () if record.params.get("flush").is_some() => "flushed",
            () if !word(record, "ddio").is_empty() => "without DDIO",
            () if parameter(record, "link_mtu_bytes") > 0 => {
                &format!("MTU {}", parameter(record, "link_mtu_bytes"))
            }
            () => "none",
        };
        Some(vec![
            record.device.to_string(),
            by_memory(record),
            format::size(parameter(record, "size_bytes")),
            change.to_owned(),
            format::rate(rate),
        ])
    });
    Table {
        columns: vec!["Device", "Operation", "Payload", "Change", "Rate"],
        rows: rows.collect(),
    }
}
