//! A queue pair's receive queue: receive requests, the order of deliveries, and the responder's PSN.

use std::collections::VecDeque;

use adverb_units::{Span, Time};
use adverb_verbs::{Operation, Psn, QpAttr, RnrTimer, WcStatus, WrId};

use crate::host::memory::{Ranges, SgList};
use crate::ids::SrqIndex;
use crate::nic::port::TransitTimes;

/// Atomic operations whose results a responder keeps: the most that a queue pair may have in flight.
const KEPT_ATOMICS: usize = 255;

#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) wr_id: WrId,
    pub(crate) sg_list: SgList,
}

/// A receive that a message has consumed.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) wr_id: WrId,
    pub(crate) ranges: Ranges,
    pub(crate) status: WcStatus,
    /// Bytes before the payload (a datagram's global routing header).
    pub(crate) header: u32,
}

/// The source of a queue pair's receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receives {
    /// Its own queue; completions carry payloads of up to this size.
    Own { max_inl_recv: u32 },
    /// This shared receive queue.
    Shared(SrqIndex),
}

#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    from: Receives,
    receives: VecDeque<Receive>,
    /// Receives that fail without a message, once earlier ones have completed.
    failed: VecDeque<(WrId, WcStatus)>,
    /// Receives that are posted, and whose completions are not polled.
    in_use: u32,
    /// Whether the queue pair has failed and has not yet raised its last-WQE event.
    owes_last_wqe: bool,
    /// When the last message that consumed a receive is delivered.
    delivered: Time,
    /// PSN of the next request.
    expected: Psn,
    /// Whether a NAK has told the requester that the expected request is missing.
    gap_revealed: bool,
    /// Results of the last atomic operations, for the case that their answers are lost.
    atomics: VecDeque<(Psn, u64)>,
    rnr_timer: Span,
    pub(super) answered: TransitTimes,
}

impl ReceiveQueue {
    pub(crate) fn new(from: Receives) -> Self {
        ReceiveQueue {
            from,
            receives: VecDeque::new(),
            failed: VecDeque::new(),
            in_use: 0,
            owes_last_wqe: false,
            delivered: Time::ZERO,
            expected: Psn::default(),
            gap_revealed: false,
            atomics: VecDeque::new(),
            rnr_timer: Span::ZERO,
            answered: TransitTimes::default(),
        }
    }

    /// Removes all receives; returns how many had failed without completing.
    pub(super) fn reset(&mut self) -> u32 {
        let failed = self.failed.len() as u32;
        self.receives.clear();
        self.failed.clear();
        self.in_use = 0;
        self.owes_last_wqe = false;
        failed
    }

    pub(super) fn apply(&mut self, attr: &QpAttr) {
        self.expected = attr.rq_psn.unwrap_or(self.expected);
        if let Some(timer) = attr.min_rnr_timer {
            self.rnr_timer = RnrTimer::span(timer);
        }
    }

    /// The shared receive queue, if it uses one.
    #[inline]
    pub(crate) fn shared(&self) -> Option<SrqIndex> {
        match self.from {
            Receives::Own { .. } => None,
            Receives::Shared(srq) => Some(srq),
        }
    }

    /// Returns how many of an operation's `length` bytes the completion of its receive carries.
    #[inline]
    pub(crate) fn inline(&self, operation: Operation, length: u64) -> u64 {
        let max = match self.from {
            Receives::Own { max_inl_recv } => max_inl_recv.into(),
            Receives::Shared(_) => 0,
        };
        match operation {
            Operation::Send | Operation::SendWithImm(_) if length <= max => length,
            _ => 0,
        }
    }

    /// How long the requester pauses after an RNR NAK.
    pub(crate) fn rnr_timer(&self) -> Span {
        self.rnr_timer
    }

    pub(crate) fn is_full(&self, depth: u32) -> bool {
        self.in_use >= depth
    }

    /// Adds a receive, which fails immediately if there is a `status`.
    pub(crate) fn post(&mut self, receive: Receive, status: Option<WcStatus>) {
        self.in_use += 1;
        match status {
            Some(status) => self.fail(receive.wr_id, status),
            None => self.receives.push_back(receive),
        }
    }

    /// Takes the next receive of its own queue.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Receive> {
        self.receives.pop_front()
    }

    /// Frees the entry of a receive whose completion was polled.
    pub(crate) fn free_one(&mut self) {
        self.in_use = self.in_use.saturating_sub(1);
    }

    /// Completes a receive without a message.
    pub(crate) fn fail(&mut self, receive: WrId, status: WcStatus) {
        self.failed.push_back((receive, status));
    }

    pub(crate) fn take_failed(&mut self) -> Option<(WrId, WcStatus)> {
        self.failed.pop_front()
    }

    /// Flushes the receives that no message has consumed, because the queue pair fails.
    pub(crate) fn flush(&mut self) {
        let flushed = std::mem::take(&mut self.receives).into_iter();
        self.failed
            .extend(flushed.map(|receive| (receive.wr_id, WcStatus::WrFlushErr)));
        self.owes_last_wqe = self.shared().is_some();
    }

    /// Returns, once, the shared receive queue that a failed queue pair will no longer use.
    pub(crate) fn take_last_wqe(&mut self) -> Option<SrqIndex> {
        let owes = std::mem::replace(&mut self.owes_last_wqe, false);
        self.shared().filter(|_| owes)
    }

    /// When the last message that consumed a receive is delivered.
    pub(crate) fn delivered(&self) -> Time {
        self.delivered
    }

    /// Returns when a message is delivered that could be visible at `visible`: not before an earlier message
    /// (IBTA vol. 1, 9.5).
    pub(crate) fn deliver(&mut self, visible: Time) -> Time {
        self.delivered = self.delivered.max(visible);
        self.delivered
    }

    /// Whether `psn` is the next expected PSN.
    pub(crate) fn expects(&self, psn: Psn) -> bool {
        self.expected == psn
    }

    pub(crate) fn expected(&self) -> Psn {
        self.expected
    }

    /// The request with this PSN is executed.
    pub(crate) fn executed(&mut self, psn: Psn) {
        self.expected = psn.advance(1);
        self.close_gap();
    }

    /// The expected packet has arrived: the next gap is another one.
    pub(crate) fn close_gap(&mut self) {
        self.gap_revealed = false;
    }

    /// A request arrives behind a gap; returns whether the requester does not know of the gap yet.
    pub(crate) fn reveal_gap(&mut self) -> bool {
        !std::mem::replace(&mut self.gap_revealed, true)
    }

    /// Keeps the result of an atomic operation.
    pub(crate) fn keep_atomic(&mut self, psn: Psn, old: u64) {
        if self.atomics.len() == KEPT_ATOMICS {
            self.atomics.pop_front();
        }
        self.atomics.push_back((psn, old));
    }

    /// Returns the result of an atomic operation that was executed before.
    pub(crate) fn atomic_result(&self, psn: Psn) -> Option<u64> {
        let kept = self.atomics.iter().find(|(kept, _)| *kept == psn);
        kept.map(|(_, old)| *old)
    }
}
