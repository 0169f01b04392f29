//! The interface of a model: it takes an experiment and returns a figure or a refusal.

use std::time::{Duration, Instant};

use adverb_units::Span;

use crate::experiment::Experiment;
use crate::near;
use crate::words::Program;

/// Predicts what an experiment would measure, in the unit of its metric.
///
/// It is called from several threads concurrently. Equal experiments must give equal predictions, so that
/// the report is reproducible. A long-running model must end after [`Budget::left`], or call
/// [`Budget::check`] regularly: nothing else stops it.
pub type Model<'m> = dyn Fn(&Experiment, &Budget) -> Result<f64, Refusal> + Sync + 'm;

/// Why there is no prediction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The model has no such hardware.
    #[error("no preset '{name}'{near}", near = near::suffix(near))]
    UnknownPreset {
        /// Its name.
        name: String,
        /// Presets with similar names ([`crate::near()`]).
        near: Vec<String>,
    },
    /// The model does not run this program.
    #[error("the model does not run program {0}")]
    UnknownProgram(Program),
    /// The model lacks something that the experiment needs, or the experiment is inconsistent.
    #[error("{0}")]
    Cannot(String),
    /// The program deadlocks. The text names the waiting roles and what they wait for.
    #[error("deadlock: {0}")]
    Deadlock(String),
    /// The program did not end in time.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// The prediction failed for another reason.
    #[error("{0}")]
    Failed(String),
}

/// The budget that was used up before the experiment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverBudget {
    /// Real time.
    #[error("not done within its budget of {0} of real time")]
    RealTime(Span),
    /// Virtual time.
    #[error("not done within its budget of {0} of virtual time")]
    VirtualTime(Span),
    /// Events of the simulation.
    #[error("not done within its budget of {0} events")]
    Events(u64),
}

/// The real time that a row's experiments have together.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    length: Duration,
    /// `None`: never.
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

    /// The remaining time; `None` if it has no end.
    pub fn left(&self) -> Option<Span> {
        self.end
            .map(|end| end.saturating_duration_since(Instant::now()).into())
    }

    /// Fails once the budget is used up. This reads a clock: call it every few thousand events.
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
