//! The outcome of each row.

use adverb_units::Span;

use crate::data::Entry;
use crate::row::Row;
use crate::words::Status;

/// The rows' outcomes, in the order of the rows.
#[derive(Clone, Debug)]
pub struct Report {
    outcomes: Vec<Outcome>,
}

/// A row and its outcome.
#[derive(Clone, Debug)]
pub struct Outcome {
    entry: Entry,
    verdict: Verdict,
    took: Span,
}

/// The model's answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// A figure in the row's unit, and its error relative to the published interval.
    Predicted { value: f64, error: f64 },
    /// It does not know the row's hardware or program, or lacks what the row needs, or the row is
    /// unreadable.
    Cannot(String),
    /// It ran without a result.
    Failed(String),
}

impl Verdict {
    pub(crate) fn status(&self, entry: &Entry) -> Status {
        match self {
            Verdict::Cannot(_) => Status::Cannot,
            Verdict::Failed(_) => Status::Failed,
            Verdict::Predicted { .. } if !entry.counts() => Status::Ungraded,
            Verdict::Predicted { error: 0.0, .. } => Status::Inside,
            Verdict::Predicted { .. } => Status::Outside,
        }
    }
}

impl Outcome {
    pub(crate) const fn new(entry: Entry, verdict: Verdict, took: Span) -> Self {
        Outcome {
            entry,
            verdict,
            took,
        }
    }

    /// The row as it was read.
    pub const fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The row, if it is readable.
    pub fn row(&self) -> Option<&Row> {
        self.entry.row.as_ref().ok()
    }

    /// Returns how the row ended.
    pub fn status(&self) -> Status {
        self.verdict.status(&self.entry)
    }

    /// The prediction, in the row's unit.
    pub const fn predicted(&self) -> Option<f64> {
        match self.verdict {
            Verdict::Predicted { value, .. } => Some(value),
            Verdict::Cannot(_) | Verdict::Failed(_) => None,
        }
    }

    /// The error of the prediction ([`crate::error`]), even for bounds and rows that do not count in the
    /// scores.
    pub const fn error(&self) -> Option<f64> {
        match self.verdict {
            Verdict::Predicted { error, .. } => Some(error),
            Verdict::Cannot(_) | Verdict::Failed(_) => None,
        }
    }

    /// Prediction divided by published value, if both exist and the latter is not 0.
    pub fn ratio(&self) -> Option<f64> {
        let published = self.row()?.published.value()?;
        (published != 0.0).then_some(self.predicted()? / published)
    }

    /// Why there is no prediction.
    pub fn reason(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::Predicted { .. } => None,
            Verdict::Cannot(reason) | Verdict::Failed(reason) => Some(reason),
        }
    }

    /// Real time that the row took.
    pub const fn took(&self) -> Span {
        self.took
    }
}

impl Report {
    pub(crate) const fn new(outcomes: Vec<Outcome>) -> Self {
        Report { outcomes }
    }

    /// The outcomes, in the order of the rows.
    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// The rows that count and are not inside, worst first: failed ones, then by decreasing error, then those
    /// without a prediction.
    pub fn worst(&self) -> Vec<&Outcome> {
        let mut worst: Vec<&Outcome> = self
            .outcomes
            .iter()
            .filter(|o| o.entry.counts() && o.status() != Status::Inside)
            .collect();
        worst.sort_by(|a, b| badness(b).total_cmp(&badness(a)));
        worst
    }
}

fn badness(outcome: &Outcome) -> f64 {
    match &outcome.verdict {
        Verdict::Failed(_) => f64::INFINITY,
        Verdict::Predicted { error, .. } => *error,
        Verdict::Cannot(_) => f64::NEG_INFINITY,
    }
}
