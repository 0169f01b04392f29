//! Published values as marks next to the series of the same cells.

use std::collections::BTreeMap;

use adverb_results::{
    DeviceKind, DeviceRef, PairRecord, Params, PublishedPoint, PublishedQuantity,
};

use super::{Extent, Mark, Origin, PanelSpec, Point, Series, Style, X};
use crate::cells::{Cells, Quantity};
use crate::format;

/// The cross, which no series of records of one operation has.
const MARKER: u8 = 5;

/// Returns the style of a published value next to a record: the record's colour, with a hollow cross.
pub(crate) fn look(of: Style) -> Style {
    Style {
        marker: MARKER,
        hollow: true,
        ..of
    }
}

/// Returns whether a point was published of the hardware that a device represents.
pub(super) fn is_of(point: &PublishedPoint, device: &DeviceRef) -> bool {
    device.kind == DeviceKind::Model && device.name == point.preset
}

/// The marks of a panel: a series for each source and for each series of records that they belong to,
/// in its colour.
pub(super) fn series(
    spec: &PanelSpec,
    cells: &Cells<'_>,
    published: &[&PublishedPoint],
    drawn: &[Series],
) -> Vec<Series> {
    let mut groups: BTreeMap<(usize, &str), Vec<Point>> = BTreeMap::new();
    for point in published {
        let Some(cell) = cells
            .iter()
            .find(|cell| is_at(point, cell.record, Some(spec.x)))
        else {
            continue;
        };
        let name = (spec.series)(cell.record).name;
        let line = drawn.iter().position(|series| series.name == name);
        if let (Some(line), Some(mark)) = (line, on_line(point, spec)) {
            groups.entry((line, &point.source)).or_default().push(mark);
        }
    }
    let series = groups.into_iter().map(|((line, source), mut points)| {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let of = &drawn[line];
        Series {
            origin: Origin::Published,
            name: format!("{}, published: {source}", of.name),
            short: String::new(),
            style: look(of.style),
            points,
        }
    });
    series.collect()
}

/// Returns the marks next to a record's own bar.
pub(super) fn marks(
    record: &PairRecord,
    quantity: Quantity,
    published: &[&PublishedPoint],
) -> Vec<Mark> {
    let of_cell = published.iter().filter(|p| is_at(p, record, None));
    let marks = of_cell.filter_map(|p| {
        Some(Mark {
            source: p.source.clone(),
            value: mark(p, quantity, (0.0, &format::size(p.params.size_bytes.get())))?,
        })
    });
    marks.collect()
}

/// Returns whether a point is of a record's cell, or, with an axis, on the line that the cell is on: then all
/// parameters except the axis' own are equal.
fn is_at(point: &PublishedPoint, record: &PairRecord, axis: Option<X>) -> bool {
    let all_but_x = |params: &Params| {
        let size = (!matches!(axis, Some(X::Size))).then_some(params.size_bytes);
        let buffers = (!matches!(axis, Some(X::Buffers))).then_some(params.buffers);
        let how = (params.completion, params.post, params.signal, params.rate);
        (params.op, params.inline, how, size, buffers, params.verify)
    };
    point.program == record.program && all_but_x(&point.params) == all_but_x(&record.params)
}

fn on_line(point: &PublishedPoint, spec: &PanelSpec) -> Option<Point> {
    let params = &point.params;
    let (x, place) = match spec.x {
        X::Size => (
            params.size_bytes.get(),
            format::size(params.size_bytes.get()),
        ),
        X::Buffers => (params.buffers.into(), format::buffers(params.buffers)),
        // No such values were published.
        _ => return None,
    };
    mark(point, spec.y, (x as f64, &place))
}

/// Converts a point to another quantity, at a place that has a name; `None` if it cannot be converted.
fn mark(point: &PublishedPoint, into: Quantity, (x, place): (f64, &str)) -> Option<Point> {
    let convert = conversion(point, into)?;
    let (low, high) = (convert(point.low), convert(point.high));
    let (low, high) = (low.min(high), low.max(high));
    let value = point.value.map(&convert);
    let is_drawn = |v: f64| v.is_finite() && v >= 0.0;
    if !(is_drawn(low) && is_drawn(high)) {
        return None;
    }
    let range = format!("{} to {}", into.show(low), into.show(high));
    let words = match value {
        Some(value) => format!("{} ({range})", into.show(value)),
        None => range,
    };
    Some(Point {
        x,
        y: value.unwrap_or(f64::midpoint(low, high)),
        low,
        high,
        extent: if value.is_some() {
            Extent::Value
        } else {
            Extent::Range
        },
        text: format!("{place}: {words}, as published ({})", point.id),
    })
}

/// Returns the conversion of a published value to a panel's quantity; `None` if there is none.
fn conversion(point: &PublishedPoint, into: Quantity) -> Option<impl Fn(f64) -> f64 + use<>> {
    let size = point.params.size_bytes.get() as f64;
    let messages = point.program.messages_per_iter() as f64;
    let known = match point.quantity {
        PublishedQuantity::OneWay => matches!(
            into,
            Quantity::OneWay
                | Quantity::RoundTrip
                | Quantity::MessageRate
                | Quantity::Throughput
                | Quantity::Megabits
        ),
        PublishedQuantity::CpuActive => into == Quantity::CpuActive,
        PublishedQuantity::CpuPassive => into == Quantity::CpuPassive,
        PublishedQuantity::CpuActivePerRound => into == Quantity::CpuActivePerRound,
    };
    known.then_some(move |figure: f64| match into {
        Quantity::RoundTrip => 2.0 * figure,
        Quantity::MessageRate => 1e9 / figure,
        Quantity::Throughput => size * 1e9 / figure,
        Quantity::Megabits => size * 8e3 / (messages * figure),
        _ => figure,
    })
}
