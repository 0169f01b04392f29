//! A queue pair's receive queue: receives, in which order messages are delivered, and the responder's PSN.

use std::collections::VecDeque;

use adverb_units::{Span, Time};
use adverb_verbs::{Operation, Psn, QpAttr, RnrTimer, WcStatus, WrId};

use crate::host::memory::{Pieces, Ranges};
use crate::ids::SrqIndex;
use crate::nic::port::Passage;

/// A receive request.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) wr_id: WrId,
    pub(crate) pieces: Pieces,
}

/// A receive that a message has consumed.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) wr_id: WrId,
    /// Its memory.
    pub(crate) ranges: Ranges,
    pub(crate) status: WcStatus,
    /// Bytes before the payload (the global routing header of a datagram).
    pub(crate) header: u32,
}

/// Where a queue pair takes its receives from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receives {
    /// Its own queue; completions carry payloads of up to this many bytes.
    Own { max_inl_recv: u32 },
    /// The shared receive queue of this number.
    Shared(SrqIndex),
}

/// The receive queue of a queue pair.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    from: Receives,
    receives: VecDeque<Receive>,
    /// Receives that complete without a message, after those before them have completed.
    failed: VecDeque<(WrId, WcStatus)>,
    /// Receives posted and not polled.
    in_use: u32,
    /// Whether the queue pair has failed, and its last-WQE event is still to come.
    owes_last_wqe: bool,
    /// When the last message that consumed a receive is delivered.
    delivered: Time,
    /// PSN of the next request.
    expected: Psn,
    rnr_timer: Span,
    /// The way of the last answer.
    pub(super) answered: Passage,
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
            rnr_timer: Span::ZERO,
            answered: Passage::default(),
        }
    }

    /// Forgets all receives; returns how many had failed and had not completed.
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

    /// The shared receive queue that it takes from.
    #[inline]
    pub(crate) fn shared(&self) -> Option<SrqIndex> {
        match self.from {
            Receives::Own { .. } => None,
            Receives::Shared(srq) => Some(srq),
        }
    }

    /// Of the `length` bytes that an operation brings, those that the completion of its receive carries.
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

    /// How long a requester pauses after an RNR NAK.
    pub(crate) fn rnr_timer(&self) -> Span {
        self.rnr_timer
    }

    pub(crate) fn is_full(&self, depth: u32) -> bool {
        self.in_use >= depth
    }

    /// Adds a receive; `status` is how it fails at once, if it does.
    pub(crate) fn post(&mut self, receive: Receive, status: Option<WcStatus>) {
        self.in_use += 1;
        match status {
            Some(status) => self.fail(receive.wr_id, status),
            None => self.receives.push_back(receive),
        }
    }

    /// Takes the next receive of its own.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Receive> {
        self.receives.pop_front()
    }

    /// A receive's completion was polled: there is room for another one.
    pub(crate) fn free_one(&mut self) {
        self.in_use = self.in_use.saturating_sub(1);
    }

    /// Lets a receive complete without a message.
    pub(crate) fn fail(&mut self, receive: WrId, status: WcStatus) {
        self.failed.push_back((receive, status));
    }

    pub(crate) fn take_failed(&mut self) -> Option<(WrId, WcStatus)> {
        self.failed.pop_front()
    }

    /// The queue pair fails: flushes its own receives that no message has consumed.
    pub(crate) fn flush(&mut self) {
        let flushed = std::mem::take(&mut self.receives).into_iter();
        self.failed
            .extend(flushed.map(|receive| (receive.wr_id, WcStatus::WrFlushErr)));
        self.owes_last_wqe = self.shared().is_some();
    }

    /// The shared receive queue whose owner is to be told, once, that a failed queue pair takes no more.
    pub(crate) fn take_last_wqe(&mut self) -> Option<SrqIndex> {
        let owes = std::mem::replace(&mut self.owes_last_wqe, false);
        self.shared().filter(|_| owes)
    }

    /// When the last message that consumed a receive is delivered.
    pub(crate) fn delivered(&self) -> Time {
        self.delivered
    }

    /// A message can be seen at `visible` at the earliest. Returns when it is delivered: never before an
    /// earlier one (IBTA vol. 1, 9.5).
    pub(crate) fn deliver(&mut self, visible: Time) -> Time {
        self.delivered = self.delivered.max(visible);
        self.delivered
    }

    /// Whether a request of an RC queue pair is the next one.
    pub(crate) fn expects(&self, psn: Psn) -> bool {
        self.expected == psn
    }

    /// The request of this PSN is carried out.
    pub(crate) fn carried_out(&mut self, psn: Psn) {
        self.expected = psn.advance(1);
    }
}
