//! What requester and responder of a queue pair both write to.

use std::collections::VecDeque;

use adverb_verbs::Qpn;

use crate::completion::Completion;
use crate::drops::Counters;

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

    pub(crate) fn complete(&mut self, completion: Completion) {
        self.completions.push_back(completion);
    }
}
