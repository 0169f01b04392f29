//! Taking completions, by polling or by events.

use adverb_results::Completion;
use adverb_verbs::{CompletionQueue, Context, NotifyOn, Station, WorkCompletion};

use crate::attend::{Attend, Awaited, attentively};
use crate::error::Fault;

/// Completions taken at a time.
pub const BATCH: usize = 32;
/// Events taken that are acknowledged together: acknowledging takes a lock.
const ACKNOWLEDGE_AT: u32 = 1024;

/// A completion queue, with a channel where completions are waited for by events.
pub struct Queue<C: Context> {
    /// The queue.
    pub cq: C::Cq,
    channel: Option<C::Channel>,
    awaited: Awaited,
}

impl<C: Context> Queue<C> {
    /// A queue for `entries` completions, or as many as the device can hold.
    ///
    /// # Errors
    /// The device refuses it.
    pub fn new(
        context: &C,
        entries: u32,
        completion: Completion,
        awaited: Awaited,
    ) -> Result<Self, Fault> {
        let channel = match completion {
            Completion::Poll => None,
            Completion::Event => Some(context.create_channel()?),
        };
        let entries = entries.clamp(1, context.caps().max_cqe);
        let cq = context.create_cq(entries, channel.as_ref())?;
        Ok(Queue {
            cq,
            channel,
            awaited,
        })
    }

    /// What takes its completions.
    pub fn reaper(&self) -> Reaper<'_, C> {
        Reaper {
            queue: self,
            armed: false,
            unacknowledged: 0,
        }
    }
}

/// Takes completions from a queue.
pub struct Reaper<'q, C: Context> {
    queue: &'q Queue<C>,
    /// Armed, and the event not yet taken.
    armed: bool,
    /// Events taken and not yet acknowledged.
    unacknowledged: u32,
}

impl<C: Context> Reaper<'_, C> {
    /// Waits until there is a completion, takes up to `into.len()` of them, all successful, and returns
    /// how many.
    ///
    /// # Errors
    /// A request failed, nothing came, or another role has failed.
    #[inline]
    pub fn reap<S: Station<Context = C>, A: Attend>(
        &mut self,
        station: &S,
        attend: &A,
        into: &mut [WorkCompletion],
    ) -> Result<usize, Fault> {
        let n = match &self.queue.channel {
            None => attentively(attend, self.queue.awaited, |patience| {
                station.spin(&self.queue.cq, into, patience)
            })?,
            Some(channel) => self.sleep(station, attend, channel, into)?,
        };
        match into[..n].iter().find(|wc| !wc.status.is_success()) {
            None => Ok(n),
            Some(wc) => Err(attend.failed(wc)),
        }
    }

    /// The order closes the race between arming and completing (`ibv_get_cq_event(3)`): poll; if there
    /// is nothing, arm; poll again, for what came before arming raises no event; sleep only then. An
    /// event that belongs to completions found by the second poll comes later as one wake-up for
    /// nothing.
    fn sleep<S: Station<Context = C>, A: Attend>(
        &mut self,
        station: &S,
        attend: &A,
        channel: &C::Channel,
        into: &mut [WorkCompletion],
    ) -> Result<usize, Fault> {
        loop {
            let n = self.queue.cq.poll(into)?;
            if n > 0 {
                return Ok(n);
            }
            if self.armed {
                // One channel for each queue: the event can only be this queue's.
                attentively(attend, self.queue.awaited, |patience| {
                    station.wait_event(channel, patience)
                })?;
                self.armed = false;
                self.unacknowledged += 1;
                if self.unacknowledged == ACKNOWLEDGE_AT {
                    self.acknowledge();
                }
            } else {
                self.queue.cq.req_notify(NotifyOn::Any)?;
                self.armed = true;
            }
        }
    }

    fn acknowledge(&mut self) {
        if self.unacknowledged > 0 {
            self.queue.cq.ack_events(self.unacknowledged);
            self.unacknowledged = 0;
        }
    }
}

impl<C: Context> Drop for Reaper<'_, C> {
    /// A queue with unacknowledged events cannot be destroyed.
    fn drop(&mut self) {
        self.acknowledge();
    }
}
