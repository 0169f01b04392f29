//! The ladder of designs: the step that a record is of, and tables of the steps.

use adverb_report::{Table, format};
use adverb_results::Record;

use super::figures::{LADDER, by_list, by_op, by_way, design, under_load};
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

/// Returns the busiest resource of a model, such as `NIC transmit side of the server (98 %)`.
pub(super) fn limit(record: &Record) -> Option<String> {
    let busiest = record.metrics.as_ref()?.get("busiest")?;
    let resource = busiest.get("resource")?.as_str()?;
    let whose = match busiest.get("host")?.as_str()? {
        "machine 0" => "the server",
        _ => "a client's machine",
    };
    let share = format::percent(busiest.get("percent")?.as_f64()?);
    Some(format!("{resource} of {whose} ({share})"))
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
            "Header-only",
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

/// Lines over PCIe for each operation.
pub(super) fn pcie(records: &[&Record]) -> Table {
    let row = |record: &&Record| {
        let lines = |what: &str| {
            let lines = record.metric(&format!("pcie_lines_per_request.{what}"))?;
            Some(format!("{lines:.2}"))
        };
        Some(vec![
            record.device.to_string(),
            operation(record),
            lines("mmio_writes")?,
            lines("dma_reads")?,
            lines("dma_writes")?,
        ])
    };
    Table {
        columns: vec!["Device", "Operation", "MMIO", "DMA reads", "DMA writes"],
        rows: records.iter().filter_map(row).collect(),
    }
}
