//! How a side learns of completions.

use adverb_verbs::{CompletionQueue, Context, NotifyOn, Station, WorkCompletion};

use crate::pair::bench::Bench;
use crate::pair::error::Fault;

/// Completions taken at a time.
pub(crate) const BATCH: usize = 32;

/// What a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The end of a request of this side: it comes in any case.
    OwnRequest,
    /// The other side's next message: none comes once that side has ended the run.
    Message,
}

/// A completion queue and a way to wait on it.
pub(crate) trait Reap<S: Station> {
    /// Waits until there is a completion and takes up to `into.len()` of them, all successful.
    fn reap(&mut self, bench: &Bench<'_, S>, into: &mut [WorkCompletion]) -> Result<usize, Fault>;
}

/// Busy polling.
pub(crate) struct Polling<'q, C: Context> {
    cq: &'q C::Cq,
    awaited: Awaited,
}

impl<'q, C: Context> Polling<'q, C> {
    pub(crate) fn new(cq: &'q C::Cq, awaited: Awaited) -> Self {
        Polling { cq, awaited }
    }
}

impl<S: Station> Reap<S> for Polling<'_, S::Context> {
    #[inline]
    fn reap(&mut self, bench: &Bench<'_, S>, into: &mut [WorkCompletion]) -> Result<usize, Fault> {
        let n = bench.attentively(self.awaited, |patience| {
            bench.station.spin(self.cq, into, patience)
        })?;
        all_successful(bench, &into[..n])?;
        Ok(n)
    }
}

/// Completion events.
///
/// The order closes the race between arming and completing (`ibv_get_cq_event(3)`): poll; if there
/// is nothing, arm; poll again, for what came before arming raises no event; sleep only then. An
/// event that belongs to completions found by the second poll comes later as one wake-up for
/// nothing.
pub(crate) struct Notified<'q, C: Context> {
    cq: &'q C::Cq,
    channel: &'q C::Channel,
    awaited: Awaited,
    /// Armed, and the event not yet taken.
    armed: bool,
    /// Events taken and not yet acknowledged: acknowledging takes a lock, so it is done for many.
    unacknowledged: u32,
}

impl<'q, C: Context> Notified<'q, C> {
    const ACKNOWLEDGE_AT: u32 = 1024;

    pub(crate) fn new(cq: &'q C::Cq, channel: &'q C::Channel, awaited: Awaited) -> Self {
        Notified {
            cq,
            channel,
            awaited,
            armed: false,
            unacknowledged: 0,
        }
    }

    fn acknowledge(&mut self) {
        if self.unacknowledged > 0 {
            self.cq.ack_events(self.unacknowledged);
            self.unacknowledged = 0;
        }
    }
}

impl<S: Station> Reap<S> for Notified<'_, S::Context> {
    fn reap(&mut self, bench: &Bench<'_, S>, into: &mut [WorkCompletion]) -> Result<usize, Fault> {
        loop {
            let n = self.cq.poll(into)?;
            if n > 0 {
                all_successful(bench, &into[..n])?;
                return Ok(n);
            }
            if self.armed {
                // One channel for each queue: the event can only be this queue's.
                bench.attentively(self.awaited, |patience| {
                    bench.station.wait_event(self.channel, patience)
                })?;
                self.armed = false;
                self.unacknowledged += 1;
                if self.unacknowledged == Self::ACKNOWLEDGE_AT {
                    self.acknowledge();
                }
            } else {
                self.cq.req_notify(NotifyOn::Any)?;
                self.armed = true;
            }
        }
    }
}

impl<C: Context> Drop for Notified<'_, C> {
    /// A queue with unacknowledged events cannot be destroyed.
    fn drop(&mut self) {
        self.acknowledge();
    }
}

#[inline]
fn all_successful<S: Station>(
    bench: &Bench<'_, S>,
    completions: &[WorkCompletion],
) -> Result<(), Fault> {
    match completions.iter().find(|wc| !wc.status.is_success()) {
        None => Ok(()),
        Some(wc) => Err(bench.failed(wc)),
    }
}
