//! The end of a run that is limited by time.

use std::cell::Cell;

use adverb_units::Time;

/// The end of the current run. It is checked only when the clock is read anyway, so it costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    at: Cell<Option<Time>>,
    /// Minimum number of messages or rounds.
    least: Cell<u64>,
    is_over: Cell<bool>,
}

impl Limit {
    /// Starts a run that ends at this time, but not before its minimum number of messages; without a time it
    /// ends with its last message.
    pub(crate) fn begin(&self, at: Option<Time>, least: u64) {
        self.at.set(at);
        self.least.set(least);
        self.is_over.set(false);
    }

    /// It is `now`.
    #[inline]
    pub(crate) fn look(&self, now: Time) {
        if self.at.get().is_some_and(|at| now >= at) {
            self.is_over.set(true);
        }
    }

    /// Whether somebody has seen that it is time, and the run has had `done` messages, which are enough.
    #[inline]
    pub(crate) fn is_over(&self, done: u64) -> bool {
        self.is_over.get() && done >= self.least.get()
    }
}
