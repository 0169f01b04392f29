//! Reaps completions, by polling, by events, or by polling first.

use adverb_results::Completion;
use adverb_units::Span;
use adverb_verbs::{CompletionQueue, Context, NotifyOn, Station, WaitError, WorkCompletion};

use crate::attend::{ATTENTION, Attend, Awaited, attentively};
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
    /// Time to poll before sleeping.
    polling: Span,
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
            Completion::Event | Completion::Hybrid(_) => Some(context.create_channel()?),
        };
        let polling = match completion {
            Completion::Hybrid(span) => span,
            _ => Span::ZERO,
        };
        let entries = entries.clamp(1, context.caps().max_cqe);
        let cq = context.create_cq(entries, channel.as_ref())?;
        Ok(Queue {
            cq,
            channel,
            polling,
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
        let queue = self.queue;
        let n = match &queue.channel {
            None => attentively(attend, queue.awaited, |timeout| {
                station.spin(&queue.cq, into, timeout)
            })?,
            Some(channel) => attentively(attend, queue.awaited, |timeout| {
                self.sleep(station, channel, into, timeout)
            })?,
        };
        succeeded_all(attend, &into[..n])
    }

    /// The same for `timeout`, during which the other roles are not watched. Returns 0 if there is no completion by then.
    ///
    /// # Errors
    /// A request failed.
    #[inline]
    pub fn reap_within<S: Station<Context = C>, A: Attend>(
        &mut self,
        station: &S,
        attend: &A,
        into: &mut [WorkCompletion],
        timeout: Span,
    ) -> Result<usize, Fault> {
        let waited = match &self.queue.channel {
            None => station
                .spin(&self.queue.cq, into, timeout)
                .map_err(Fault::from),
            Some(channel) => self.sleep(station, channel, into, timeout),
        };
        match waited {
            Err(Fault::Wait(WaitError::TimedOut { .. })) => Ok(0),
            Err(error) => Err(error),
            Ok(n) => succeeded_all(attend, &into[..n]),
        }
    }

    /// As [`Reaper::reap`], without a timeout: for completions that other roles cause, however long they take for it.
    ///
    /// # Errors
    /// A request failed, or another role has failed.
    #[inline]
    pub fn reap_untimed<S: Station<Context = C>, A: Attend>(
        &mut self,
        station: &S,
        attend: &A,
        into: &mut [WorkCompletion],
    ) -> Result<usize, Fault> {
        loop {
            match self.reap_within(station, attend, into, ATTENTION)? {
                0 => attend.look(self.queue.awaited)?,
                n => return Ok(n),
            }
        }
    }

    /// Polls for a while if that was chosen, then sleeps.
    ///
    /// The order closes the race between arming and completing (`ibv_get_cq_event(3)`): poll; if there is
    /// nothing, arm; poll again, because completions before arming raise no event; only then sleep. The event
    /// of a completion found by the second poll causes one spurious wake-up later.
    fn sleep<S: Station<Context = C>>(
        &mut self,
        station: &S,
        channel: &C::Channel,
        into: &mut [WorkCompletion],
        timeout: Span,
    ) -> Result<usize, Fault> {
        let polling = self.queue.polling.min(timeout);
        if polling > Span::ZERO {
            match station.spin(&self.queue.cq, into, polling) {
                Err(WaitError::TimedOut { .. }) if polling < timeout => {}
                found => return Ok(found?),
            }
        }
        loop {
            let n = self.queue.cq.poll(into)?;
            if n > 0 {
                return Ok(n);
            }
            if self.armed {
                // Each queue has its own channel, so the event belongs to this queue.
                station.wait_event(channel, timeout.saturating_sub(polling))?;
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

/// Returns the number of completions if all are successful.
#[inline]
fn succeeded_all<A: Attend>(attend: &A, completions: &[WorkCompletion]) -> Result<usize, Fault> {
    match completions.iter().find(|wc| !wc.status.is_success()) {
        None => Ok(completions.len()),
        Some(wc) => Err(attend.failed(wc)),
    }
}

impl<C: Context> Drop for Reaper<'_, C> {
    /// Acknowledges all events: otherwise destroying the queue would block.
    fn drop(&mut self) {
        self.acknowledge();
    }
}
