//! What `ping` and `blast` do in one repetition, as a session drives it.

use adverb_units::Span;

use crate::error::Fault;
use crate::sample::Sampler;

/// One side's part of a program, ready to run.
pub(crate) trait Part {
    /// Runs `iters` messages or rounds, or until time is over. The active side decides that for both.
    fn run(&mut self, iters: u64, sampler: Option<&mut Sampler>) -> Result<Ran, Fault>;

    /// Makes the receives available again whose messages came after the end of their run.
    fn prepare(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// After the end of a run, takes up to `messages` that are still in flight, until none has arrived for a
    /// while: others are lost.
    fn take_late(&mut self, messages: u64) -> Result<Ran, Fault> {
        self.run(messages, None)
    }

    /// Messages that this side has sent over each queue pair; empty if there is only one.
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

/// What one side did in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ran {
    /// Messages or rounds.
    pub(crate) iters: u64,
    /// From just before the first post to just after the last completion.
    pub(crate) elapsed: Span,
}
