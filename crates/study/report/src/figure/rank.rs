//! Rankings: one bar for each variant of a ping.

use adverb_results::{DeviceRef, PublishedPoint};

use super::{Bar, Body, Extent, Panel, Point, RankingSpec, label, published, spread_in_words};
use crate::cells::{Cell, Cells, Quantity};
use crate::format;

/// Returns the panels of a ranking.
pub(crate) fn panels(
    specs: &[RankingSpec],
    cells: &Cells<'_>,
    device: Option<&DeviceRef>,
    published: &[&PublishedPoint],
) -> Vec<Panel> {
    let panel = |spec: &RankingSpec| {
        let quantity = spec.quantity;
        let bars = bars(&cells.filter(spec.shows), quantity, published);
        (!bars.is_empty()).then(|| Panel {
            device: device.map(ToString::to_string),
            title: spec.title.to_owned(),
            body: Body::Bars { quantity, bars },
        })
    };
    specs.iter().filter_map(panel).collect()
}

/// Returns the name of a variant of a ping: `SEND (inline, busy polling)`.
pub fn variant(cell: Cell<'_>) -> String {
    let params = cell.params();
    let mut words = format::attributes(cell.record.program, params);
    words.push(label::completion(params.completion));
    let operation = format::opcode(cell.record.program, params.op);
    format!("{operation} ({})", words.join(", "))
}

/// Returns the cells of [`chosen_size`] with a quantity, lowest first, each variant once.
pub fn ranked<'a>(cells: &Cells<'a>, quantity: Quantity) -> Vec<(Cell<'a>, f64)> {
    let size = chosen_size(cells);
    let variants = cells
        .filter(|r| Some(r.params.size_bytes.get()) == size)
        .by(variant);
    let mut ranked: Vec<(Cell<'a>, f64)> = variants
        .into_values()
        .filter_map(|cell| cell.sample(quantity).map(|s| (cell, s.median)))
        .collect();
    ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
    ranked
}

/// Returns the size of the compared messages: 64 B, or the smallest size of these cells if there is no 64 B.
pub fn chosen_size(cells: &Cells<'_>) -> Option<u64> {
    cells
        .iter()
        .map(|c| c.size())
        .min_by_key(|size| (*size != 64, *size))
}

fn bars(cells: &Cells<'_>, quantity: Quantity, points: &[&PublishedPoint]) -> Vec<Bar> {
    let bar = |(cell, _): (Cell<'_>, f64)| {
        let sample = cell.sample(quantity)?;
        let name = variant(cell);
        let text = format!(
            "{name}, {}: {}",
            format::size(cell.size()),
            spread_in_words(quantity, cell)
        );
        let value = Point {
            x: 0.0,
            y: sample.median,
            low: sample.min,
            high: sample.max,
            extent: Extent::Value,
            text,
        };
        Some(Bar {
            name,
            style: label::of_operation(cell.record),
            value,
            parts: Vec::new(),
            published: published::marks(cell.record, quantity, points),
        })
    };
    ranked(cells, quantity)
        .into_iter()
        .filter_map(bar)
        .collect()
}
