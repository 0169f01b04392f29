//! Panels over records of any program.

use std::collections::BTreeSet;

use adverb_results::{DeviceKind, DeviceRef, Outcome, Record};

use super::label::Looks;
use super::{
    Bar, Body, Extent, Figure, FigureSpec, Lines, Origin, Panel, Point, RecordPanel, RecordTable,
    Series, X, by_order,
};
use crate::cells::Quantity;
use crate::format;

/// A figure as far as these records show it; of several records of a cell the last one counts.
pub(super) fn build(
    spec: &'static FigureSpec,
    (panels, table): (&[RecordPanel], Option<RecordTable>),
    records: &[Record],
) -> Figure {
    let of_figure = |record: &&Record| record.figures.iter().any(|id| id == spec.id);
    let of_figure: Vec<&Record> = records.iter().filter(of_figure).collect();
    let measured: Vec<&Record> = of_figure.iter().copied().filter(|r| r.is_ok()).collect();
    let devices: BTreeSet<_> = measured.iter().map(|record| &record.device).collect();
    let several = devices.len() > 1;
    // A series looks the same in all panels.
    let mut looks = Looks::default();
    let drawn = panels.iter().map(|panel| match panel.x.0 {
        X::Bars => bars(panel, &measured, several),
        _ => lines(panel, &measured, several, &mut looks),
    });
    let mut panels: Vec<Panel> = drawn.flatten().collect();
    if let Some(table) = table.filter(|_| !measured.is_empty()) {
        panels.push(Panel {
            device: None,
            title: spec.name.to_owned(),
            body: Body::Table(table(&measured)),
        });
    }
    let failed = of_figure.iter().filter_map(|record| match &record.outcome {
        Outcome::Failed { reason } => Some((record.cell.clone(), reason.clone())),
        Outcome::Ok => None,
    });
    Figure {
        spec,
        panels,
        failed: failed.collect(),
    }
}

/// Returns the last record of each cell, in order.
pub(crate) fn newest<'r>(records: &[&'r Record]) -> Vec<&'r Record> {
    let is_newest = |(place, record): &(usize, &&Record)| {
        let is_same = |other: &&Record| other.cell == record.cell && other.device == record.device;
        !records[place + 1..].iter().any(is_same)
    };
    let newest = records.iter().enumerate().filter(is_newest);
    newest.map(|(_, record)| *record).collect()
}

/// Bars in the order of the records, those of one device together.
fn bars(spec: &RecordPanel, records: &[&Record], several: bool) -> Option<Panel> {
    let newest = newest(records).into_iter();
    let shown = newest.filter(|record| (spec.shows)(record));
    let mut shown: Vec<(&Record, Point)> = shown
        .filter_map(|record| Some((record, point(spec, record)?)))
        .collect();
    let mut devices: Vec<&DeviceRef> = Vec::new();
    for (record, _) in &shown {
        if !devices.contains(&&record.device) {
            devices.push(&record.device);
        }
    }
    let place = |record: &Record| devices.iter().position(|own| **own == record.device);
    shown.sort_by_key(|(record, _)| place(record));
    let bars: Vec<Bar> = shown
        .into_iter()
        .map(|(record, value)| Bar {
            name: label(spec, record, several),
            style: by_order(place(record).unwrap_or_default()),
            value,
            parts: parts(spec, record).unwrap_or_default(),
            published: Vec::new(),
        })
        .collect();
    (!bars.is_empty()).then(|| Panel {
        device: None,
        title: spec.title.to_owned(),
        body: Body::Bars {
            quantity: spec.y.1,
            bars,
        },
    })
}

/// Returns the name of a record's series, after its device if there are several.
fn label(spec: &RecordPanel, record: &Record, several: bool) -> String {
    let label = (spec.series)(record);
    match several {
        true => format!("{}: {label}", record.device),
        false => label,
    }
}

/// Lines over an axis.
fn lines(
    spec: &RecordPanel,
    records: &[&Record],
    several: bool,
    looks: &mut Looks,
) -> Option<Panel> {
    let (axis, _, name) = spec.x;
    let mut series: Vec<Series> = Vec::new();
    for record in records.iter().filter(|record| (spec.shows)(record)) {
        let Some(point) = point(spec, record) else {
            continue;
        };
        let label = label(spec, record, several);
        match series.iter_mut().find(|series| series.name == label) {
            Some(series) => {
                series.points.retain(|other| other.x != point.x);
                series.points.push(point);
            }
            None => series.push(Series {
                origin: Origin::Records,
                short: label.clone(),
                style: looks.of(&label, None),
                name: label,
                points: vec![point],
            }),
        }
    }
    for series in &mut series {
        series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    (!series.is_empty()).then(|| Panel {
        device: None,
        title: spec.title.to_owned(),
        body: Body::Lines(Lines {
            x: axis,
            x_name: Some(name.to_owned()),
            y: spec.y.1,
            metric: Some(spec.y.0),
            series,
        }),
    })
}

fn point(spec: &RecordPanel, record: &Record) -> Option<Point> {
    let (axis, path, _) = spec.x;
    let x = parameter(record, path)?;
    let quantity = spec.y.1;
    let y = spec.value(record).filter(|y| *y > 0.0)?;
    let place = match axis {
        X::Time => format::time(x),
        X::Size => format::size(x as u64),
        X::Share => Quantity::Share.show(x),
        X::Rate => format::rate(x),
        X::Bars => (spec.series)(record),
        _ => x.to_string(),
    };
    let predicted = match record.device.kind {
        DeviceKind::Model => ", predicted",
        _ => "",
    };
    Some(Point {
        x,
        y,
        low: y,
        high: y,
        extent: Extent::Value,
        text: format!("{place}: {}{predicted}", quantity.show(y)),
    })
}

impl RecordPanel {
    /// Returns the value of a record: its metric, or the sum of the parts of its bar.
    pub fn value(&self, record: &Record) -> Option<f64> {
        match self.parts {
            [] => record.metric(self.y.0),
            _ => Some(parts(self, record)?.iter().map(|(_, value)| value).sum()),
        }
    }
}

/// Returns the parts of a record's bar; `None` if the record lacks one.
fn parts(spec: &RecordPanel, record: &Record) -> Option<Vec<(&'static str, f64)>> {
    let part = |(name, metric): &(&'static str, &str)| {
        let value = record.metric(&format!("{}.{metric}", spec.y.0))?;
        Some((*name, value))
    };
    spec.parts.iter().map(part).collect()
}

/// Returns the parameter at a path such as `impairment.delay_ns`; 0 if the record does not have it, as for a path
/// without a delay.
fn parameter(record: &Record, path: &str) -> Option<f64> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let names = rest.split('.').filter(|name| !name.is_empty());
    let found = names.fold(record.params.get(first), |at, name| at?.get(name));
    found.map_or(Some(0.0), serde_json::Value::as_f64)
}
