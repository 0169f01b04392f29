//! Records as CSV: one row a record, the units in the column names, an empty cell where there is no
//! figure. Histograms stay in the JSON Lines.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;

use adverb_units::{MessageRate, Throughput};

use crate::stats::Spread;
use crate::{CpuShare, Impairment, Latency, Metrics, Outcome, Record, Site};

type Column = (&'static str, fn(&Record) -> Option<String>);

/// The columns, in order.
const COLUMNS: [Column; 61] = [
    ("schema", |r| text(r.schema)),
    ("cell", |r| text(&r.cell)),
    ("figures", |r| text(r.figures.join(" "))),
    ("status", |r| {
        text(if r.outcome == Outcome::Ok {
            "ok"
        } else {
            "failed"
        })
    }),
    ("failure_reason", |r| match &r.outcome {
        Outcome::Ok => None,
        Outcome::Failed { reason } => text(reason),
    }),
    ("program", |r| text(r.program)),
    ("device_kind", |r| text(r.device.kind)),
    ("device_name", |r| text(&r.device.name)),
    ("op", |r| text(r.params.op)),
    ("size_bytes", |r| text(r.params.size_bytes.get())),
    ("inline", |r| text(r.params.inline)),
    ("completion", |r| text(r.params.completion)),
    ("buffers", |r| text(r.params.buffers)),
    ("post", |r| text(r.params.post)),
    ("signal", |r| text(r.params.signal)),
    ("path_mtu_bytes", |r| {
        r.params.path_mtu_bytes.and_then(|mtu| text(mtu.get()))
    }),
    ("ack_timeout_ns", |r| {
        r.params.ack_timeout.and_then(|time| text(time.as_ns_f64()))
    }),
    ("retry_cnt", |r| r.params.retry_cnt.and_then(text)),
    ("loss", |r| impairment(r, |i| text(i.loss.get()))),
    ("duplicate", |r| impairment(r, |i| text(i.duplicate.get()))),
    ("reorder", |r| impairment(r, |i| text(i.reorder.get()))),
    ("corrupt", |r| impairment(r, |i| text(i.corrupt.get()))),
    ("impairment_seed", |r| impairment(r, |i| text(i.seed))),
    ("verify", |r| text(r.params.verify)),
    ("iters", |r| r.params.iters.and_then(text)),
    ("warmup_iters", |r| r.params.warmup_iters.and_then(text)),
    ("active_core", |r| r.params.active_core.and_then(text)),
    ("passive_core", |r| r.params.passive_core.and_then(text)),
    ("active_numa_node", |r| {
        r.params.active_numa_node.and_then(text)
    }),
    ("passive_numa_node", |r| {
        r.params.passive_numa_node.and_then(text)
    }),
    ("seed", |r| text(r.params.seed)),
    ("repetitions", |r| {
        r.metrics.as_ref().and_then(|m| text(m.repetitions.len()))
    }),
    ("elapsed_ns", |r| {
        r.metrics.as_ref().and_then(|m| text(m.elapsed.as_ns_f64()))
    }),
    ("one_way_mean_ns", |r| latency(r, |l| l.mean)),
    ("one_way_mean_ci95_ns", |r| latency(r, |l| l.ci95)),
    ("one_way_median_of_repetitions_ns", |r| {
        spread(r, |s| s.median)
    }),
    ("one_way_min_of_repetitions_ns", |r| spread(r, |s| s.min)),
    ("one_way_max_of_repetitions_ns", |r| spread(r, |s| s.max)),
    ("one_way_p50_ns", |r| latency(r, |l| l.p50)),
    ("one_way_p99_ns", |r| latency(r, |l| l.p99)),
    ("one_way_p999_ns", |r| latency(r, |l| l.p999)),
    ("one_way_max_ns", |r| latency(r, |l| l.max)),
    ("message_rate_per_s", |r| {
        figure(r, |m| m.messages_per_s.map(MessageRate::per_second))
    }),
    ("throughput_bytes_per_s", |r| {
        figure(r, |m| m.bytes_per_s.map(Throughput::bytes_per_second))
    }),
    ("cpu_active_user_percent", |r| {
        cpu(r, |m| m.cpu.active, |c| c.user)
    }),
    ("cpu_active_system_percent", |r| {
        cpu(r, |m| m.cpu.active, |c| c.system)
    }),
    ("cpu_active_percent", |r| {
        cpu(r, |m| m.cpu.active, |c| c.percent)
    }),
    ("cpu_passive_user_percent", |r| {
        cpu(r, |m| m.cpu.passive, |c| c.user)
    }),
    ("cpu_passive_system_percent", |r| {
        cpu(r, |m| m.cpu.passive, |c| c.system)
    }),
    ("cpu_passive_percent", |r| {
        cpu(r, |m| m.cpu.passive, |c| c.percent)
    }),
    ("started", |r| text(&r.provenance.started)),
    ("host", |r| text(&r.provenance.active.host)),
    ("machine", |r| machine(&r.provenance.active)),
    ("device_details", |r| details(&r.provenance.active.device)),
    ("passive_host", |r| passive(r, |site| text(&site.host))),
    ("passive_machine", |r| passive(r, machine)),
    ("passive_device_details", |r| {
        passive(r, |site| details(&site.device))
    }),
    ("active_counters", |r| details(&r.counters.active)),
    ("passive_counters", |r| details(&r.counters.passive)),
    ("adverb", |r| text(&r.provenance.adverb)),
    ("revision", |r| r.provenance.revision.clone()),
];

/// Writes the records as CSV, with a header row.
///
/// # Errors
/// Where `out` refuses.
pub fn write_csv(records: &[Record], out: impl io::Write) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(COLUMNS.map(|(name, _)| name))?;
    for record in records {
        table.write_record(COLUMNS.map(|(_, value)| value(record).unwrap_or_default()))?;
    }
    table.flush()
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "most values are made on the spot"
)]
fn text(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

/// Of the passive side's host, where it is another one.
fn passive(record: &Record, of: fn(&Site) -> Option<String>) -> Option<String> {
    of(record.provenance.passive.as_ref()?)
}

fn machine(site: &Site) -> Option<String> {
    text(format!(
        "{}; {} cores; {}",
        site.cpu, site.cores, site.kernel
    ))
}

/// Names and values in one cell; none where there are none.
fn details<V: Display>(of: &BTreeMap<String, V>) -> Option<String> {
    let words = of.iter().map(|(name, value)| format!("{name}={value}"));
    (!of.is_empty()).then(|| words.collect::<Vec<_>>().join("; "))
}

fn figure(record: &Record, of: fn(&Metrics) -> Option<f64>) -> Option<String> {
    record.metrics.as_ref().and_then(of).and_then(text)
}

fn impairment(record: &Record, of: impl Fn(&Impairment) -> Option<String>) -> Option<String> {
    record.params.impairment.as_ref().and_then(of)
}

fn latency(record: &Record, of: fn(&Latency) -> Option<f64>) -> Option<String> {
    of(&record.metrics.as_ref()?.one_way_ns).and_then(text)
}

fn spread(record: &Record, of: fn(&Spread) -> f64) -> Option<String> {
    text(of(&record.metrics.as_ref()?.spread()?))
}

fn cpu(
    record: &Record,
    side: fn(&Metrics) -> CpuShare,
    of: fn(&CpuShare) -> Option<f64>,
) -> Option<String> {
    of(&side(record.metrics.as_ref()?)).and_then(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{failed, record};

    fn rows(records: &[Record]) -> Vec<std::collections::HashMap<String, String>> {
        let mut bytes = Vec::new();
        write_csv(records, &mut bytes).unwrap();
        csv::Reader::from_reader(bytes.as_slice())
            .deserialize()
            .map(Result::unwrap)
            .collect()
    }

    #[test]
    fn a_row_has_units_provenance_and_empty_cells() {
        let row = &rows(&[record("a")])[0];
        assert_eq!(row["one_way_mean_ns"], "100");
        assert_eq!(row["op"], "send");
        assert_eq!(row["cpu_passive_percent"], "");
        assert_eq!(row["one_way_p99_ns"], "");
        assert_eq!(row["host"], "testbed");
        assert_eq!(row["status"], "ok");
        assert_eq!(row["failure_reason"], "");
    }

    #[test]
    fn a_failed_cell_has_its_reason_and_no_figure() {
        let row = &rows(&[failed("a", "no \"space\", sorry\nreally")])[0];
        assert_eq!(row["status"], "failed");
        assert_eq!(row["failure_reason"], "no \"space\", sorry\nreally");
        assert_eq!(row["one_way_mean_ns"], "");
    }

    #[test]
    fn no_record_is_a_table_of_names() {
        let mut bytes = Vec::new();
        write_csv(&[], &mut bytes).unwrap();
        assert_eq!(bytes.iter().filter(|b| **b == b'\n').count(), 1);
    }
}
