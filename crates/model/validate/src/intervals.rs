//! Predictions as intervals: what follows from the values that the estimated parameters may have.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

use crate::json::Object;
use crate::published::Interval;
use crate::report::{Outcome, Report};
use crate::score::Tally;
use crate::text::{self, Table};
use crate::words::Unit;

/// The rows' predictions with the values of the presets, and with samples of their estimates.
#[derive(Clone, Debug)]
pub struct Intervals {
    report: Report,
    sampled: Vec<Report>,
}

/// A row with the interval of its predictions.
struct Predicted<'a> {
    outcome: &'a Outcome,
    interval: Interval,
    /// Whether the published interval has a point in common with it.
    meets: bool,
}

impl Intervals {
    pub(crate) fn new(report: Report, sampled: Vec<Report>) -> Self {
        Intervals { report, sampled }
    }

    /// The rows that count and have a published value and a prediction.
    fn predicted(&self) -> impl Iterator<Item = Predicted<'_>> {
        let outcomes = self.report.outcomes().iter().enumerate();
        outcomes.filter_map(|(n, outcome)| {
            let published = outcome
                .row()
                .filter(|_| outcome.entry().counts())?
                .published;
            published.value()?;
            let of_samples = self.sampled.iter().map(|report| &report.outcomes()[n]);
            let figures = of_samples.filter_map(Outcome::predicted);
            let first = outcome.predicted()?;
            let (lo, hi) = figures.fold((first, first), |(lo, hi), figure| {
                (lo.min(figure), hi.max(figure))
            });
            let theirs = published.interval();
            Some(Predicted {
                outcome,
                interval: Interval::new(lo, hi)?,
                meets: lo <= theirs.hi() && theirs.lo() <= hi,
            })
        })
    }

    /// Returns how many of the published values the intervals meet.
    pub fn met(&self) -> Tally {
        tally(self.predicted())
    }

    /// Lists the rows with their intervals, then how many published values those of each preset meet.
    pub fn text(&self) -> String {
        let mut rows = Table::new(&[
            "id",
            "preset",
            ">published",
            "lo..hi",
            ">predicted",
            "estimates",
            "meets",
        ]);
        let mut presets: BTreeMap<&str, Vec<Predicted<'_>>> = BTreeMap::new();
        for predicted in self.predicted() {
            let (outcome, labels) = (predicted.outcome, &predicted.outcome.entry().labels);
            let Some(row) = outcome.row() else { continue };
            let unit = row.quantity.unit();
            let figure = |value: Option<f64>| {
                value.map_or_else(String::new, |value| text::figure(value, unit))
            };
            rows.row(vec![
                labels.id.clone(),
                labels.preset.clone(),
                figure(row.published.value()),
                text::interval(row.published.interval(), unit),
                figure(outcome.predicted()),
                text::interval(predicted.interval, unit),
                if predicted.meets { "yes" } else { "no" }.to_owned(),
            ]);
            presets.entry(&labels.preset).or_default().push(predicted);
        }
        let mut totals = Table::new(&["intervals of", ">meet", ">width"]);
        totals.row(total("all rows", self.predicted()));
        for (preset, rows) in presets {
            totals.row(total(&format!("preset {preset}"), rows.into_iter()));
        }
        format!("{}\n{}", rows.text(), totals.text())
    }

    /// Writes the objects of [`Report::write_json`] with `predicted_lo`, `predicted_hi` and `meets`, of rows with a
    /// published value and a prediction.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn write_json(&self, mut out: impl io::Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line<'a> {
            #[serde(flatten)]
            row: Object<'a>,
            predicted_lo: f64,
            predicted_hi: f64,
            meets: bool,
        }
        for predicted in self.predicted() {
            let line = Line {
                row: Object::of(predicted.outcome),
                predicted_lo: predicted.interval.lo(),
                predicted_hi: predicted.interval.hi(),
                meets: predicted.meets,
            };
            serde_json::to_writer(&mut out, &line)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

fn tally<'a>(rows: impl Iterator<Item = Predicted<'a>>) -> Tally {
    rows.fold(Tally::default(), |tally, row| Tally {
        inside: tally.inside + usize::from(row.meets),
        of: tally.of + 1,
    })
}

/// How many of the rows' intervals meet the published one, and the median of their ends' ratio.
fn total<'a>(name: &str, rows: impl Iterator<Item = Predicted<'a>>) -> Vec<String> {
    let rows: Vec<_> = rows.collect();
    let mut widths: Vec<f64> = rows
        .iter()
        .map(|row| row.interval.hi() / row.interval.lo())
        .filter(|width| width.is_finite())
        .collect();
    widths.sort_by(f64::total_cmp);
    let width = widths.get(widths.len() / 2);
    let Tally { inside, of } = tally(rows.into_iter());
    vec![
        name.to_owned(),
        format!("{inside}/{of}"),
        width.map_or_else(String::new, |width| text::figure(*width, Unit::One)),
    ]
}
