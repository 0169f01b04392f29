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

/// How the errors of curves are distributed, and whether the order of values is right.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Median of the errors of curves; `None` if no value is predicted.
    pub median: Option<f64>,
    /// Their 90th percentile.
    pub p90: Option<f64>,
    /// Pairs of values of a curve, of the same metric, whose published intervals are disjoint; inside: those whose
    /// predictions have the same order.
    pub pairs: Tally,
}

/// The score of all rows, and of groups, worst first.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    /// All rows.
    pub overall: Score,
    /// Distribution of the errors of all curves.
    pub spread: Spread,
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
            spread: Spread::of(&counted),
            files: groups(&counted, |entry| entry.place.file.to_string()),
            programs: groups(&counted, |entry| entry.labels.program.clone()),
            presets: groups(&counted, |entry| entry.labels.preset.clone()),
            curves: groups(&counted, |entry| {
                format!("{} ({})", entry.labels.curve, entry.labels.preset)
            }),
        }
    }
}

/// Label and preset of a curve.
fn curve(outcome: &Outcome) -> (&str, &str) {
    let labels = &outcome.entry().labels;
    (&labels.curve, &labels.preset)
}

impl Spread {
    fn of(outcomes: &[&Outcome]) -> Self {
        let mut curves: BTreeMap<(&str, &str), Vec<(&Outcome, f64)>> = BTreeMap::new();
        for outcome in outcomes {
            let has_value = outcome
                .row()
                .is_some_and(|row| row.published.value().is_some());
            if let Some(error) = outcome.error().filter(|_| has_value) {
                curves
                    .entry(curve(outcome))
                    .or_default()
                    .push((outcome, error));
            }
        }
        let of_curve = |rows: &Vec<(&Outcome, f64)>| mean(rows.iter().map(|(_, error)| *error));
        let mut errors: Vec<f64> = curves.values().filter_map(of_curve).collect();
        errors.sort_by(f64::total_cmp);
        let n = errors.len();
        let median = (n > 0).then(|| f64::midpoint(errors[(n - 1) / 2], errors[n / 2]));
        let p90 = (n > 0).then(|| errors[(9 * n).div_ceil(10) - 1]);
        let mut pairs = Tally::default();
        for rows in curves.values() {
            for (n, (one, _)) in rows.iter().enumerate() {
                for (other, _) in &rows[n + 1..] {
                    let Some(is_right) = is_ordered(one, other) else {
                        continue;
                    };
                    pairs.inside += usize::from(is_right);
                    pairs.of += 1;
                }
            }
        }
        Spread { median, p90, pairs }
    }
}

/// Whether two predictions have the order of the published values; `None` if these may be equal, or are not comparable.
fn is_ordered(one: &Outcome, other: &Outcome) -> Option<bool> {
    if one.entry().labels.metric != other.entry().labels.metric {
        return None;
    }
    let [a, b] = [one.row()?, other.row()?].map(|row| row.published.interval());
    let [p, q] = [one.predicted()?, other.predicted()?];
    if a.hi() < b.lo() {
        Some(p < q)
    } else if b.hi() < a.lo() {
        Some(q < p)
    } else {
        None
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
            curves.entry(curve(outcome)).or_default().push(error);
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
