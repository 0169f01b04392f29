//! Records outside the figures of a study: any program, over the parameters that its records differ in.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use adverb_results::{DeviceKind, DeviceRef, Outcome, PairRecord, Record, stats};
use maud::{Markup, html};
use serde_json::Value;

use crate::cells::Quantity;
use crate::figure::{Bar, Body, Extent, Lines, Origin, Panel, Point, Series, X, by_order, newest};
use crate::findings::EQUAL;
use crate::format;
use crate::matrix;
use crate::plot;

/// Records of one program, on one device or several.
pub(crate) struct Sweep<'a> {
    id: String,
    title: String,
    /// The devices, in the order of their first records.
    devices: Vec<&'a DeviceRef>,
    /// Parameters that differ between the records.
    swept: Vec<String>,
    /// The swept parameter on the horizontal axis.
    x: Option<String>,
    records: Vec<&'a Record>,
}

/// A metric by its path in a record, its value in each repetition, and how it is shown.
struct Shown {
    path: &'static str,
    repetition: &'static str,
    quantity: Quantity,
}

const fn shown(path: &'static str, repetition: &'static str, quantity: Quantity) -> Shown {
    Shown {
        path,
        repetition,
        quantity,
    }
}

impl Shown {
    /// Returns the metric as it is shown: the whole round trip if a round is a single request.
    fn of(&self, record: &Record) -> Option<f64> {
        Some(record.metric(self.path)? * self.rounds(record))
    }

    /// Returns how many times the value in the record is shown.
    fn rounds(&self, record: &Record) -> f64 {
        let is_half = matches!(self.quantity, Quantity::OneWay | Quantity::P99);
        if is_half && record.is_round_trip() {
            2.0
        } else {
            1.0
        }
    }
}

/// The metrics that are drawn and listed, of those that a record has.
const METRICS: [Shown; 17] = [
    shown("requests_per_s", "requests_per_s", Quantity::RequestRate),
    shown("latency_ns.mean", "latency_ns", Quantity::Latency),
    shown("latency_ns.p99", "", Quantity::LatencyP99),
    shown("client_cpu_percent", "", Quantity::CpuActive),
    shown("server_cpu_percent", "", Quantity::CpuPassive),
    shown("messages_per_s", "", Quantity::MessageRate),
    shown("bytes_per_s", "", Quantity::Throughput),
    shown("one_way_ns.mean", "one_way_ns", Quantity::OneWay),
    shown("one_way_ns.p99", "", Quantity::P99),
    shown("lost_percent", "", Quantity::Loss),
    shown("connections_per_s", "", Quantity::ConnectionRate),
    shown("active.connection_ns.p50", "", Quantity::ConnectionTime),
    shown("active.register_mr_ns.p50", "", Quantity::RegistrationTime),
    shown("cached_ns", "", Quantity::Latency),
    shown("memory_ns", "", Quantity::Latency),
    shown("read_bytes_per_s", "", Quantity::Throughput),
    shown("line_ns", "", Quantity::OneWay),
];

/// Parameters that a run chooses by itself, or that say where it ran: nothing is drawn over them.
const NOT_SWEPT: [&str; 7] = [
    "iters",
    "warmup_iters",
    "active_core",
    "passive_core",
    "active_numa_node",
    "passive_numa_node",
    "seed",
];

/// The sweeps of the records that no figure shows, in the order of their first records.
pub(crate) fn sweeps(records: &[Record]) -> Vec<Sweep<'_>> {
    let swept = records.iter().filter(|r| is_swept(r));
    grouped(swept, |a, b| a.program == b.program)
}

/// The records that figures show, in the same way, except `ping` and `blast`, which have a table of their own; of several
/// records of a cell the last one counts.
pub(crate) fn of_figures(records: &[Record]) -> Vec<Sweep<'_>> {
    let is_shown = |r: &&Record| !r.figures.is_empty() && PairRecord::of(r).is_none();
    let shown: Vec<&Record> = records.iter().filter(is_shown).collect();
    grouped(newest(&shown).into_iter(), |a, b| {
        a.program == b.program && a.device == b.device
    })
}

/// Groups records that belong together.
fn grouped<'a>(
    records: impl Iterator<Item = &'a Record>,
    belong: fn(&Record, &Record) -> bool,
) -> Vec<Sweep<'a>> {
    let mut groups: Vec<Vec<&Record>> = Vec::new();
    for record in records {
        let same = |group: &&mut Vec<&Record>| belong(group[0], record);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(record),
            None => groups.push(vec![record]),
        }
    }
    let numbered = groups.into_iter().enumerate();
    numbered.map(|(n, group)| Sweep::of(n, group)).collect()
}

/// No figure and no matrix shows it.
fn is_swept(record: &Record) -> bool {
    record.figures.is_empty() && !matrix::is_between_hosts(record)
}

impl<'a> Sweep<'a> {
    fn of(number: usize, records: Vec<&'a Record>) -> Self {
        let values = |name: &str| -> BTreeSet<String> {
            let each = records.iter().map(|r| r.params.get(name));
            each.map(|value| value.map_or_else(String::new, Value::to_string))
                .collect()
        };
        let params: Vec<_> = records.iter().map(|r| &r.params).collect();
        let mut swept = adverb_results::swept(&params);
        swept.retain(|name| !NOT_SWEPT.contains(&name.as_str()));
        let is_number = |name: &&String| {
            let mut all = records.iter().map(|r| r.params.get(name.as_str()));
            all.all(|value| value.and_then(Value::as_f64).is_some_and(|v| v > 0.0))
        };
        // The first of those with the most points.
        let numbers = swept.iter().filter(is_number).rev();
        let x = numbers.max_by_key(|name| values(name).len()).cloned();
        let mut devices: Vec<&DeviceRef> = Vec::new();
        for record in &records {
            if !devices.contains(&&record.device) {
                devices.push(&record.device);
            }
        }
        let names: Vec<String> = devices.iter().map(ToString::to_string).collect();
        Sweep {
            id: format!("sweep-{number}"),
            title: format!("{} on {}", records[0].program, format::and(&names)),
            devices,
            swept,
            x,
            records,
        }
    }

    fn metrics(&self) -> impl Iterator<Item = &'static Shown> + '_ {
        let has = |m: &&Shown| self.records.iter().any(|r| r.metric(m.path).is_some());
        METRICS.iter().filter(has)
    }

    /// What a metric is called: the same field is half of a round of a `ping`.
    fn name(&self, metric: &Shown) -> &'static str {
        match (metric.quantity, self.records[0].program.as_str()) {
            (Quantity::OneWay, "blast") => "time per message",
            (Quantity::OneWay, _) if self.records.iter().all(|r| r.is_round_trip()) => {
                Quantity::RoundTrip.name()
            }
            (Quantity::OneWay, _) if self.records.iter().any(|r| r.is_round_trip()) => {
                "one-way or round-trip time"
            }
            (Quantity::Latency, "nodes") if metric.path == "cached_ns" => {
                "load from last-level cache"
            }
            (Quantity::Latency, "nodes") => "load from memory",
            (Quantity::OneWay, "nodes") => "cache line between CPUs",
            (Quantity::CpuActive, _) => "CPU of a client",
            (Quantity::CpuPassive, _) => "CPU of the server",
            (quantity, _) => quantity.name(),
        }
    }

    /// A panel for each metric over the swept parameter, with a series for each combination of the others; bars if no number
    /// is swept.
    fn panels(&self) -> Vec<Panel> {
        let Some(x) = &self.x else {
            let bars = self.metrics().filter(|_| self.records.len() > 1);
            return bars.filter_map(|metric| self.bars(metric)).collect();
        };
        let panel = |metric: &Shown| Panel {
            device: None,
            title: format!("{} over {}", self.name(metric), in_words(x)),
            body: Body::Lines(Lines {
                metric: None,
                x: axis(x),
                x_name: Some(in_words(x)),
                y: metric.quantity,
                series: self.series(x, metric),
            }),
        };
        self.metrics().map(panel).collect()
    }

    /// A bar for each record.
    fn bars(&self, metric: &Shown) -> Option<Panel> {
        let bar = |record: &&Record| {
            let device = self.devices.iter().position(|own| **own == record.device);
            Some(Bar {
                name: self.words(record, self.swept.iter()),
                style: by_order(device.unwrap_or_default()),
                value: self.point(0.0, record, metric)?,
                parts: Vec::new(),
                published: Vec::new(),
            })
        };
        let bars: Vec<Bar> = self.records.iter().filter_map(bar).collect();
        (!bars.is_empty()).then(|| Panel {
            device: None,
            title: self.name(metric).to_owned(),
            body: Body::Bars {
                quantity: metric.quantity,
                bars,
            },
        })
    }

    /// Returns the device of a record, if there are several, and its values of parameters.
    fn words<'n>(&self, record: &Record, names: impl Iterator<Item = &'n String>) -> String {
        let device = Some(record.device.to_string()).filter(|_| self.devices.len() > 1);
        let words = names.map(|name| named(record, name));
        device
            .into_iter()
            .chain(words)
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn series(&self, x: &str, metric: &Shown) -> Vec<Series> {
        let mut all: Vec<Series> = Vec::new();
        for record in &self.records {
            let place = record.params.get(x).and_then(Value::as_f64);
            let Some(point) = place.and_then(|place| self.point(place, record, metric)) else {
                continue;
            };
            let name = self.words(
                record,
                self.swept.iter().filter(|name| !self.follows(name, x)),
            );
            match all.iter_mut().find(|s| s.name == name) {
                Some(series) => series.points.push(point),
                None => all.push(Series {
                    origin: Origin::Records,
                    short: name.clone(),
                    name,
                    style: by_order(all.len()),
                    points: vec![point],
                }),
            }
        }
        for series in &mut all {
            series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        all
    }

    /// Returns whether a parameter has the value of `x` in all records, as a number of machines that is the number of
    /// clients by default.
    fn follows(&self, name: &str, x: &str) -> bool {
        let mut all = self.records.iter().map(|r| &r.params);
        all.all(|params| params.get(name) == params.get(x))
    }

    fn point(&self, place: f64, record: &Record, metric: &Shown) -> Option<Point> {
        // Other metrics are drawn on logarithmic axes, which have no zero.
        let is_share = matches!(metric.quantity, Quantity::CpuActive | Quantity::CpuPassive);
        let value = metric.of(record).filter(|v| *v > 0.0 || is_share)?;
        let repetitions = record.repetitions(metric.repetition).into_iter();
        let repetitions: Vec<f64> = repetitions.map(|v| v * metric.rounds(record)).collect();
        let spread = stats::Spread::of(&repetitions);
        let (low, high) = spread.map_or((value, value), |s| (s.min.min(value), s.max.max(value)));
        let predicted = if record.device.kind == DeviceKind::Model {
            ", predicted"
        } else {
            ""
        };
        Some(Point {
            x: place,
            y: value,
            low,
            high,
            extent: Extent::Value,
            text: format!(
                "{}: {}{predicted}",
                self.words(record, self.swept.iter()),
                metric.quantity.show(value)
            ),
        })
    }

    /// What the sweep shows, in a sentence: the best point by the first metric.
    pub(crate) fn finding(&self) -> Option<String> {
        let (x, metric) = (self.x.as_ref()?, self.metrics().next()?);
        let value = |r: &&&Record| metric.of(r);
        let measured: Vec<&&Record> = self.records.iter().filter(|r| value(r).is_some()).collect();
        let by = |a: &&&Record, b: &&&Record| {
            let (a, b) = (value(a).unwrap_or(0.0), value(b).unwrap_or(0.0));
            a.total_cmp(&b)
        };
        let best = measured.iter().copied().max_by(|a, b| by(a, b))?;
        let most = metric.of(best)?;
        // The first point of the same series from which on more of `x` adds nothing.
        let others = || self.swept.iter().filter(|name| *name != x);
        let series = self.words(best, others());
        let place = |record: &Record| record.params.get(x.as_str()).and_then(Value::as_f64);
        let equal = measured.iter().copied().filter(|record| {
            self.words(record, others()) == series
                && place(record) < place(best)
                && metric.of(record).is_some_and(|value| value * EQUAL >= most)
        });
        let first = equal.min_by(|a, b| place(a).partial_cmp(&place(b)).unwrap_or(Ordering::Equal));
        let first = first.map_or_else(String::new, |record| {
            format!("; with {} it is equal within 2 %", named(record, x))
        });
        Some(format!(
            "{}: the highest {} is {} at {}, over {} values of {}{first}.",
            self.title,
            self.name(metric),
            metric.quantity.show(most),
            self.words(best, self.swept.iter()),
            self.points(),
            in_words(x),
        ))
    }

    fn points(&self) -> usize {
        let x = self.x.as_deref().unwrap_or_default();
        let values = self.records.iter().filter_map(|r| r.params.get(x));
        values.map(Value::to_string).collect::<BTreeSet<_>>().len()
    }

    /// The section of the page.
    pub(crate) fn section(&self) -> Markup {
        let panels = self.panels();
        html! {
            section class="figure" id=(self.id) {
                h2 { (self.title) }
                @if let Some(finding) = self.finding() { p class="about" { (finding) } }
                (plot::legend(&panels))
                div class="panels" { (plot::lines_of(&self.id, &panels)) }
                @if !panels.is_empty() { p class="readout" aria-live="polite" {} }
                (self.table())
            }
        }
    }

    pub(crate) fn link(&self) -> Markup {
        html! { a href={ "#" (self.id) } { (self.title) } }
    }

    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    /// Number of records.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// The parameters that differ and the metrics of each record; why it failed in place of these.
    pub(crate) fn table(&self) -> Markup {
        let device = Some("device").filter(|_| self.devices.len() > 1);
        let names = self.swept.iter().map(String::as_str);
        let names = device.into_iter().chain(names);
        let metrics: Vec<&Shown> = self.metrics().collect();
        let heads = names.chain(metrics.iter().map(|metric| self.name(metric)));
        html! {
            div class="scroll" tabindex="0" role="region" aria-label=(self.title) {
                table {
                    thead { tr { @for name in heads { th scope="col" { button type="button" { (name) } } } } }
                    tbody { @for record in &self.records { (self.row(record, &metrics)) } }
                }
            }
        }
    }

    fn row(&self, record: &Record, metrics: &[&Shown]) -> Markup {
        let reason = match &record.outcome {
            Outcome::Ok => None,
            Outcome::Failed { reason } => Some(reason),
        };
        html! {
            tr class=[reason.map(|_| "bad")] {
                @if self.devices.len() > 1 { td { (record.device) } }
                @for name in &self.swept {
                    @let number = record.params.get(name).and_then(Value::as_f64);
                    td class=[number.map(|_| "n")] data-v=[number] { (value_of(record, name)) }
                }
                @if let Some(reason) = reason {
                    td class="why" colspan=(metrics.len().max(1)) { (reason) }
                } @else {
                    @for metric in metrics {
                        @let value = metric.of(record);
                        td class="n" data-v=[value] { (value.map_or_else(|| "–".to_owned(), |v| metric.quantity.show(v))) }
                    }
                }
            }
        }
    }
}

/// Returns the axis of a parameter by the unit at the end of its name.
fn axis(name: &str) -> X {
    let has_unit = |unit| name.ends_with(unit);
    match () {
        () if has_unit("_bytes") => X::Size,
        () if has_unit("_ns") => X::Parameter(Quantity::Latency),
        () if has_unit("_per_s") => X::Parameter(Quantity::RequestRate),
        () if has_unit("_ratio") => X::Parameter(Quantity::Share),
        () => X::Parameter(Quantity::Count),
    }
}

/// Returns the name of a parameter on an axis: the unit is at the ticks.
fn in_words(name: &str) -> String {
    match name {
        "qps" => "queue pairs".to_owned(),
        "offered_per_s" => "offered requests per second".to_owned(),
        _ => without_unit(name).replace('_', " "),
    }
}

fn without_unit(name: &str) -> &str {
    let sizeless = name.strip_suffix("_bytes");
    sizeless.unwrap_or_else(|| format::without_unit(name))
}

/// `qps=2`, `offered=1.00 M/s`; a word alone: `write-send`.
fn named(record: &Record, name: &str) -> String {
    let value = value_of(record, name);
    match record.params.get(name) {
        Some(Value::String(_)) => value,
        _ => format!("{}={value}", without_unit(name)),
    }
}

fn value_of(record: &Record, name: &str) -> String {
    format::parameter(name, record.params.get(name)).unwrap_or_else(|| "–".to_owned())
}
