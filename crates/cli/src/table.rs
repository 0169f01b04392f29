//! Records as rows for people. Rows are printed as cells end, so the columns have fixed widths.

use adverb_results::{CpuShare, DeviceKind, PairRecord, Params};
use adverb_studies::Request;
use adverb_units::Span;
use adverb_verbs::AckTimeout;

type Column = (&'static str, usize, fn(&PairRecord) -> Option<String>);

const COLUMNS: [Column; 11] = [
    ("size", 8, |r| Some(r.params.size_bytes.to_string())),
    ("one-way", 9, |r| {
        r.metrics.as_ref()?.one_way_ns.mean.map(ns)
    }),
    ("±95 %", 9, |r| interval(r).map(ns)),
    ("p50", 9, |r| r.metrics.as_ref()?.one_way_ns.p50.map(ns)),
    ("p99", 9, |r| r.metrics.as_ref()?.one_way_ns.p99.map(ns)),
    ("p99.9", 9, |r| r.metrics.as_ref()?.one_way_ns.p999.map(ns)),
    ("max", 9, |r| r.metrics.as_ref()?.one_way_ns.max.map(ns)),
    ("rate", 9, |r| {
        Some(r.metrics.as_ref()?.messages_per_s?.to_string())
    }),
    ("throughput", 10, |r| {
        Some(r.metrics.as_ref()?.bytes_per_s?.to_string())
    }),
    ("CPU active", 11, |r| cpu(r.metrics.as_ref()?.cpu.active)),
    ("CPU passive", 11, |r| cpu(r.metrics.as_ref()?.cpu.passive)),
];

/// Of the mean; a model has no noise for it to tell of.
fn interval(record: &PairRecord) -> Option<f64> {
    let is_measured = record.device.kind != DeviceKind::Model;
    let interval = record.metrics.as_ref()?.one_way_ns.ci95;
    interval.filter(|_| is_measured)
}

/// Names and widths of the columns.
pub(crate) fn columns() -> Vec<(&'static str, usize)> {
    COLUMNS.map(|(name, width, _)| (name, width)).to_vec()
}

/// The row of a record.
pub(crate) fn row(record: &PairRecord) -> Vec<Option<String>> {
    COLUMNS.map(|(_, _, value)| value(record)).to_vec()
}

/// What the rows have in common, as far as `asked` tells, or the record.
pub(crate) fn title(record: &PairRecord, asked: &Request) -> String {
    let p = &record.params;
    let mut title = format!(
        "{} {} on {}: {}, completions by {}",
        record.program,
        p.op,
        record.device,
        if p.inline { "inline" } else { "not inline" },
        p.completion,
    );
    if record.program == adverb_results::Program::Blast {
        title += &format!(", {} buffers, {} posts", p.buffers, p.post);
    }
    title += &format!(", signaled: {}", p.signal);
    if let Some(path_mtu) = &p.path_mtu_bytes {
        title += &format!(", path MTU {path_mtu}");
    }
    let may_wait = p.impairment.is_some_and(|impairment| !impairment.is_none());
    if may_wait || asked.path.ack_timeout.is_some() || asked.path.retries.is_some() {
        title += &patience(p);
    }
    if let Some(impairment) = &p.impairment {
        title += &format!(", {impairment}");
    }
    if let Some(passive) = &record.provenance.passive {
        title += &format!(", passive side at {}", passive.host);
        // There only where it is another device.
        if let Some(device) = passive.device.get("name") {
            title += &format!(" on {device}");
        }
    }
    if p.verify {
        title += ", payload verified";
    }
    title
}

/// `, ACK timeout 1.05 ms (4.096 µs × 2^8), 7 retries`.
fn patience(params: &Params) -> String {
    let timeout = params.ack_timeout.and_then(AckTimeout::at_least);
    let timeout = timeout.map(|timeout| format!(", ACK timeout {timeout}"));
    let retries = params.retry_cnt.map(|n| format!(", {n} retries"));
    timeout.into_iter().chain(retries).collect()
}

/// So many nanoseconds in words.
pub(crate) fn ns(ns: f64) -> String {
    Span::from_ps((ns * 1e3).round() as u64).to_string()
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
