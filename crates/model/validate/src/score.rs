//! Scores: how well predictions agree with published values.
//!
//! A row's error is 0 inside `lo..hi`, else |ln(prediction / nearest end)|, so 0.10 is about 10 %. Errors
//! are averaged per curve, then over curves, because some curves have many points. A curve is a label and a
//! preset: `Fig3a` of two NICs are two curves.
//!
//! * Bounds and orderings (no published value) are counted as inside or not, and not averaged.
//! * Rows of grade 0 are ignored.
//! * Rows without prediction have no error. They are counted as missing, because means over different rows
//!   are not comparable.

use std::collections::BTreeMap;

use crate::data::Entry;
use crate::published::Interval;
use crate::report::{Outcome, Report};

/// The largest error, ln 100. Larger errors are clamped to it.
///
/// It is also the error of a prediction whose logarithm does not exist: one of the wrong sign, or 0. So means
/// stay finite, and nothing is worse than a wrong sign.
pub const WORST_ERROR: f64 = 4.605_170_185_988_092;

/// Largest ratio that counts as close: 3 %, the requirement for calibrated rows.
const CLOSE: f64 = 1.03;

/// The error of a prediction: 0 inside the interval, else |ln(prediction / nearest end)|, at most
/// [`WORST_ERROR`].
pub fn error(interval: Interval, predicted: f64) -> f64 {
    if interval.contains(predicted) {
        return 0.0;
    }
    let ratio = predicted / interval.nearest(predicted);
    if ratio > 0.0 {
        ratio.ln().abs().min(WORST_ERROR)
    } else {
        WORST_ERROR
    }
}

/// The number of rows inside their interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rows inside `lo..hi`.
    pub inside: usize,
    /// All rows with a prediction.
    pub of: usize,
}

/// How well a group of rows is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Mean over the curves of the mean error of their values; `None` if no value is predicted.
    pub error: Option<f64>,
    /// Curves in that mean.
    pub curves: usize,
    /// Published values.
    pub values: Tally,
    /// Values inside `lo..hi` or within 3 % of it.
    pub close: usize,
    /// Bounds and orderings.
    pub bounds: Tally,
    /// Rows that count without a prediction.
    pub missing: usize,
}

/// A group of rows by name, with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The file, the program, the preset, or the curve with its preset.
    pub name: String,
    /// Its score.
    pub score: Score,
}

/// The score of all rows, and of groups, worst first.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    /// All rows.
    pub overall: Score,
    /// By data file.
    pub files: Vec<Group>,
    /// By program.
    pub programs: Vec<Group>,
    /// By preset.
    pub presets: Vec<Group>,
    /// By curve and preset.
    pub curves: Vec<Group>,
}

impl Report {
    /// How well the model predicts.
    pub fn scores(&self) -> Scores {
        let outcomes = self.outcomes().iter();
        let counted: Vec<&Outcome> = outcomes.filter(|o| o.entry().counts()).collect();
        Scores {
            overall: Score::of(&counted),
            files: groups(&counted, |entry| entry.place.file.to_string()),
            programs: groups(&counted, |entry| entry.labels.program.clone()),
            presets: groups(&counted, |entry| entry.labels.preset.clone()),
            curves: groups(&counted, |entry| {
                format!("{} ({})", entry.labels.curve, entry.labels.preset)
            }),
        }
    }
}

impl Score {
    fn of(outcomes: &[&Outcome]) -> Self {
        let mut score = Score::default();
        let mut curves: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
        for outcome in outcomes {
            let (Some(row), Some(error)) = (outcome.row(), outcome.error()) else {
                score.missing += 1;
                continue;
            };
            if row.published.value().is_none() {
                score.bounds.add(error);
                continue;
            }
            score.values.add(error);
            score.close += usize::from(error <= CLOSE.ln());
            let labels = &outcome.entry().labels;
            let curve = curves.entry((&labels.curve, &labels.preset));
            curve.or_default().push(error);
        }
        score.curves = curves.len();
        score.error = mean(
            curves
                .values()
                .filter_map(|errors| mean(errors.iter().copied())),
        );
        score
    }
}

impl Tally {
    fn add(&mut self, error: f64) {
        self.inside += usize::from(error == 0.0);
        self.of += 1;
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0_u32), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

/// The scores of groups by name, by decreasing error, groups without one last.
fn groups(outcomes: &[&Outcome], name: impl Fn(&Entry) -> String) -> Vec<Group> {
    let mut named: BTreeMap<String, Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes {
        let group = named.entry(name(outcome.entry()));
        group.or_default().push(outcome);
    }
    let mut groups: Vec<Group> = named
        .into_iter()
        .map(|(name, outcomes)| Group {
            name,
            score: Score::of(&outcomes),
        })
        .collect();
    let badness = |group: &Group| group.score.error.unwrap_or(f64::NEG_INFINITY);
    groups.sort_by(|a, b| badness(b).total_cmp(&badness(a)));
    groups
}
