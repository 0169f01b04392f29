//! How a run ends, and what limits it.

use std::fmt;

use adverb_units::{Span, Time};

/// The limits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Virtual time at which the run ends.
    pub until: Option<Time>,
    /// Number of queue entries that it may handle.
    pub events: Option<u64>,
    /// Real time that it may take.
    pub real: Option<Span>,
}

impl Budget {
    /// No limits.
    pub const NONE: Budget = Budget {
        until: None,
        events: None,
        real: None,
    };

    /// Limits virtual time only.
    pub const fn until(time: Time) -> Self {
        Budget {
            until: Some(time),
            ..Budget::NONE
        }
    }
}

/// A limit that a run has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Virtual time.
    VirtualTime(Time),
    /// Events.
    Events(u64),
    /// Real time.
    RealTime(Span),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::VirtualTime(time) => {
                write!(f, "{} of virtual time", time.since(Time::ZERO))
            }
            Resource::Events(events) => write!(f, "{events} events"),
            Resource::RealTime(span) => write!(f, "{span} of real time"),
        }
    }
}

/// What a role waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// The condition of this name.
    Condition(String),
    /// An instant, or its turn to run.
    Time,
}

/// A role that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The role's name.
    pub role: String,
    /// What it waits for.
    pub what: WaitsFor,
    /// When it began to wait.
    pub since: Time,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.since.since(Time::ZERO);
        match &self.what {
            WaitsFor::Condition(name) => {
                write!(f, "{} waits for {name} since {since}", self.role)
            }
            WaitsFor::Time => write!(f, "{} runs, at {since}", self.role),
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All roles of kind [`RoleKind::Work`](crate::RoleKind::Work) have ended.
    Finished,
    /// The event queue is empty, and these roles wait.
    Deadlock(Vec<Waiting>),
    /// A budget is used up. The run can be continued.
    Exhausted {
        /// The budget that ran out.
        budget: Resource,
        /// The roles that had not ended.
        waiting: Vec<Waiting>,
    },
    /// A role panicked.
    Panicked {
        /// The role's name.
        role: String,
        /// The panic's message.
        message: String,
    },
}

impl Outcome {
    /// Whether all work is done.
    pub fn is_finished(&self) -> bool {
        *self == Outcome::Finished
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Finished => write!(f, "finished"),
            Outcome::Deadlock(waiting) => {
                write!(
                    f,
                    "deadlock: nothing can happen any more; {}",
                    list(waiting)
                )
            }
            Outcome::Exhausted { budget, waiting } => {
                write!(f, "not finished after {budget}; {}", list(waiting))
            }
            Outcome::Panicked { role, message } => write!(f, "{role} panicked: {message}"),
        }
    }
}

/// Largest number of roles that a message names.
const MAX_NAMED: usize = 8;

fn list(waiting: &[Waiting]) -> String {
    let mut words: Vec<_> = waiting
        .iter()
        .take(MAX_NAMED)
        .map(ToString::to_string)
        .collect();
    if waiting.len() > MAX_NAMED {
        words.push(format!("and {} more", waiting.len() - MAX_NAMED));
    }
    words.join("; ")
}
