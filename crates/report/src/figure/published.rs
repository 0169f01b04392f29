//! Published values as marks beside the series of the cells that they are of.

use std::collections::BTreeMap;

use adverb_results::{DeviceKind, DeviceRef, Params, PublishedPoint, PublishedQuantity, Record};

use super::table::{PanelSpec, X};
use super::{Extent, Origin, Point, Series, Style, prefixed};
use crate::cells::{Cells, Quantity};
use crate::format;

/// The cross, which no series of records of one operation has.
const MARKER: u8 = 5;

/// Whether a point is of the hardware that a device stands for.
pub(super) fn is_of(point: &PublishedPoint, device: &DeviceRef) -> bool {
    device.kind == DeviceKind::Model && device.name == point.preset
}

/// The marks of a panel: a series for each source and for each series of records that they belong to,
/// in its colour.
pub(super) fn series(
    spec: &PanelSpec,
    cells: &Cells<'_>,
    device: Option<&DeviceRef>,
    published: &[&PublishedPoint],
    drawn: &[Series],
) -> Vec<Series> {
    let mut groups: BTreeMap<(usize, &str), Vec<Point>> = BTreeMap::new();
    for point in published {
        let Some(cell) = cells
            .iter()
            .find(|cell| continues(point, cell.record, spec.x))
        else {
            continue;
        };
        let name = prefixed(device, &(spec.series)(cell.record).name);
        let line = drawn.iter().position(|series| series.name == name);
        if let (Some(line), Some(mark)) = (line, mark(point, spec)) {
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
            style: Style {
                marker: MARKER,
                hollow: true,
                ..of.style
            },
            points,
        }
    });
    series.collect()
}

/// Whether a point lies on the line that a record's cell is on: all but what the axis shows is equal.
fn continues(point: &PublishedPoint, record: &Record, x: X) -> bool {
    let all_but_x = |params: &Params| {
        let (size, buffers) = match x {
            X::Size => (None, Some(params.buffers)),
            X::Buffers => (Some(params.size_bytes), None),
        };
        let how = (params.completion, params.post, params.signal);
        (params.op, params.inline, how, size, buffers, params.verify)
    };
    point.program == record.program && all_but_x(&point.params) == all_but_x(&record.params)
}

fn mark(point: &PublishedPoint, spec: &PanelSpec) -> Option<Point> {
    let convert = conversion(point, spec.y)?;
    let (low, high) = (convert(point.low), convert(point.high));
    let (low, high) = (low.min(high), low.max(high));
    let value = point.value.map(&convert);
    let is_drawn = |v: f64| v.is_finite() && v >= 0.0;
    if !(is_drawn(low) && is_drawn(high)) {
        return None;
    }
    let params = &point.params;
    let (x, place) = match spec.x {
        X::Size => (
            params.size_bytes.get(),
            format::size(params.size_bytes.get()),
        ),
        X::Buffers => (params.buffers.into(), format::buffers(params.buffers)),
    };
    let range = format!("{} to {}", spec.y.show(low), spec.y.show(high));
    let words = match value {
        Some(value) => format!("{} ({range})", spec.y.show(value)),
        None => range,
    };
    Some(Point {
        x: x as f64,
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

/// How a published figure becomes one of a panel's quantity; none where it does not.
fn conversion(point: &PublishedPoint, into: Quantity) -> Option<impl Fn(f64) -> f64 + use<>> {
    let size = point.params.size_bytes.get() as f64;
    let known = match point.quantity {
        PublishedQuantity::OneWay => matches!(
            into,
            Quantity::OneWay | Quantity::RoundTrip | Quantity::MessageRate | Quantity::Throughput
        ),
        PublishedQuantity::CpuActive => into == Quantity::CpuActive,
        PublishedQuantity::CpuPassive => into == Quantity::CpuPassive,
    };
    known.then_some(move |figure: f64| match into {
        Quantity::RoundTrip => 2.0 * figure,
        Quantity::MessageRate => 1e9 / figure,
        Quantity::Throughput => size * 1e9 / figure,
        _ => figure,
    })
}
