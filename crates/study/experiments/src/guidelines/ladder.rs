//! The ladder of designs: the step that a record is of, and tables of the steps.

use adverb_report::findings::keeps_up;
use adverb_report::{Table, format};
use adverb_results::Record;
use serde_json::Value;

use super::figures::{
    LADDER, PCIE_LINES, by_list, by_op, by_queues, by_store, by_way, counted, design, is_of_a_verb,
    under_load,
};
use crate::programs::{parameter, word};

/// Steps of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Not a step: without RDMA, for comparison.
    Tcp,
    FetchAdd,
    Rpc,
    Lists,
    Queues,
    Cores,
    HeaderOnly,
}

impl Step {
    /// From FETCH_ADD on.
    pub(super) const LADDER: [Step; 6] = [
        Step::FetchAdd,
        Step::Rpc,
        Step::Lists,
        Step::Queues,
        Step::Cores,
        Step::HeaderOnly,
    ];

    /// Returns the design of a sequencer; `None` for another program.
    pub(super) fn of(record: &Record) -> Option<Step> {
        let many = |name| parameter(record, name);
        let step = match word(record, "by") {
            _ if record.program != "sequencer" => return None,
            "tcp" => Step::Tcp,
            "atomics" => Step::FetchAdd,
            "rpc-imm" => Step::HeaderOnly,
            _ if many("server_cores") > 1 => Step::Cores,
            _ if many("batch") <= 1 => Step::Rpc,
            _ if many("qps") > 1 => Step::Queues,
            _ => Step::Lists,
        };
        Some(step)
    }
}

/// A resource that is busy for more than this share of the time, in percent, is one that limits.
const FULL: f64 = 99.0;
/// A part of a core's time, not a resource.
pub(super) const MMIO: &str = "CPU writing to the NIC";

/// Returns the busiest resource of a model, such as `NIC transmit side of the server (98 %)`, or all resources of the
/// server that are as good as busy all the time: which of them is ahead by a hair means nothing.
pub(super) fn limit(record: &Record) -> Option<String> {
    limits(record).map(|(words, _)| words)
}

/// Returns [`limit`], and whether it names several resources.
pub(super) fn limits(record: &Record) -> Option<(String, bool)> {
    let metrics = record.metrics.as_ref()?;
    let busiest = metrics.get("busiest")?;
    let resource = busiest.get("resource")?.as_str()?;
    let share = busiest.get("percent")?.as_f64()?;
    let is_server = busiest.get("host")?.as_str()? == "machine 0";
    let all = metrics
        .get("utilization_percent")
        .and_then(Value::as_object);
    let all = all.into_iter().flatten();
    let all = all.filter_map(|(name, share)| Some((name.as_str(), share.as_f64()?)));
    let mut full: Vec<(&str, f64)> = all
        .filter(|(name, share)| *share > FULL && *name != MMIO && is_server)
        .collect();
    full.sort_unstable_by_key(|(name, _)| *name);
    if full.len() < 2 {
        full = vec![(resource, share)];
    }
    let least = full.iter().map(|(_, share)| *share).fold(share, f64::min);
    let shares = match (format::percent(least), format::percent(share)) {
        (least, most) if least == most => most,
        (least, most) => format!("{least} to {most}"),
    };
    let names: Vec<String> = full.iter().map(|(name, _)| (*name).to_owned()).collect();
    let whose = if is_server {
        "the server"
    } else {
        "a client's machine"
    };
    let words = format!("{} of {whose} ({shares})", format::and(&names));
    Some((words, full.len() > 1))
}

/// Returns [`limit`], and whether the server keeps up with what is offered.
pub(super) fn limit_and_load(record: &Record) -> Option<String> {
    let limit = limit(record)?;
    Some(match keeps_up(record) {
        true => limit,
        false => format!("{limit}: does not keep up"),
    })
}

/// Returns the records of TCP and of a ladder under load, in the order of its steps, the newest of each.
pub(super) fn steps<'r>(records: &[&'r Record]) -> Vec<(Step, &'r Record)> {
    let of = |step| {
        let own = |record: &&&Record| under_load(record) && Step::of(record) == Some(step);
        let is_shown = |record: &&&Record| record.figures.iter().any(|id| id == LADDER.id);
        let mut records = records.iter().rev().filter(is_shown);
        Some((step, *records.find(own)?))
    };
    let all = [Step::Tcp].into_iter().chain(Step::LADDER);
    all.filter_map(of).collect()
}

/// Returns the records of each device.
fn by_device<'r>(records: &[&'r Record]) -> Vec<Vec<&'r Record>> {
    let mut devices: Vec<Vec<&Record>> = Vec::new();
    for record in records {
        let of_device = |own: &&mut Vec<&Record>| own[0].device == record.device;
        match devices.iter_mut().find(of_device) {
            Some(own) => own.push(record),
            None => devices.push(vec![record]),
        }
    }
    devices
}

fn rate(record: &Record) -> Option<f64> {
    record.metric("requests_per_s")
}

/// `2.37×`, or a dash without a figure.
fn gain(record: &Record, before: Option<&Record>) -> String {
    let gain = before.and_then(|before| Some(rate(record)? / rate(before)?));
    gain.map_or_else(|| "–".to_owned(), format::factor)
}

/// The designs of each device, with what each gains and what limits it.
pub(super) fn ladder(records: &[&Record]) -> Table {
    let mut rows = Vec::new();
    for own in by_device(records) {
        let mut before = None;
        for (step, record) in steps(&own) {
            let latency = record.metric("latency_ns.mean").map(format::time);
            let batch = record
                .metric("batch_mean")
                .map(|batch| format!("{batch:.1}"));
            let dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
            rows.push(vec![
                record.device.to_string(),
                design(record),
                dash(rate(record).map(format::rate)),
                gain(record, before),
                dash(latency),
                dash(batch),
                limit(record).unwrap_or_else(|| "not known".to_owned()),
            ]);
            before = (step != Step::Tcp).then_some(record);
        }
    }
    Table {
        columns: vec![
            "Device",
            "Design",
            "Rate",
            "Gain",
            "Mean latency",
            "Answers per doorbell",
            "Busiest resource",
        ],
        rows,
    }
}

/// What each step gains on each device.
pub(super) fn generations(records: &[&Record]) -> Table {
    let row = |own: Vec<&Record>| {
        let all = steps(&own);
        let of = |step| {
            all.iter()
                .find(|(own, _)| *own == step)
                .map(|(_, record)| *record)
        };
        let mut row = vec![own[0].device.to_string()];
        for pair in Step::LADDER.windows(2) {
            row.push(of(pair[1]).map_or_else(|| "–".to_owned(), |to| gain(to, of(pair[0]))));
        }
        let last = of(Step::HeaderOnly).map(|last| gain(last, of(Step::FetchAdd)));
        row.push(last.unwrap_or_else(|| "–".to_owned()));
        row
    };
    Table {
        columns: vec![
            "Device",
            "RPC / FETCH_ADD",
            "Doorbell batching",
            "Queue pairs",
            "Cores",
            "Header-only, more cores",
            "All / FETCH_ADD",
        ],
        rows: by_device(records).into_iter().map(row).collect(),
    }
}

/// `SEND, lists of 16, 60 B, queue pairs of each core: 2`.
pub(super) fn operation(record: &Record) -> String {
    let count = |name| parameter(record, name);
    match record.program.as_str() {
        "sequencer" => design(record),
        "rpc" => format!(
            "{} of {} B, {} client{}",
            by_way(record),
            count("reply_bytes"),
            count("clients"),
            if count("clients") == 1 { "" } else { "s" }
        ),
        "atomics" => match count("words") {
            1 => "FETCH_ADD on one word".to_owned(),
            words => format!("FETCH_ADD on {words} words"),
        },
        "kv" if word(record, "by") == "rpc" => format!(
            "HERD on {}, {}, {} of PUTs",
            counted(count("server_cores")),
            by_queues(record),
            puts(record)
        ),
        "kv" => format!("{}, {} of PUTs", by_store(record), puts(record)),
        side @ ("outbound" | "inbound") if is_of_a_verb(record) => {
            let mut words = vec![by_op(record)];
            if record.params.get("inline") == Some(&true.into()) {
                words.push("inline".to_owned());
            }
            match count("batch") {
                1 => {}
                n => words.push(format!("lists of {n}")),
            }
            words.push(match side {
                "outbound" => "requester".to_owned(),
                _ => "responder".to_owned(),
            });
            words.join(", ")
        }
        "outbound" if word(record, "op") == "read" => {
            let window = count("outstanding");
            format!("READ of {} B, windows of {window}", count("size_bytes"))
        }
        "outbound" => format!(
            "{}, {} B, queue pairs of each core: {}",
            by_list(record),
            count("size_bytes"),
            count("qps")
        ),
        _ => format!(
            "{} of {} B to the machine",
            by_op(record),
            count("size_bytes")
        ),
    }
}

/// `50 %`.
fn puts(record: &Record) -> String {
    let share = record.params.get("put_ratio").and_then(Value::as_f64);
    format::percent(100.0 * share.unwrap_or_default())
}

/// Lines over PCIe for each operation.
pub(super) fn pcie(records: &[&Record]) -> Table {
    let row = |record: &&Record| {
        let lines = |(_, kind)| record.metric(&format!("pcie_lines_per_request.{kind}"));
        let kinds = PCIE_LINES
            .map(lines)
            .into_iter()
            .collect::<Option<Vec<f64>>>()?;
        let all = kinds.iter().sum::<f64>();
        let mut row = vec![record.device.to_string(), operation(record)];
        let each = kinds.into_iter().chain([all]);
        row.extend(each.map(|lines| format!("{lines:.2}")));
        Some(row)
    };
    let kinds = PCIE_LINES.map(|(name, _)| name);
    Table {
        columns: [&["Device", "Operation"], &kinds[..], &["All"]].concat(),
        rows: records.iter().filter_map(row).collect(),
    }
}
