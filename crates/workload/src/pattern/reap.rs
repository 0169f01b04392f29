//! Waiting for completions: by looking again and again, or by events.

use adverb_units::Span;
use adverb_verbs::{CompletionQueue, Context, NotifyOn, Station, WorkCompletion};
use serde::{Deserialize, Serialize};

use crate::pattern::error::PatternError;
use crate::pattern::wiring::Wiring;

/// How members wait for completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// They poll.
    #[default]
    Poll,
    /// They sleep until the queue raises an event.
    Event,
}

/// Events taken that are acknowledged together: acknowledging takes a lock.
const ACKNOWLEDGE_AT: u32 = 1024;

/// Takes completions from a member's queue.
pub(crate) struct Reaper<'w, S: Station> {
    station: &'w S,
    cq: &'w <S::Context as Context>::Cq,
    /// Where the queue raises its events, if the member sleeps.
    channel: Option<&'w <S::Context as Context>::Channel>,
    /// Armed, and the event not yet taken.
    armed: bool,
    unacknowledged: u32,
}

impl<'w, S: Station> Reaper<'w, S> {
    pub(crate) fn new(station: &'w S, wiring: &'w Wiring<S::Context>) -> Self {
        Reaper {
            station,
            cq: &wiring.cq,
            channel: wiring.channel.as_ref(),
            armed: false,
            unacknowledged: 0,
        }
    }

    /// Waits until there is a completion, takes up to `into.len()` of them, all successful, and returns
    /// how many.
    pub(crate) fn reap(
        &mut self,
        into: &mut [WorkCompletion],
        patience: Span,
    ) -> Result<usize, PatternError> {
        let n = match self.channel {
            None => self.station.spin(self.cq, into, patience)?,
            Some(channel) => self.sleep(channel, into, patience)?,
        };
        match into[..n].iter().find(|wc| !wc.status.is_success()) {
            Some(wc) => Err(PatternError::Completion {
                wr_id: wc.wr_id,
                status: wc.status,
            }),
            None => Ok(n),
        }
    }

    /// The order closes the race between arming and completing (`ibv_get_cq_event(3)`): poll; if there
    /// is nothing, arm; poll again, for what came before raises no event; sleep only then.
    fn sleep(
        &mut self,
        channel: &<S::Context as Context>::Channel,
        into: &mut [WorkCompletion],
        patience: Span,
    ) -> Result<usize, PatternError> {
        loop {
            let n = self.cq.poll(into)?;
            if n > 0 {
                return Ok(n);
            }
            if self.armed {
                self.station.wait_event(channel, patience)?;
                self.armed = false;
                self.unacknowledged += 1;
                if self.unacknowledged == ACKNOWLEDGE_AT {
                    self.acknowledge();
                }
            } else {
                self.cq.req_notify(NotifyOn::Any)?;
                self.armed = true;
            }
        }
    }

    fn acknowledge(&mut self) {
        if self.unacknowledged > 0 {
            self.cq.ack_events(self.unacknowledged);
            self.unacknowledged = 0;
        }
    }
}

impl<S: Station> Drop for Reaper<'_, S> {
    /// A queue with unacknowledged events cannot be destroyed.
    fn drop(&mut self) {
        self.acknowledge();
    }
}
