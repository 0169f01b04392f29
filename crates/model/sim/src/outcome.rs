//! How a run ends, and how far it may go.

use std::fmt;

use adverb_units::{Span, Time};

/// How far a run may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Virtual time at which it ends.
    pub until: Option<Time>,
    /// Entries of the queue.
    pub events: Option<u64>,
    /// Real time that it may take.
    pub real: Option<Span>,
}

impl Budget {
    /// No end.
    pub const NONE: Budget = Budget {
        until: None,
        events: None,
        real: None,
    };

    /// Until `time` in virtual time.
    pub const fn until(time: Time) -> Self {
        Budget {
            until: Some(time),
            ..Budget::NONE
        }
    }
}

/// What there was a budget of.
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
    /// A condition, by its name.
    Condition(String),
    /// Its turn, or an instant.
    Time,
}

/// A role that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The role's name.
    pub role: String,
    /// What it waits for.
    pub what: WaitsFor,
    /// Since when.
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
    /// All roles that do the work have ended.
    Finished,
    /// No entry is left, and these roles wait.
    Deadlock(Vec<Waiting>),
    /// A budget is used up. The run can be continued.
    Exhausted {
        /// Which.
        budget: Resource,
        /// Who had not ended.
        waiting: Vec<Waiting>,
    },
    /// A role panicked.
    Panicked {
        /// Its name.
        role: String,
        /// What it said.
        message: String,
    },
}

impl Outcome {
    /// Whether all work was done.
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

/// Most roles that a message names.
const NAMED: usize = 8;

fn list(waiting: &[Waiting]) -> String {
    let mut words: Vec<_> = waiting
        .iter()
        .take(NAMED)
        .map(ToString::to_string)
        .collect();
    if waiting.len() > NAMED {
        words.push(format!("and {} more", waiting.len() - NAMED));
    }
    words.join("; ")
}
