//! The measured cells of a set of records, and their quantities with spread.

use std::collections::{BTreeMap, BTreeSet};

use adverb_results::stats::Spread;
use adverb_results::{DeviceRef, Metrics, Outcome, PairRecord, Params, Program, Repetition};

use crate::format;

/// One measured cell.
#[derive(Clone, Copy)]
pub struct Cell<'a> {
    /// What was measured.
    pub record: &'a PairRecord,
    /// The record's metrics.
    pub metrics: &'a Metrics,
}

/// What a plot shows of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Mean one-way time, or time per message.
    OneWay,
    /// Median of single messages.
    Median,
    /// 99th percentile of single messages.
    P99,
    /// Mean time of a round.
    RoundTrip,
    /// Mean time of a request, from post to answer.
    Latency,
    /// 99th percentile of requests.
    LatencyP99,
    /// Requests per second.
    RequestRate,
    /// Connections per second.
    ConnectionRate,
    /// Median time of a connection: set-up, use and break-down.
    ConnectionTime,
    /// Median time to register a memory region.
    RegistrationTime,
    /// Share of the messages that did not arrive.
    Loss,
    /// Messages per second.
    MessageRate,
    /// Payload per second.
    Throughput,
    /// Throughput in Mb/s as MacArthur & Russell define it: of a ping, the payload of one direction.
    Megabits,
    /// Throughput over all repetitions together: where packets are lost, few messages take most of the
    /// time, and a repetition may have none of them.
    Goodput,
    /// CPU share of the active side.
    CpuActive,
    /// CPU share of the passive side.
    CpuPassive,
    /// CPU time of the active side for a round.
    CpuActivePerRound,
    /// A share of 1, or a multiple.
    Ratio,
    /// A share of 1, in percent.
    Share,
    /// A number of things.
    Count,
}

impl Quantity {
    /// Formats a value with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Quantity::OneWay
            | Quantity::Median
            | Quantity::P99
            | Quantity::RoundTrip
            | Quantity::Latency
            | Quantity::LatencyP99
            | Quantity::ConnectionTime
            | Quantity::RegistrationTime
            | Quantity::CpuActivePerRound => format::time(value),
            Quantity::MessageRate | Quantity::RequestRate | Quantity::ConnectionRate => {
                format::rate(value)
            }
            Quantity::Throughput | Quantity::Goodput => format::throughput(value),
            Quantity::Megabits => format::megabits(value),
            Quantity::CpuActive | Quantity::CpuPassive | Quantity::Loss => format::percent(value),
            Quantity::Ratio => format!("{value:.2}"),
            Quantity::Share => format::percent(100.0 * value),
            Quantity::Count => format!("{}", (value * 1e3).round() / 1e3),
        }
    }

    /// Returns the name on an axis.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::OneWay => "one-way time",
            Quantity::Median => "median one-way time",
            Quantity::P99 => "99th percentile",
            Quantity::RoundTrip => "round-trip time",
            Quantity::Latency => "mean latency",
            Quantity::LatencyP99 => "latency, 99th percentile",
            Quantity::RequestRate => "request rate",
            Quantity::ConnectionRate => "connections per second",
            Quantity::ConnectionTime => "median time of a connection",
            Quantity::RegistrationTime => "median time to register memory",
            Quantity::Loss => "messages lost",
            Quantity::MessageRate => "messages per second",
            Quantity::Throughput => "throughput",
            Quantity::Megabits => "throughput, one direction",
            Quantity::Goodput => "goodput",
            Quantity::CpuActive => "CPU, active side",
            Quantity::CpuPassive => "CPU, passive side",
            Quantity::CpuActivePerRound => "CPU time per round, active side",
            Quantity::Ratio => "ratio",
            Quantity::Share => "share",
            Quantity::Count => "number",
        }
    }
}

impl<'a> Cell<'a> {
    fn of(record: &'a PairRecord) -> Option<Self> {
        let metrics = record
            .metrics
            .as_ref()
            .filter(|_| record.outcome == Outcome::Ok)?;
        Some(Cell { record, metrics })
    }

    /// Returns the parameters of the run.
    pub fn params(&self) -> &'a Params {
        &self.record.params
    }

    /// Returns the message size in bytes.
    pub fn size(&self) -> u64 {
        self.record.params.size_bytes.get()
    }

    /// Returns a quantity over the repetitions, or of the whole cell if there are none; `None` if it was not
    /// measured or is not finite.
    pub fn sample(&self, quantity: Quantity) -> Option<Spread> {
        if quantity == Quantity::Goodput {
            let median = self.of_whole(Quantity::Throughput)?;
            let range = self.sample(Quantity::Throughput)?;
            return Some(Spread { median, ..range });
        }
        let each: Option<Vec<f64>> = self
            .metrics
            .repetitions
            .iter()
            .map(|r| self.of_repetition(quantity, r))
            .collect();
        let each = match each {
            Some(each) if !each.is_empty() => each,
            _ => vec![self.of_whole(quantity)?],
        };
        let usable = |v: f64| v.is_finite() && v >= 0.0;
        Spread::of(&each).filter(|spread| usable(spread.min) && usable(spread.max))
    }

    fn of_repetition(&self, quantity: Quantity, r: &Repetition) -> Option<f64> {
        self.derive(
            quantity,
            r.one_way_ns,
            r.cpu_active.percent,
            r.cpu_passive.percent,
        )
    }

    fn of_whole(&self, quantity: Quantity) -> Option<f64> {
        match quantity {
            Quantity::Median => return self.metrics.one_way_ns.p50,
            Quantity::P99 => return self.metrics.one_way_ns.p99,
            _ => {}
        }
        let cpu = &self.metrics.cpu;
        let mean = self.metrics.one_way_ns.mean?;
        self.derive(quantity, mean, cpu.active.percent, cpu.passive.percent)
    }

    fn derive(
        &self,
        what: Quantity,
        ns: f64,
        active: Option<f64>,
        passive: Option<f64>,
    ) -> Option<f64> {
        match what {
            Quantity::OneWay => Some(ns),
            // The latencies of single messages are not recorded by repetition.
            Quantity::Median | Quantity::P99 => None,
            // Of other programs.
            Quantity::Latency
            | Quantity::LatencyP99
            | Quantity::RequestRate
            | Quantity::ConnectionRate
            | Quantity::ConnectionTime
            | Quantity::RegistrationTime
            | Quantity::Loss
            | Quantity::Ratio
            | Quantity::Share
            | Quantity::Count => None,
            Quantity::RoundTrip => Some(2.0 * ns),
            Quantity::MessageRate => Some(1e9 / self.record.shown_ns(ns)),
            Quantity::Throughput | Quantity::Goodput => {
                Some(self.size() as f64 * 1e9 / self.record.shown_ns(ns))
            }
            Quantity::Megabits => {
                let messages = self.record.program.messages_per_iter() as f64;
                Some(self.size() as f64 * 8e3 / (messages * ns))
            }
            Quantity::CpuActive => active,
            Quantity::CpuPassive => passive,
            Quantity::CpuActivePerRound => active.map(|percent| percent / 100.0 * 2.0 * ns),
        }
    }

    /// Returns the interval of the mean one-way time: its 95 % interval, or the range of the repetitions. A
    /// single repetition does not show the noise (`None`).
    fn one_way_interval(&self) -> Option<(f64, f64)> {
        let latency = &self.metrics.one_way_ns;
        if !self.record.has_noise() {
            return latency.mean.map(|mean| (mean, mean));
        }
        if self.metrics.repetitions.len() < 2 {
            return None;
        }
        if let (Some(mean), Some(half)) = (latency.mean, latency.ci95) {
            return Some((mean - half, mean + half));
        }
        self.sample(Quantity::OneWay).map(|s| (s.min, s.max))
    }
}

/// Comparison of the one-way times of two cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The first is faster.
    First,
    /// No difference beyond the noise.
    Tie,
    /// The second is faster.
    Second,
}

/// Differences below this share are not worth a sentence even where they are significant.
const RELEVANT: f64 = 0.02;

/// Compares the one-way times of two cells; `None` if the noise of one is unknown. A difference
/// counts if the medians differ by at least 2 % and the 95 % intervals do not overlap.
pub fn compare(first: Cell<'_>, second: Cell<'_>) -> Option<Verdict> {
    let (a, b) = (
        first.sample(Quantity::OneWay)?.median,
        second.sample(Quantity::OneWay)?.median,
    );
    let (x, y) = (first.one_way_interval()?, second.one_way_interval()?);
    Some(if (a - b).abs() < RELEVANT * a.min(b) {
        Verdict::Tie
    } else if x.1 < y.0 && a < b {
        Verdict::First
    } else if y.1 < x.0 && b < a {
        Verdict::Second
    } else {
        Verdict::Tie
    })
}

/// The newest record of each cell of each device for the same figures, in the order in which they
/// were first measured.
pub(crate) fn newest(records: &[PairRecord]) -> Vec<&PairRecord> {
    let mut place: BTreeMap<(&DeviceRef, &str, &[String]), usize> = BTreeMap::new();
    let mut newest: Vec<&PairRecord> = Vec::new();
    for record in records {
        let index = *place
            .entry((&record.device, &record.cell, &record.figures))
            .or_insert(newest.len());
        match newest.get_mut(index) {
            Some(older) => *older = record,
            None => newest.push(record),
        }
    }
    newest
}

/// Measured cells.
#[derive(Clone, Default)]
pub struct Cells<'a>(Vec<Cell<'a>>);

impl<'a> Cells<'a> {
    /// Returns the records that hold metrics.
    pub fn of(records: &[&'a PairRecord]) -> Self {
        Cells(records.iter().filter_map(|r| Cell::of(r)).collect())
    }

    /// Iterates over the cells.
    pub fn iter(&self) -> impl Iterator<Item = Cell<'a>> + '_ {
        self.0.iter().copied()
    }

    /// Returns the cells whose records are kept.
    pub fn filter(&self, keep: impl Fn(&PairRecord) -> bool) -> Self {
        Cells(self.iter().filter(|c| keep(c.record)).collect())
    }

    /// Returns these cells and others.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        Cells(self.iter().chain(others.iter()).collect())
    }

    /// Returns the cells that a figure shows.
    pub fn figure(&self, figure: &str) -> Self {
        self.filter(|r| r.figures.iter().any(|id| id == figure))
    }

    /// Returns the cells of a program.
    pub fn program(&self, program: Program) -> Self {
        self.filter(|r| r.program == program)
    }

    /// Returns the devices of the cells, sorted.
    pub fn devices(&self) -> Vec<&'a DeviceRef> {
        self.iter()
            .map(|c| &c.record.device)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// Cells by a key, such as their size; the newest of equal ones.
    pub fn by<K: Ord>(&self, key: impl Fn(Cell<'a>) -> K) -> BTreeMap<K, Cell<'a>> {
        self.iter().map(|cell| (key(cell), cell)).collect()
    }
}

/// Pairs of the cells that two maps have under the same key.
pub fn pairs<'a, K: Ord + Copy>(
    first: &BTreeMap<K, Cell<'a>>,
    second: &BTreeMap<K, Cell<'a>>,
) -> Vec<(K, Cell<'a>, Cell<'a>)> {
    first
        .iter()
        .filter_map(|(k, a)| second.get(k).map(|b| (*k, *a, *b)))
        .collect()
}
