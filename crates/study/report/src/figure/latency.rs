//! Latency distributions, out of the records' histograms.

use std::collections::BTreeSet;

use adverb_results::{Completion, DeviceRef, LatencyRecorder};

use super::{Body, Extent, Lines, Origin, Panel, Point, Series, X, label, rank};
use crate::cells::{Cell, Cells, Quantity};
use crate::format;

/// Percentiles that are drawn, if enough samples are beyond them.
const PERCENTILES: [f64; 15] = [
    1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99,
];

/// Samples that must be beyond a percentile for it to be drawn.
const BEYOND: f64 = 5.0;

/// One panel for each way of learning of completions.
pub(crate) fn panels(cells: &Cells<'_>, device: Option<&DeviceRef>) -> Vec<Panel> {
    let panel = |completion: Completion| {
        let of_completion = cells.filter(|r| r.params.completion == completion);
        let ranked = rank::ranked(&of_completion, Quantity::OneWay);
        let series: Vec<Series> = ranked
            .into_iter()
            .filter_map(|(cell, _)| series(cell))
            .collect();
        let title = format!(
            "One-way time by percentile, {}",
            label::completion(completion)
        );
        let body = Body::Lines(Lines {
            metric: None,
            x: X::Percentile,
            x_name: None,
            y: Quantity::OneWay,
            series,
        });
        Panel {
            device: device.map(ToString::to_string),
            title,
            body,
        }
    };
    let filled = |p: &Panel| matches!(&p.body, Body::Lines(lines) if !lines.series.is_empty());
    let ways: BTreeSet<Completion> = cells.iter().map(|cell| cell.params().completion).collect();
    ways.into_iter().map(panel).filter(filled).collect()
}

fn series(cell: Cell<'_>) -> Option<Series> {
    // A cell with a damaged histogram has no line; its other metrics are in the table.
    let recorder = LatencyRecorder::from_histogram(cell.metrics.histogram.as_ref()?).ok()?;
    let samples = recorder.len() as f64;
    let points: Vec<Point> = PERCENTILES
        .iter()
        .filter(|p| samples * (1.0 - *p / 100.0) >= BEYOND)
        .filter_map(|p| {
            let ns = recorder.quantile_ns(p / 100.0).filter(|ns| *ns > 0.0)?;
            let text = format!(
                "{p} % of {samples} messages took at most {}",
                format::time(ns)
            );
            Some(Point {
                x: -(1.0 - p / 100.0).log10(),
                y: ns,
                low: ns,
                high: ns,
                extent: Extent::Value,
                text,
            })
        })
        .collect();
    let label = label::by_operation(cell.record);
    let style = label::of_operation(cell.record);
    (!points.is_empty()).then_some(Series {
        origin: Origin::Records,
        name: label.name,
        short: label.short,
        style,
        points,
    })
}
