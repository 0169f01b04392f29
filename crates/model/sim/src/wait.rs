//! What a role and the scheduler hand each other at a wait: plain values.

use adverb_units::Time;

/// A role's number within its simulation, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleNumber(pub(crate) u32);

impl RoleNumber {
    /// The number, as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Something that roles wait for and the world signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Condition(pub(crate) u32);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    Until(Time),
    For {
        condition: Condition,
        deadline: Option<Time>,
    },
}

/// Why a waiting role resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The instant it waited for.
    Time,
    /// The condition was signaled.
    Signal,
    /// The condition was not signaled before the deadline.
    Deadline,
}
