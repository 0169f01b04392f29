//! The requester: sends this side's requests and takes their responses (IBTA vol. 1, 9.7.2 to 9.7.7).
//!
//! It goes back to the first packet that is not acknowledged when one of its packets is missing at the
//! responder (NAK), when responses are missing here, or when nothing comes for too long.

mod answers;
mod reads;
mod sending;

use adverb_units::Time;
use adverb_verbs::{PathMtu, QpAttr, QpState, Qpn, WcStatus};
use adverb_wire::opcode::Ends;

pub(super) use self::answers::BAD_RESPONSE;
use super::RcConfig;
use super::retry::RetryCounters;
use super::send_queue::{Entry, SendQueue};
use super::sequence_errors::SequenceErrors;
use super::timers::Timers;
use super::window::Window;
use crate::memory::Memory;
use crate::request::{PostError, SendWork};
use crate::sequence::{Numbering, Seq};
use crate::shared::Shared;
use reads::Reads;

#[derive(Debug)]
pub(super) struct Requester {
    peer: Qpn,
    mtu: PathMtu,
    numbering: Numbering,
    queue: SendQueue,
    /// The request of the next packet to send.
    cursor: usize,
    window: Window,
    reads: Reads,
    timers: Timers,
    retries: RetryCounters,
    errors: SequenceErrors,
    asking: AckRequests,
    /// Requests from here on may not begin.
    held_from: Option<Seq>,
}

/// When to ask for an acknowledgement: before a quarter of the window, or of the send queue, is used up
/// since the last time. Asked later, the peer would answer when nothing more can be sent.
#[derive(Debug)]
struct AckRequests {
    packets: u32,
    messages: usize,
    most_packets: u32,
    most_messages: usize,
}

impl AckRequests {
    fn new(window: u32, max_work: usize) -> Self {
        AckRequests {
            packets: 0,
            messages: 0,
            most_packets: (window / 4).max(1),
            most_messages: (max_work / 4).max(1),
        }
    }

    /// Whether the next packet requests an ACK, even within a message.
    #[inline]
    const fn is_due(&self, ends: Ends) -> bool {
        let messages = self.messages + matches!(ends, Ends::Message) as usize;
        self.packets + 1 >= self.most_packets || messages >= self.most_messages
    }

    #[inline]
    const fn note(&mut self, ends: Ends) {
        self.packets += 1;
        self.messages += matches!(ends, Ends::Message) as usize;
    }

    #[inline]
    const fn reset(&mut self) {
        (self.packets, self.messages) = (0, 0);
    }
}

impl Requester {
    pub(super) fn new(config: &RcConfig) -> Self {
        let own = &config.requester;
        let numbering = Numbering::new(own.first_psn);
        let window = Window::new(numbering.first(), own.window);
        Requester {
            peer: config.peer,
            mtu: config.path_mtu,
            numbering,
            queue: SendQueue::new(own.max_work),
            cursor: 0,
            reads: Reads::new(own.max_reads, window.limit()),
            window,
            timers: Timers::new(own.retry.timeout),
            retries: RetryCounters::new(&own.retry),
            errors: SequenceErrors::default(),
            asking: AckRequests::new(own.window, own.max_work),
            held_from: None,
        }
    }

    pub(super) fn post(
        &mut self,
        request: SendWork,
        memory: &impl Memory,
    ) -> Result<(), PostError> {
        if request.work.is_answered() && !self.reads.are_allowed() {
            return Err(PostError::ReadsNotAllowed);
        }
        let window = &mut self.window;
        self.queue
            .post(request, memory, self.mtu, |packets| window.extend(packets))
    }

    /// Applies what a Modify QP sets of the requester ([`super::RcQp::modify`]).
    pub(super) fn modify(&mut self, attr: &QpAttr) {
        if let Some(first) = attr.sq_psn {
            // Nothing has been sent, so that only the numbers on the wire change.
            self.numbering = Numbering::new(first);
            self.reads = Reads::new(attr.max_rd_atomic.unwrap_or(0), self.window.limit());
        } else if let Some(most) = attr.max_rd_atomic {
            self.reads.set_most(most);
        }
        if let Some(timeout) = attr.timeout {
            self.timers.set_timeout(timeout);
        }
        self.retries.set_limits(attr.retry_cnt, attr.rnr_retry);
        match attr.state {
            // Of what is to be sent again only the oldest request has begun.
            Some(QpState::Sqd) => {
                self.held_from = Some(match self.queue.front() {
                    Some(oldest) if self.window.sent() > oldest.first => oldest.end,
                    _ => self.window.unacked(),
                });
            }
            Some(QpState::Rts) => self.held_from = None,
            _ => {}
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.timers.deadline()
    }

    /// Requests that are not completed, oldest first: for flushing.
    pub(super) fn take(&mut self) -> Option<Entry> {
        self.timers.clear();
        self.cursor = 0;
        self.queue.pop()
    }

    fn go_back(&mut self, shared: &mut Shared) {
        self.errors.forget();
        self.restart(shared);
    }

    /// Goes back because of a sequence error.
    fn restart(&mut self, shared: &mut Shared) {
        shared.counters.went_back += 1;
        self.window.go_back();
        self.cursor = 0;
        self.reads.forget();
        self.asking.reset();
        self.timers.stop();
    }

    /// Handles expired timers.
    ///
    /// # Errors
    /// The oldest request fails with this status.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        shared: &mut Shared,
    ) -> Result<(), WcStatus> {
        if self.timers.is_overdue(now) {
            shared.counters.timeouts += 1;
            self.retries.take()?;
            self.go_back(shared);
        }
        self.timers.waits_for_receiver(now);
        Ok(())
    }
}
