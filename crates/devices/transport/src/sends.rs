//! The send queue of UC and UD, whose requests are done when they are sent. Wrong memory stops it until
//! it is resumed, while receiving goes on (IBTA vol. 1, 10.3.1.6).

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

/// Requests in their order, and the state that they leave the queue pair in.
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

    /// Ready (`Rts`), stopped (`Sqe`), or ended with the queue pair (`Err`).
    pub(crate) const fn state(&self) -> QpState {
        self.state
    }

    /// Whether there is room for another request.
    ///
    /// # Errors
    /// The queue is full.
    pub(crate) fn has_room(&self) -> Result<(), PostError> {
        match self.waiting.len() == self.most {
            true => Err(PostError::Full(self.most)),
            false => Ok(()),
        }
    }

    /// Adds a request that [`Self::has_room`]; in an error state it completes at once, flushed.
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

    /// The first is sent, and with that it is done.
    #[inline]
    pub(crate) fn complete_front(&mut self, shared: &mut Shared) {
        if let Some(request) = self.waiting.pop_front() {
            shared.complete_send(request.work());
        }
    }

    /// The first request's memory is wrong.
    pub(crate) fn fail_front(&mut self, shared: &mut Shared) {
        if let Some(request) = self.waiting.pop_front() {
            shared.fail_send(request.work(), WcStatus::LocProtErr);
        }
        self.state = QpState::Sqe;
        self.flush(shared);
    }

    /// From stopped back to sending (`Sqe` to `Rts`).
    pub(crate) fn resume(&mut self) {
        if self.state == QpState::Sqe {
            self.state = QpState::Rts;
        }
    }

    /// The queue pair ends.
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
