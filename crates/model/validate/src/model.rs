//! What predicts: an experiment in, a figure or a refusal out.

use std::time::{Duration, Instant};

use adverb_units::Span;

use crate::experiment::Experiment;
use crate::near;
use crate::words::Program;

/// Predicts what an experiment would measure, in the unit of its metric: builds the hosts, runs the
/// program until its steady state and measures the metric.
///
/// It is called from several threads at once; for the report to be the same each time, equal experiments
/// must give equal predictions. A model that runs for long ends by itself after [`Budget::left`], or asks
/// [`Budget::check`] now and then: nothing else stops it.
pub type Model<'m> = dyn Fn(&Experiment, &Budget) -> Result<f64, Refusal> + Sync + 'm;

/// Why there is no prediction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The model has no such hardware.
    #[error("no preset '{name}'{near}", near = near::suffix(near))]
    UnknownPreset {
        /// Its name.
        name: String,
        /// Presets of similar name ([`crate::near()`] finds them).
        near: Vec<String>,
    },
    /// The model does not run that program.
    #[error("the model does not run program {program}")]
    UnknownProgram {
        /// Its name.
        program: Program,
    },
    /// The model lacks something that the experiment needs, or the experiment contradicts itself.
    #[error("{reason}")]
    Cannot {
        /// What, with its value.
        reason: String,
    },
    /// The program cannot end: who waits for what.
    #[error("deadlock: {report}")]
    Deadlock {
        /// Who waits for what.
        report: String,
    },
    /// It did not end in time.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// It went wrong otherwise.
    #[error("{reason}")]
    Failed {
        /// How.
        reason: String,
    },
}

/// Which budget was spent before the experiment had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverBudget {
    /// This machine's time.
    #[error("not done within its budget of {0} of real time")]
    RealTime(Span),
    /// The model's time.
    #[error("not done within its budget of {0} of virtual time")]
    VirtualTime(Span),
    /// What happens in the model.
    #[error("not done within its budget of {0} events")]
    Events(u64),
}

/// Real time that a row's experiments have together.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    length: Duration,
    /// None: so far away that it never comes.
    end: Option<Instant>,
}

impl Budget {
    /// `length` from now.
    pub fn from_now(length: Duration) -> Self {
        Budget {
            length,
            end: Instant::now().checked_add(length),
        }
    }

    /// What is left of it; none where it has no end.
    pub fn left(&self) -> Option<Span> {
        self.end
            .map(|end| end.saturating_duration_since(Instant::now()).into())
    }

    /// Refuses once it is spent. It reads a clock: ask every few thousand events, not at each.
    ///
    /// # Errors
    /// [`OverBudget::RealTime`].
    pub fn check(&self) -> Result<(), OverBudget> {
        match self.end {
            Some(end) if Instant::now() >= end => Err(OverBudget::RealTime(self.length.into())),
            _ => Ok(()),
        }
    }
}
