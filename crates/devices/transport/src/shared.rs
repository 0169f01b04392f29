//! The state that requester and responder of a queue pair share.

use std::collections::VecDeque;

use adverb_verbs::{QpState, Qpn, SendFlags, WcStatus};
use adverb_wire::{Service, UnknownOpcode};

use crate::completion::Completion;
use crate::drops::{Counters, DropReason};
use crate::request::{ReceiveWork, SendWork};

/// Completions that the driver has not polled, and counters.
#[derive(Debug)]
pub(crate) struct Shared {
    /// This queue pair.
    pub(crate) qpn: Qpn,
    pub(crate) completions: VecDeque<Completion>,
    pub(crate) counters: Counters,
}

impl Shared {
    pub(crate) fn new(qpn: Qpn, completions: usize) -> Self {
        Shared {
            qpn,
            completions: VecDeque::with_capacity(completions),
            counters: Counters::default(),
        }
    }

    /// Checks that a packet with this service (`None`: unknown) and `dest_qp` is for this queue pair, which has service
    /// `own` and is in `state`.
    #[inline]
    pub(crate) fn admit(
        &self,
        (own, state): (Service, QpState),
        (service, dest_qp): (Option<Service>, Qpn),
    ) -> Result<(), DropReason> {
        if service != Some(own) {
            return Err(DropReason::WrongService);
        }
        // The driver knows the members of multicast groups.
        let is_group = own == Service::Ud && dest_qp == Qpn::MULTICAST;
        if dest_qp != self.qpn && !is_group {
            return Err(DropReason::WrongQueuePair);
        }
        match state {
            QpState::Err => Err(DropReason::QueuePairInError),
            _ => Ok(()),
        }
    }

    /// Drops and counts a packet with an unknown opcode, for unreliable services; returns the reason.
    pub(crate) fn drop_unknown(
        &mut self,
        own: (Service, QpState),
        unknown: &UnknownOpcode,
    ) -> DropReason {
        let admitted = self.admit(own, (unknown.service(), unknown.dest_qp));
        let reason = admitted.err().unwrap_or(DropReason::UnknownOpcode);
        self.counters.count(Err(reason));
        reason
    }

    #[inline]
    pub(crate) fn complete(&mut self, completion: Completion) {
        self.completions.push_back(completion);
    }

    /// Completes a successful send request, if it is signaled.
    #[inline]
    pub(crate) fn complete_send(&mut self, request: &SendWork) {
        if request.flags.contains(SendFlags::SIGNALED) {
            let ended = self.of_send(request);
            self.complete(ended);
        }
    }

    /// Completes a failed send request, even if it is unsignaled.
    pub(crate) fn fail_send(&mut self, request: &SendWork, status: WcStatus) {
        let ended = self.of_send(request).with_status(status);
        self.complete(ended);
    }

    /// Completes a failed receive request.
    pub(crate) fn fail_receive(&mut self, receive: &ReceiveWork, status: WcStatus) {
        let ended = Completion::of_receive(self.qpn, receive.wr_id, 0);
        self.complete(ended.with_status(status));
    }

    #[inline]
    fn of_send(&self, request: &SendWork) -> Completion {
        let length = request.payload.length() as u32;
        Completion::of_send(self.qpn, request.wr_id, &request.work, length)
    }
}
