//! What a program of several members measured: a table, or one JSON object.

use std::io::Write;

use adverb_results::{DeviceRef, LatencyRecorder};
use adverb_units::{MessageRate, Span};
use serde::Serialize;
use serde_json::Value;

use crate::args::Format;
use crate::terminal;

/// The sum of members' rates; none where nothing was measured.
pub(super) fn together(rates: impl Iterator<Item = f64>) -> Option<f64> {
    Some(rates.sum()).filter(|rate| *rate > 0.0)
}

/// What stands for a figure that was not measured.
const NOT_MEASURED: &str = "-";

/// Waiting times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Waiting {
    pub(super) mean: Option<f64>,
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) p999: Option<f64>,
    pub(super) max: Option<f64>,
}

impl Waiting {
    /// Of all clients together.
    pub(super) fn of<'r>(waits: impl Iterator<Item = &'r LatencyRecorder>) -> Self {
        let Some(waits) = LatencyRecorder::merged(waits) else {
            return Waiting::default();
        };
        Waiting {
            mean: waits.mean_ns(),
            p50: waits.quantile_ns(0.5),
            p99: waits.quantile_ns(0.99),
            p999: waits.quantile_ns(0.999),
            max: waits.quantile_ns(1.0),
        }
    }
}

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Checked {
    /// Numbers, each handed out exactly once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) numbers: Option<u64>,
    /// Values, each whole and of its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) values: Option<u64>,
    /// Items that were locked, each of them free at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) locks: Option<u64>,
    /// PUTs that a server's core carried out, each counted in its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) puts: Option<u64>,
}

/// The figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) program: &'static str,
    pub(super) device: DeviceRef,
    pub(super) adverb: &'static str,
    pub(super) params: Value,
    /// Done in the measured time.
    pub(super) requests: u64,
    pub(super) elapsed_ns: f64,
    /// None where no request ended in that time.
    pub(super) requests_per_s: Option<f64>,
    pub(super) batch_mean: Option<f64>,
    pub(super) waiting_ns: Waiting,
    pub(super) checked: Checked,
    /// What it was, for people.
    #[serde(skip)]
    pub(super) title: String,
}

impl Figures {
    pub(super) fn print(&self, format: Format) -> anyhow::Result<()> {
        if self.requests == 0 {
            let measured = Span::from_secs_f64(self.elapsed_ns / 1e9);
            terminal::warn(&format!(
                "no request ended within {measured}: choose a longer --duration"
            ));
        }
        let mut out = terminal::stdout();
        if format == Format::Json {
            writeln!(out, "{}", serde_json::to_string(self)?)?;
            return Ok(out.flush()?);
        }
        writeln!(out, "{} on {}: {}", self.program, self.device, self.title)?;
        let columns = self.columns();
        let line = |text: fn(&Column) -> &str| {
            let cells = columns.iter().map(|column| format!("{:>9}", text(column)));
            cells.collect::<Vec<_>>().join("  ")
        };
        writeln!(out, "{}", line(|column| column.0))?;
        writeln!(out, "{}", line(|column| &column.1))?;
        let checked = self.checked.words();
        if !checked.is_empty() {
            writeln!(out, "Checked: {checked}.")?;
        }
        Ok(out.flush()?)
    }

    fn columns(&self) -> [Column; 8] {
        let rate = self
            .requests_per_s
            .and_then(|rate| MessageRate::over((rate * 1e3).round() as u64, Span::from_secs(1000)));
        let waiting = &self.waiting_ns;
        [
            ("requests", self.requests.to_string()),
            (
                "rate",
                rate.map_or(NOT_MEASURED.into(), |rate| rate.to_string()),
            ),
            (
                "batch",
                self.batch_mean
                    .map_or(NOT_MEASURED.into(), |mean| format!("{mean:.2}")),
            ),
            ("mean", ns(waiting.mean)),
            ("p50", ns(waiting.p50)),
            ("p99", ns(waiting.p99)),
            ("p99.9", ns(waiting.p999)),
            ("max", ns(waiting.max)),
        ]
    }
}

type Column = (&'static str, String);

impl Checked {
    fn words(&self) -> String {
        let parts = [
            (self.numbers, "numbers, each handed out exactly once"),
            (self.values, "values, each whole and of its key"),
            (self.locks, "locks, all free at the end"),
            (self.puts, "PUTs, each found in the server's memory"),
        ];
        let parts = parts
            .into_iter()
            .filter_map(|(count, what)| Some(format!("{} {what}", count?)));
        parts.collect::<Vec<_>>().join("; ")
    }
}

fn ns(value: Option<f64>) -> String {
    value.map_or(NOT_MEASURED.into(), |ns| {
        Span::from_ps((ns * 1e3).round() as u64).to_string()
    })
}
