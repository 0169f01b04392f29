//! The requester: sends this side's requests and takes their responses (IBTA vol. 1, 9.7.2 to 9.7.7).
//!
//! Go-back-N: it sends everything from the first unacknowledged packet on again if the responder reports a missing
//! packet (NAK), if responses are missing, or after a timeout.

mod reads;
mod responses;
mod sending;

use adverb_units::Time;
use adverb_verbs::{PathMtu, QpAttr, QpState, Qpn, WcStatus};
use adverb_wire::Service;
use adverb_wire::opcode::Ends;

pub(super) use self::responses::BAD_RESPONSE;
use super::RcConfig;
use super::congestion::Congestion;
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
    service: Service,
    peer: Qpn,
    mtu: PathMtu,
    numbering: Numbering,
    queue: SendQueue,
    /// Index of the request of the next packet to send.
    cursor: usize,
    window: Window,
    reads: Reads,
    timers: Timers,
    retries: RetryCounters,
    errors: SequenceErrors,
    ack_requests: AckRequests,
    /// Draining (SQD): no request at this packet or later may begin.
    drain_from: Option<Seq>,
}

/// When to request an ACK: before a quarter of the window, or of the send queue, is used since the last request. Later
/// requests would let the window or queue fill up before the ACK arrives.
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
        let window = Window::new(
            numbering.first(),
            Congestion::new(own.window, own.max_window),
        );
        Requester {
            service: super::service(config.qp_type),
            peer: config.peer,
            mtu: config.path_mtu,
            numbering,
            queue: SendQueue::new(own.max_work),
            cursor: 0,
            reads: Reads::new(own.max_reads),
            window,
            timers: Timers::new(own.retry.timeout),
            retries: RetryCounters::new(&own.retry),
            errors: SequenceErrors::default(),
            ack_requests: AckRequests::new(own.window, own.max_work),
            drain_from: None,
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
        let part = self.reads.part(self.window.limit());
        let first = |packets| self.window.extend(packets);
        self.queue.post(request, memory, (self.mtu, part), first)
    }

    /// Posts a request that is not sent, as [`super::RcQp::post_failed`].
    pub(super) fn post_failed(
        &mut self,
        request: SendWork,
        status: WcStatus,
    ) -> Result<(), PostError> {
        let first = |packets| self.window.extend(packets);
        self.queue.post_failed(request, status, first)
    }

    /// Applies the attributes of a Modify QP that concern the requester ([`super::RcQp::modify`]).
    pub(super) fn modify(&mut self, attr: &QpAttr) {
        if let Some(first) = attr.sq_psn {
            // Nothing has been sent, so only the PSNs change.
            self.numbering = Numbering::new(first);
            self.reads = Reads::new(attr.max_rd_atomic.unwrap_or(0));
        } else if let Some(most) = attr.max_rd_atomic {
            self.reads.set_most(most);
        }
        if let Some(timeout) = attr.timeout {
            self.timers.set_timeout(timeout);
        }
        self.retries.set_limits(attr.retry_cnt, attr.rnr_retry);
        match attr.state {
            // The oldest request may have begun. All others count as not begun, even if they are to be sent again.
            Some(QpState::Sqd) => {
                self.drain_from = Some(match self.queue.front() {
                    Some(oldest) if self.window.sent() > oldest.first => oldest.end,
                    _ => self.window.unacked(),
                });
            }
            Some(QpState::Rts) => self.drain_from = None,
            _ => {}
        }
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.timers.deadline()
    }

    pub(super) fn has_unfinished(&self) -> bool {
        self.queue.front().is_some()
    }

    /// Whether a request that had begun in SQD is not complete.
    pub(super) fn is_draining(&self) -> bool {
        let (oldest, from) = (self.queue.front(), self.drain_from);
        oldest.is_some_and(|oldest| from.is_some_and(|from| oldest.first < from))
    }

    /// Takes the oldest request that is not complete, for flushing.
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
        shared.counters.go_backs += 1;
        self.window.go_back();
        self.cursor = 0;
        self.reads.forget();
        self.ack_requests.reset();
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
