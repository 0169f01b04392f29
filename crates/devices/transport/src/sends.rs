//! The send queue of UC and UD, whose requests complete when they are sent. If a request's memory is not accessible, the
//! queue stops (SQE) until it is resumed, and the queue pair continues to receive (IBTA vol. 1, 10.3.1.6).

use std::collections::VecDeque;

use adverb_verbs::{QpState, WcStatus};

use crate::request::{PostError, SendWork};
use crate::shared::Shared;

/// A posted request, for UD with its destination.
pub(crate) trait Outgoing {
    fn work(&self) -> &SendWork;
}

impl Outgoing for SendWork {
    fn work(&self) -> &SendWork {
        self
    }
}

/// The posted requests, and the state of the send queue.
#[derive(Debug)]
pub(crate) struct Sends<R> {
    state: QpState,
    waiting: VecDeque<R>,
    most: usize,
}

impl<R: Outgoing> Sends<R> {
    pub(crate) fn new(most: usize) -> Self {
        Sends {
            state: QpState::Rts,
            waiting: VecDeque::with_capacity(most),
            most,
        }
    }

    /// Returns the state: `Rts`, `Sqe` or `Err`.
    pub(crate) const fn state(&self) -> QpState {
        self.state
    }

    /// Checks that there is room for another request.
    ///
    /// # Errors
    /// The queue is full.
    pub(crate) fn has_room(&self) -> Result<(), PostError> {
        match self.waiting.len() == self.most {
            true => Err(PostError::Full(self.most)),
            false => Ok(()),
        }
    }

    /// Adds a request after [`Self::has_room`]. In SQE and in the error state it is flushed at once.
    pub(crate) fn post(&mut self, request: R, shared: &mut Shared) {
        self.waiting.push_back(request);
        if self.state != QpState::Rts {
            self.flush(shared);
        }
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&R> {
        self.waiting.front()
    }

    /// Completes the first request, which was sent.
    #[inline]
    pub(crate) fn complete_front(&mut self, shared: &mut Shared) {
        if let Some(request) = self.waiting.pop_front() {
            shared.complete_send(request.work());
        }
    }

    /// Completes the first request with a protection error, and stops.
    pub(crate) fn fail_front(&mut self, shared: &mut Shared) {
        if let Some(request) = self.waiting.pop_front() {
            shared.fail_send(request.work(), WcStatus::LocProtErr);
        }
        self.state = QpState::Sqe;
        self.flush(shared);
    }

    /// Resumes sending (`Sqe` to `Rts`).
    pub(crate) fn resume(&mut self) {
        if self.state == QpState::Sqe {
            self.state = QpState::Rts;
        }
    }

    /// Moves to the error state, and flushes all requests.
    pub(crate) fn end(&mut self, shared: &mut Shared) {
        self.state = QpState::Err;
        self.flush(shared);
    }

    fn flush(&mut self, shared: &mut Shared) {
        while let Some(request) = self.waiting.pop_front() {
            shared.fail_send(request.work(), WcStatus::WrFlushErr);
        }
    }
}
