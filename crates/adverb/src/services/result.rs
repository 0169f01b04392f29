//! Rows for the records of programs with several members.

use adverb_results::{DeviceKind, Record};

use crate::sink::Table;
use crate::table::{ns, per_second, two_places};

/// A column: its heading, the metric, and how that is shown.
pub(super) struct Column(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) fn(f64) -> String,
);

/// Rows below the title of a program.
pub(super) struct Rows {
    /// What all rows have in common.
    pub(super) title: String,
    pub(super) columns: &'static [Column],
    /// Width of the columns.
    pub(super) width: usize,
    pub(super) remark: fn(&Record) -> Option<String>,
}

impl Rows {
    /// Rows of a program whose clients send requests.
    pub(super) fn of_requests(title: String) -> Self {
        Rows {
            title,
            columns: &REQUESTS,
            width: 9,
            remark: checked,
        }
    }
}

const REQUESTS: [Column; 11] = [
    Column("requests", "requests", plain),
    Column("rate", "requests_per_s", rate),
    Column("least", "client_least_per_s", rate),
    Column("most", "client_most_per_s", rate),
    Column("batch", "batch_mean", two_places),
    Column("mean", "latency_ns.mean", ns),
    Column("sd", "latency_ns.sd", ns),
    Column("p50", "latency_ns.p50", ns),
    Column("p99", "latency_ns.p99", ns),
    Column("p99.9", "latency_ns.p999", ns),
    Column("max", "latency_ns.max", ns),
];

pub(super) fn plain(value: f64) -> String {
    value.to_string()
}

pub(super) fn rate(value: f64) -> String {
    per_second(value).unwrap_or_else(|| "-".to_owned())
}

/// Largest change of a steady rate between the halves of the measured time, in percent.
const LARGEST_DRIFT: f64 = 10.0;

/// Descriptions of the checks, by their names in a record.
const CHECKED: [(&str, &str); 4] = [
    ("numbers", "numbers, each handed out exactly once"),
    ("values", "values, each whole and of its key"),
    ("locks", "locks, all free at the end"),
    ("puts", "PUTs, each found in the server's memory"),
];

impl Table for Rows {
    fn title(&self, record: &Record) -> String {
        format!("{} on {}: {}", record.program, record.device, self.title)
    }

    fn columns(&self, _: &Record) -> Vec<(&'static str, usize)> {
        let columns = self.columns.iter();
        columns.map(|column| (column.0, self.width)).collect()
    }

    fn rows(&self, record: &Record) -> Vec<Vec<Option<String>>> {
        let cell = |Column(_, path, show): &Column| record.metric(path).map(show);
        vec![self.columns.iter().map(cell).collect()]
    }

    fn remark(&self, record: &Record) -> Option<String> {
        (self.remark)(record)
    }
}

/// What was checked, and what to know about the record.
fn checked(record: &Record) -> Option<String> {
    let parts = CHECKED.iter().filter_map(|(name, what)| {
        let count = record.metric(&format!("checked.{name}"))?;
        Some(format!("{count} {what}"))
    });
    let words = record.metric("words_checked").map(|count| {
        let torn = record.metric("words_torn").unwrap_or(0.0);
        format!("{count} words of 8 B, {torn} torn")
    });
    let parts: Vec<String> = parts.chain(words).collect();
    let checked = (!parts.is_empty()).then(|| format!("Checked: {}.", parts.join("; ")));
    let sentences: Vec<String> = checked.into_iter().chain(remark(record)).collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// What to know about any record of these programs.
pub(super) fn remark(record: &Record) -> Option<String> {
    let sentences: Vec<String> = pcie(record).into_iter().chain(drift(record)).collect();
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// `The second half of the measured time had 60 % more requests than the first: use a longer --duration.` Only
/// of a model, which has no noise.
fn drift(record: &Record) -> Option<String> {
    let percent = record.metric("drift_percent")?;
    if record.device.kind != DeviceKind::Model || percent.abs() < LARGEST_DRIFT {
        return None;
    }
    let more = if percent > 0.0 { "more" } else { "fewer" };
    Some(format!(
        "The second half of the measured time had {:.0} % {more} requests than the first: \
         use a longer --duration.",
        percent.abs()
    ))
}

/// `PCIe of this host for each request: 96.0 B from the devices, 128.0 B to the devices.`
fn pcie(record: &Record) -> Option<String> {
    let bytes = |way: &str| record.metric(&format!("pcie_bytes_per_request.{way}"));
    let from = bytes("from_devices").map(|bytes| format!("{bytes:.1} B from the devices"));
    let to = bytes("to_devices").map(|bytes| format!("{bytes:.1} B to the devices"));
    let ways: Vec<String> = from.into_iter().chain(to).collect();
    (!ways.is_empty()).then(|| format!("PCIe of this host for each request: {}.", ways.join(", ")))
}
