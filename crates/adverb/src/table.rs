//! Records as table rows. Rows are printed as cells end, so the columns have fixed widths.

use adverb_results::{
    Completion, CpuShare, DeviceKind, Latency, Opcode, PairRecord, Params, Program, Transport,
};
use adverb_units::{MessageRate, Span};
use adverb_verbs::AckTimeout;
use adverb_workload::pair::Request;

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

/// Returns the half-width of the mean's interval; `None` on a model, which has no noise.
fn interval(record: &PairRecord) -> Option<String> {
    let is_measured = record.device.kind != DeviceKind::Model;
    let half = latency(record)?.ci95.filter(|_| is_measured)?;
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
fn stream_title(record: &PairRecord) -> String {
    let p = &record.params;
    let how = match p.completion {
        Completion::Poll => "polling",
        Completion::Event | Completion::Hybrid(_) => "sleeping",
    };
    let mut title = format!(
        "{} {} on {}: {how} sockets, TCP_NODELAY",
        record.program, p.op, record.device
    );
    if record.program == Program::Blast {
        title += &format!(", {} buffers", p.buffers);
    }
    if p.traffic.reversed {
        title += ", reversed";
    }
    title + &passive_side(record)
}

/// Returns the title above the rows: the parameters that they share.
pub(crate) fn title(record: &PairRecord, asked: &Request) -> String {
    let p = &record.params;
    if p.traffic.transport == Transport::Tcp {
        return stream_title(record);
    }
    let mut title = format!(
        "{} {} on {}: {}, completions by {}",
        record.program,
        p.op,
        record.device,
        if p.inline { "inline" } else { "not inline" },
        p.completion,
    );
    if record.program == Program::Blast {
        title += &format!(", {} buffers, {} posts", p.buffers, p.post);
        if p.traffic.qps != 1 {
            title += &format!(" on each of {} queue pairs", p.traffic.qps);
        }
        if p.traffic.bidirectional {
            title += ", both directions";
        }
    }
    if !p.traffic.transport.is_default() {
        title += &format!(", transport {}", p.traffic.transport);
    }
    if p.traffic.reversed {
        title += ", reversed";
    }
    title += &format!(", signaled: {}", p.signal);
    if let Some(path_mtu) = &p.path_mtu_bytes {
        title += &format!(", path MTU {path_mtu}");
    }
    let may_wait = p.impairment.is_some_and(|impairment| !impairment.is_none());
    if may_wait || asked.path.ack_timeout.is_some() || asked.path.retries.is_some() {
        title += &retransmission(p);
    }
    if let Some(impairment) = &p.impairment {
        title += &format!(", {impairment}");
    }
    title + &passive_side(record)
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

/// `, ACK timeout 1.05 ms (4.096 µs × 2^8), 7 retries`.
fn retransmission(params: &Params) -> String {
    let timeout = params.ack_timeout.and_then(AckTimeout::at_least);
    let timeout = timeout.map(|timeout| format!(", ACK timeout {timeout}"));
    let retries = params.retry_cnt.map(|n| format!(", {n} retries"));
    timeout.into_iter().chain(retries).collect()
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
