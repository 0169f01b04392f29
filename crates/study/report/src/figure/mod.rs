//! From records to what a figure shows: panels with axes and series, or bars. No drawing here.

mod devices;
pub mod label;
mod latency;
mod published;
mod rank;
mod records;
mod spec;

use std::collections::BTreeMap;
use std::fmt;

use adverb_results::{DeviceKind, DeviceRef, Outcome, PairRecord, PublishedPoint, Record};

use crate::cells::{Cell, Cells, Quantity};
use crate::format;
pub(crate) use label::by_order;
use label::{Label, Looks};
pub(crate) use published::look;
pub use rank::{chosen_size, ranked, variant};
pub(crate) use records::newest;
pub use spec::{FigureSpec, PanelSpec, Plots, RankingSpec, RecordPanel, RecordTable, Table, X};

/// What one figure shows.
pub(crate) struct Figure {
    pub(crate) spec: &'static FigureSpec,
    pub(crate) panels: Vec<Panel>,
    /// Cells of this figure that failed: name and reason.
    pub(crate) failed: Vec<(String, String)>,
}

/// One plot.
pub(crate) struct Panel {
    /// The device that it shows, where the figure shows several, each in plots of its own.
    pub(crate) device: Option<String>,
    pub(crate) title: String,
    pub(crate) body: Body,
}

/// Lines over an axis, or bars.
pub(crate) enum Body {
    Lines(Lines),
    Bars { quantity: Quantity, bars: Vec<Bar> },
    Table(Table),
}

/// Series over an axis.
pub(crate) struct Lines {
    pub(crate) x: X,
    /// Name of the axis, if it is not the usual name of its kind.
    pub(crate) x_name: Option<String>,
    pub(crate) y: Quantity,
    /// The metric, where panels show several of one quantity: each has an axis of its own.
    pub(crate) metric: Option<&'static str>,
    pub(crate) series: Vec<Series>,
}

/// How a series is drawn. Numbers name CSS classes and marker shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) color: u8,
    pub(crate) marker: u8,
    pub(crate) dash: u8,
    pub(crate) hollow: bool,
}

/// What a series is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Records: points on a line.
    Records,
    /// Publications: marks without a line.
    Published,
}

/// One line with its points, in the order of x.
pub(crate) struct Series {
    pub(crate) origin: Origin,
    pub(crate) name: String,
    /// Written at the line's end, if there is room.
    pub(crate) short: String,
    pub(crate) style: Style,
    pub(crate) points: Vec<Point>,
}

/// A value with its spread, and what a reader sees on hovering.
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Whether there is a value, or only a range that contains it.
    pub(crate) extent: Extent,
    pub(crate) text: String,
}

/// What is known of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// A value.
    Value,
    /// No value: bounds.
    Range,
}

/// One bar of a ranking.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) style: Style,
    pub(crate) value: Point,
    /// Parts with their names, from left to right; none if it is of one piece.
    pub(crate) parts: Vec<(&'static str, f64)>,
    /// What others published of the same.
    pub(crate) published: Vec<Mark>,
}

/// A published value next to a bar.
pub(crate) struct Mark {
    /// Paper or repository.
    pub(crate) source: String,
    pub(crate) value: Point,
}

impl Figure {
    /// The figure as far as these records show it.
    pub(crate) fn build(
        spec: &'static FigureSpec,
        records: &[&PairRecord],
        published: &[PublishedPoint],
        others: &[Record],
    ) -> Self {
        if let Plots::Records(specs, table) = spec.plots {
            return records::build(spec, (specs, table), others);
        }
        if let Plots::Devices(specs) = spec.plots {
            return Figure {
                spec,
                panels: devices::panels(specs, &Cells::of(records)),
                failed: Vec::new(),
            };
        }
        let cells = Cells::of(records).figure(spec.id);
        let devices = cells.devices();
        let several = devices.len() > 1;
        let (mut panels, mut looks) = (Vec::new(), Looks::default());
        for device in devices {
            let of_device = cells.filter(|r| r.device == *device);
            let named = several.then_some(device);
            let published: Vec<&PublishedPoint> = published
                .iter()
                .filter(|point| published::is_of(point, device))
                .collect();
            panels.extend(match spec.plots {
                Plots::Rankings(specs) => rank::panels(specs, &of_device, named, &published),
                Plots::Table(rows) => vec![Panel {
                    device: named.map(ToString::to_string),
                    title: spec.name.to_owned(),
                    body: Body::Table(rows(&of_device)),
                }],
                Plots::Distribution => latency::panels(&of_device, named),
                Plots::Records(..) => Vec::new(),
                Plots::Lines(specs) | Plots::Devices(specs) => {
                    let panel = |spec| line_panel(spec, &of_device, named, &published, &mut looks);
                    specs.iter().filter_map(panel).collect()
                }
            });
        }
        Figure {
            spec,
            panels,
            failed: failures(spec.id, records),
        }
    }

    /// Whether there is anything to show: a plot, or why there is none.
    pub(crate) fn is_shown(&self) -> bool {
        !self.panels.is_empty() || !self.failed.is_empty()
    }

    /// Returns whether any of its panels has published values.
    pub(crate) fn has_published(&self) -> bool {
        self.panels.iter().any(Panel::has_published)
    }

    /// Returns which series are drawn over one another, with the panels: `busy polling: SEND = WRITE_IMM (2a, 2b)`. What the
    /// names of a group have in common is before them.
    pub(crate) fn hidden(&self) -> Vec<String> {
        let is_lines = |panel: &&Panel| matches!(panel.body, Body::Lines(_));
        let drawn = self.panels.iter().filter(is_lines).count();
        let mut groups: Vec<(Coinciding, Vec<&Panel>)> = Vec::new();
        for panel in &self.panels {
            let Body::Lines(lines) = &panel.body else {
                continue;
            };
            for names in lines.coinciding() {
                let group = Coinciding::of(&names);
                match groups.iter_mut().find(|(known, _)| *known == group) {
                    Some((_, panels)) => panels.push(panel),
                    None => groups.push((group, vec![panel])),
                }
            }
        }
        let mut merged: Vec<(Coinciding, String)> = Vec::new();
        for (group, panels) in groups {
            let panels = match panels.len() {
                _ if drawn == 1 => String::new(),
                n if n == drawn => " (all panels)".to_owned(),
                _ => format!(" ({})", tags(&panels)),
            };
            let is_alike = |(other, places): &&mut (Coinciding, String)| {
                other.names == group.names && *places == panels
            };
            match merged.iter_mut().find(is_alike) {
                Some((other, _)) => other.common.extend(group.common),
                None => merged.push((group, panels)),
            }
        }
        let merged = merged.into_iter();
        merged
            .map(|(group, panels)| format!("{group}{panels}"))
            .collect()
    }
}

/// `2a, 2b`; of several devices `model:cx3: 2a, 2b; model:cx: 2a`.
fn tags(panels: &[&Panel]) -> String {
    let of_devices = panels.chunk_by(|a, b| a.device == b.device).map(|panels| {
        let tags: Vec<&str> = panels.iter().map(|panel| panel.tag()).collect();
        panels[0].named(&tags.join(", "))
    });
    of_devices.collect::<Vec<_>>().join("; ")
}

/// Series that are drawn over one another.
#[derive(PartialEq, Eq)]
struct Coinciding {
    /// What each name has of its own.
    names: Vec<String>,
    /// What all names have in common; several if these names coincide with each of them.
    common: Vec<String>,
}

impl Coinciding {
    fn of(names: &[&str]) -> Self {
        let words: Vec<Vec<&str>> = names.iter().map(|n| n.split(", ").collect()).collect();
        let is_common = |word: &&&str| words.iter().all(|own| own.contains(*word));
        let common: Vec<&str> = words[0].iter().filter(is_common).copied().collect();
        let own = words.iter().map(|all| {
            let own = all.iter().filter(|word| !common.contains(*word));
            own.copied().collect::<Vec<_>>().join(", ")
        });
        let own: Vec<String> = own.collect();
        // A name without anything of its own is whole.
        match common.is_empty() || own.iter().any(String::is_empty) {
            true => Coinciding {
                names: names.iter().map(ToString::to_string).collect(),
                common: Vec::new(),
            },
            false => Coinciding {
                names: own,
                common: vec![common.join(", ")],
            },
        }
    }
}

impl fmt::Display for Coinciding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.common.is_empty() {
            write!(f, "{}: ", self.common.join(" / "))?;
        }
        f.write_str(&self.names.join(" = "))
    }
}

/// Longest start of a title that names a panel: `what-if 7a`.
const LONGEST_TAG: usize = 12;
/// Lines whose points differ by less than this share look like one.
const SAME_LINE: f64 = 0.005;

impl Lines {
    /// Returns the names of series that coincide, in groups.
    fn coinciding(&self) -> Vec<Vec<&str>> {
        let mut groups: Vec<Vec<&Series>> = Vec::new();
        let measured = self.series.iter().filter(|s| s.origin == Origin::Records);
        for series in measured {
            match groups
                .iter_mut()
                .find(|group| group[0].coincides_with(series))
            {
                Some(group) => group.push(series),
                None => groups.push(vec![series]),
            }
        }
        let several = groups.iter().filter(|group| group.len() > 1);
        several
            .map(|group| group.iter().map(|s| s.name.as_str()).collect())
            .collect()
    }
}

impl Series {
    fn coincides_with(&self, other: &Series) -> bool {
        let same =
            |(a, b): (&Point, &Point)| a.x == b.x && (a.y - b.y).abs() <= SAME_LINE * a.y.max(b.y);
        let (mine, theirs) = (&self.points, &other.points);
        mine.len() == theirs.len() && mine.iter().zip(theirs).all(same)
    }
}

impl Panel {
    /// Its title, behind the device's name where there are several.
    pub(crate) fn full_title(&self) -> String {
        self.named(&self.title)
    }

    /// The start of its title if that names it, such as `2a`; else its title.
    fn tag(&self) -> &str {
        let (tag, _) = self.title.split_once(": ").unwrap_or((&self.title, ""));
        match tag.len() <= LONGEST_TAG {
            true => tag,
            false => &self.title,
        }
    }

    /// A text about it, so too.
    pub(crate) fn named(&self, text: &str) -> String {
        let device = self.device.as_ref();
        device.map_or_else(|| text.to_owned(), |device| format!("{device}: {text}"))
    }

    /// Returns whether it has published values.
    fn has_published(&self) -> bool {
        match &self.body {
            Body::Lines(lines) => lines.series.iter().any(|s| s.origin == Origin::Published),
            Body::Bars { bars, .. } => bars.iter().any(|bar| !bar.published.is_empty()),
            Body::Table(_) => false,
        }
    }
}

fn failures(id: &str, records: &[&PairRecord]) -> Vec<(String, String)> {
    let mut failed = Vec::new();
    for record in records.iter().filter(|r| r.figures.iter().any(|f| f == id)) {
        match &record.outcome {
            Outcome::Failed { reason } => {
                let reason = if reason.is_empty() {
                    "no reason given"
                } else {
                    reason
                };
                failed.push((record.cell.clone(), reason.to_owned()));
            }
            Outcome::Ok if record.metrics.is_none() => {
                failed.push((
                    record.cell.clone(),
                    "the record holds no figures".to_owned(),
                ));
            }
            Outcome::Ok => {}
        }
    }
    failed
}

fn line_panel(
    spec: &PanelSpec,
    cells: &Cells<'_>,
    device: Option<&DeviceRef>,
    published: &[&PublishedPoint],
    looks: &mut Looks,
) -> Option<Panel> {
    let cells = &cells.filter(spec.shows);
    let mut groups: BTreeMap<(u64, String), (Label, Vec<Point>)> = BTreeMap::new();
    for cell in cells.iter() {
        let Some(point) = point(spec, cell) else {
            continue;
        };
        let label = (spec.series)(cell.record);
        let key = (label.order, label.name.clone());
        groups
            .entry(key)
            .or_insert_with(|| (label, Vec::new()))
            .1
            .push(point);
    }
    let mut series: Vec<Series> = groups
        .into_values()
        .map(|(label, mut points)| {
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            Series {
                origin: Origin::Records,
                style: looks.of(&label.name, label.style),
                name: label.name,
                short: label.short,
                points,
            }
        })
        .collect();
    let marks = published::series(spec, cells, published, &series);
    series.extend(marks);
    (!series.is_empty()).then(|| Panel {
        device: device.map(ToString::to_string),
        title: spec.title.to_owned(),
        body: Body::Lines(Lines {
            x: spec.x,
            x_name: None,
            y: spec.y,
            metric: None,
            series,
        }),
    })
}

fn point(spec: &PanelSpec, cell: Cell<'_>) -> Option<Point> {
    let sample = cell.sample(spec.y)?;
    // Times and rates are drawn on logarithmic axes, which have no zero.
    let on_log_axis = !matches!(spec.y, Quantity::CpuActive | Quantity::CpuPassive);
    if on_log_axis && sample.min <= 0.0 {
        return None;
    }
    let (x, place) = match spec.x {
        X::Size => (cell.size() as f64, format::size(cell.size())),
        X::Buffers => (
            f64::from(cell.params().buffers),
            format::buffers(cell.params().buffers),
        ),
        X::Loss => {
            let loss = cell.params().impairment?.loss;
            (loss.get(), format!("loss {loss}"))
        }
        X::Queue => {
            let queue = cell.params().impairment?.queue?;
            (f64::from(queue), format!("queue of {queue} packets"))
        }
        _ => return None,
    };
    (x > 0.0 || matches!(spec.x, X::Loss)).then(|| Point {
        x,
        y: sample.median,
        low: sample.min,
        high: sample.max,
        extent: Extent::Value,
        text: format!(
            "{place}: {}{}",
            spread_in_words(spec.y, cell),
            also(spec.y, cell)
        ),
    })
}

/// Returns the same in the other unit or statistic: bytes per second after Mb/s, the median of single messages
/// after their mean.
fn also(quantity: Quantity, cell: Cell<'_>) -> String {
    let median = |of| cell.sample(of).map(|sample| sample.median);
    match quantity {
        Quantity::Megabits => median(Quantity::Throughput)
            .map(|rate| format!("; {}", format::throughput(rate)))
            .unwrap_or_default(),
        Quantity::OneWay => median(Quantity::Median)
            .map(|ns| format!("; median of single messages {}", format::time(ns)))
            .unwrap_or_default(),
        _ => String::new(),
    }
}

/// `1.20 µs (1.18 µs to 1.30 µs in 5 repetitions)`.
pub(crate) fn spread_in_words(quantity: Quantity, cell: Cell<'_>) -> String {
    let Some(sample) = cell.sample(quantity) else {
        return String::new();
    };
    let median = quantity.show(sample.median);
    match cell.metrics.repetitions.len() {
        _ if matches!(quantity, Quantity::Median | Quantity::P99) => median,
        _ if cell.record.device.kind == DeviceKind::Model => format!("{median}, predicted"),
        0 | 1 => median,
        n => format!(
            "{median} ({} to {} in {n} repetitions)",
            quantity.show(sample.min),
            quantity.show(sample.max)
        ),
    }
}
