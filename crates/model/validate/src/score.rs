//! How well predictions agree with what was published.
//!
//! A row's error is 0 inside `lo..hi`, else |ln(prediction / nearest end)|: natural logarithms, so
//! 0.10 is about 10 %. Errors are averaged per curve, then over curves, because some curves have
//! many points. A curve is a label of one preset: `Fig3a` of two NICs are two curves.
//!
//! * A bound or an ordering (no published value) is inside or not: it is counted, not averaged.
//! * A row of grade 0 is left out.
//! * A row without prediction has no error. It is counted as missing, because a mean that leaves
//!   rows out compares only with one that leaves out the same.

use std::collections::BTreeMap;

use crate::data::Entry;
use crate::published::Interval;
use crate::report::Outcome;

/// The largest error, ln 100: the logarithm is cut there.
///
/// A prediction of the wrong sign, of 0 where that is outside, or on the far side of an end at 0
/// has no logarithm and gets it too. So a mean stays finite, and nothing is worse than a wrong sign.
pub const WORST_ERROR: f64 = 4.605_170_185_988_092;

/// What counts as close: 3 %, the demand on calibrated rows.
const CLOSE: f64 = 1.03;

/// How far a prediction lies from an interval: 0 inside, else |ln(prediction / nearest end)|, at
/// most [`WORST_ERROR`].
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

/// How many of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Those inside `lo..hi`.
    pub inside: usize,
    /// All with a prediction.
    pub of: usize,
}

/// How well a group of rows is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Mean over the curves of the mean error of their values; none without a prediction of a value.
    pub error: Option<f64>,
    /// Curves in that mean.
    pub curves: usize,
    /// Published values.
    pub values: Tally,
    /// Of the values those inside `lo..hi` or within 3 % of it.
    pub close: usize,
    /// Bounds and orderings.
    pub bounds: Tally,
    /// Rows that count and have no prediction.
    pub missing: usize,
}

/// A group of rows by name, with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The file, the program, the preset, or the curve with its preset.
    pub name: String,
    /// How well it is predicted.
    pub score: Score,
}

/// Scores of all rows together and of groups of them; groups stand worst first.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    /// Of all rows.
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

impl Scores {
    pub(crate) fn of(outcomes: &[Outcome]) -> Self {
        let counted: Vec<&Outcome> = outcomes.iter().filter(|o| o.entry().counts()).collect();
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

/// The outcomes by name, worst first: by falling error, those without one last, then by name.
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
