//! What requester and responder of a queue pair both write to.

use std::collections::VecDeque;

use adverb_verbs::{Qpn, SendFlags, WcStatus};

use crate::completion::Completion;
use crate::drops::Counters;
use crate::request::{ReceiveWork, SendWork};

/// Completions that the driver has not taken, and counters.
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

    #[inline]
    pub(crate) fn complete(&mut self, completion: Completion) {
        self.completions.push_back(completion);
    }

    /// A send request was carried out: its completion, if it has one.
    #[inline]
    pub(crate) fn complete_send(&mut self, request: &SendWork) {
        if request.flags.contains(SendFlags::SIGNALED) {
            let ended = self.of_send(request);
            self.complete(ended);
        }
    }

    /// A send request failed: that is always told.
    pub(crate) fn fail_send(&mut self, request: &SendWork, status: WcStatus) {
        let ended = self.of_send(request).with_status(status);
        self.complete(ended);
    }

    /// A receive request failed.
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
