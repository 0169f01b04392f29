//! One repetition of `ping` or `blast`, driven by a session.

use adverb_units::Span;

use crate::error::Fault;
use crate::sample::Sampler;

/// One side's part of a program, ready to run.
pub(crate) trait Part {
    /// Runs `iters` messages or rounds, or until the time is over, which the active side decides for both.
    fn run(&mut self, iters: u64, sampler: Option<&mut Sampler>) -> Result<Ran, Fault>;

    /// Reposts receives whose messages arrived after the end of their run.
    fn prepare(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Receives, after the end of a run, up to `messages` that are still in flight. When none has arrived for a
    /// while, the others are lost.
    fn take_late(&mut self, messages: u64) -> Result<Ran, Fault> {
        self.run(messages, None)
    }

    /// Returns the messages that this side has sent over each queue pair; empty if there is only one.
    fn carried(&self) -> Vec<u64> {
        Vec::new()
    }

    /// After a run, checks what this side was given without any completion of its own: as many messages as
    /// each queue pair has `carried` since the beginning.
    fn check_given(&self, carried: &[u64]) -> Result<(), Fault> {
        let _ = carried;
        Ok(())
    }
}

/// Result of one side in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ran {
    /// Messages or rounds.
    pub(crate) iters: u64,
    /// From just before the first post to just after the last completion.
    pub(crate) elapsed: Span,
}
