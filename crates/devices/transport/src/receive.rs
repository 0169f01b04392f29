//! The source of a queue pair's receive requests: its own queue, or a shared receive queue.

use std::collections::VecDeque;
use std::fmt;

use adverb_verbs::Srqn;

use crate::request::{PostError, ReceiveWork};

/// Receive requests in the order in which messages take them.
#[derive(Debug)]
pub struct ReceiveQueue(Source);

#[derive(Debug)]
enum Source {
    Own {
        waiting: VecDeque<ReceiveWork>,
        most: usize,
    },
    Shared(Box<dyn SharedReceives>),
}

/// A shared receive queue (IBTA vol. 1, 10.2.9), as one of its queue pairs sees it. The queue pair owns a request that it
/// takes until it completes it, flushes it or gives it back.
pub trait SharedReceives: fmt::Debug + Send {
    /// Takes the oldest request; `None` if none is posted.
    fn take(&mut self) -> Option<ReceiveWork>;

    /// Takes back a request whose message was dropped. It may be used for another message.
    fn give_back(&mut self, work: ReceiveWork);

    /// XRC: selects the queue from which the next requests are taken. Returns false if the queue pair's domain has no
    /// such queue.
    fn select(&mut self, srqn: Srqn) -> bool {
        let _ = srqn;
        false
    }
}

impl ReceiveQueue {
    /// Makes a queue of at most `most` requests.
    pub fn new(most: usize) -> Self {
        ReceiveQueue(Source::Own {
            waiting: VecDeque::with_capacity(most),
            most,
        })
    }

    /// Takes requests from a shared receive queue, to which they are posted directly.
    pub fn shared(receives: impl SharedReceives + 'static) -> Self {
        ReceiveQueue(Source::Shared(Box::new(receives)))
    }

    /// Adds a request.
    ///
    /// # Errors
    /// The queue is full, or shared.
    pub fn post(&mut self, work: ReceiveWork) -> Result<(), PostError> {
        match &mut self.0 {
            Source::Own { waiting, most } if waiting.len() == *most => Err(PostError::Full(*most)),
            Source::Own { waiting, .. } => {
                waiting.push_back(work);
                Ok(())
            }
            Source::Shared(_) => Err(PostError::SharedReceives),
        }
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<ReceiveWork> {
        match &mut self.0 {
            Source::Own { waiting, .. } => waiting.pop_front(),
            Source::Shared(receives) => receives.take(),
        }
    }

    /// Gives back a request whose message was dropped. It is used for the next message, unless another queue pair takes it
    /// first.
    pub(crate) fn give_back(&mut self, work: ReceiveWork) {
        match &mut self.0 {
            Source::Own { waiting, .. } => waiting.push_front(work),
            Source::Shared(receives) => receives.give_back(work),
        }
    }

    /// XRC: selects the queue of the next message. Returns false if there is no such queue.
    pub(crate) fn select(&mut self, srqn: Srqn) -> bool {
        match &mut self.0 {
            Source::Own { .. } => false,
            Source::Shared(receives) => receives.select(srqn),
        }
    }

    /// Takes a request to flush. Requests of a shared receive queue are not flushed with a queue pair.
    pub(crate) fn take_to_flush(&mut self) -> Option<ReceiveWork> {
        match &mut self.0 {
            Source::Own { waiting, .. } => waiting.pop_front(),
            Source::Shared(_) => None,
        }
    }
}
