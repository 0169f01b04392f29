//! When a run ends that goes by the clock.

use std::cell::Cell;

use adverb_units::Time;

/// The end of the present run, for whoever has read the clock anyway: so that it costs the run nothing.
#[derive(Debug, Default)]
pub(crate) struct Limit {
    at: Cell<Option<Time>>,
    /// Messages or rounds that the run has in any case.
    least: Cell<u64>,
    is_over: Cell<bool>,
}

impl Limit {
    /// A run begins that ends at this time, if it has had its least messages; without a time it ends with
    /// its last message.
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
