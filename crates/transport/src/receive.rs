//! The receive queue: requests in the order in which messages take them.

use std::collections::VecDeque;

use crate::request::{PostError, ReceiveWork};

/// Receive requests that wait for messages.
#[derive(Debug)]
pub struct ReceiveQueue {
    waiting: VecDeque<ReceiveWork>,
    most: usize,
}

impl ReceiveQueue {
    /// A queue for at most so many requests.
    pub fn new(most: usize) -> Self {
        ReceiveQueue {
            waiting: VecDeque::with_capacity(most),
            most,
        }
    }

    /// Adds a request.
    ///
    /// # Errors
    /// The queue is full.
    pub fn post(&mut self, work: ReceiveWork) -> Result<(), PostError> {
        if self.waiting.len() == self.most {
            return Err(PostError::Full(self.most));
        }
        self.waiting.push_back(work);
        Ok(())
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn take(&mut self) -> Option<ReceiveWork> {
        self.waiting.pop_front()
    }

    /// Gives back a request whose message was dropped: it is the next again.
    pub(crate) fn give_back(&mut self, work: ReceiveWork) {
        self.waiting.push_front(work);
    }
}
