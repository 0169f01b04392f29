//! Reaps completions, by polling or by events.

use adverb_results::Completion;
use adverb_verbs::{CompletionQueue, Context, NotifyOn, Station, WorkCompletion};

use crate::attend::{Attend, Awaited, attentively};
use crate::error::Fault;

/// Maximum number of completions per poll.
pub const BATCH: usize = 32;
/// Number of events that are acknowledged together, because acknowledging takes a lock.
const ACKNOWLEDGE_AT: u32 = 1024;

/// A completion queue, with a channel if completions are awaited by events.
pub struct Queue<C: Context> {
    /// The queue.
    pub cq: C::Cq,
    channel: Option<C::Channel>,
    awaited: Awaited,
}

impl<C: Context> Queue<C> {
    /// Creates a queue for `entries` completions, or the device's maximum.
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

    /// Returns its reaper.
    pub fn reaper(&self) -> Reaper<'_, C> {
        Reaper {
            queue: self,
            armed: false,
            unacknowledged: 0,
        }
    }
}

/// Reaps completions from a queue.
pub struct Reaper<'q, C: Context> {
    queue: &'q Queue<C>,
    /// Whether the queue is armed and the event not yet taken.
    armed: bool,
    /// Events taken and not yet acknowledged.
    unacknowledged: u32,
}

impl<C: Context> Reaper<'_, C> {
    /// Waits until there is a completion, takes up to `into.len()` successful ones, and returns their number.
    ///
    /// # Errors
    /// A request failed, timeout, or another role has failed.
    #[inline]
    pub fn reap<S: Station<Context = C>, A: Attend>(
        &mut self,
        station: &S,
        attend: &A,
        into: &mut [WorkCompletion],
    ) -> Result<usize, Fault> {
        let n = match &self.queue.channel {
            None => attentively(attend, self.queue.awaited, |timeout| {
                station.spin(&self.queue.cq, into, timeout)
            })?,
            Some(channel) => self.sleep(station, attend, channel, into)?,
        };
        match into[..n].iter().find(|wc| !wc.status.is_success()) {
            None => Ok(n),
            Some(wc) => Err(attend.failed(wc)),
        }
    }

    /// The order closes the race between arming and completing (`ibv_get_cq_event(3)`): poll; if there is
    /// nothing, arm; poll again, because completions before arming raise no event; only then sleep. The event
    /// of a completion found by the second poll causes one spurious wake-up later.
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
                // Each queue has its own channel, so the event belongs to this queue.
                attentively(attend, self.queue.awaited, |timeout| {
                    station.wait_event(channel, timeout)
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
    /// Acknowledges all events: otherwise destroying the queue would block.
    fn drop(&mut self) {
        self.acknowledge();
    }
}
