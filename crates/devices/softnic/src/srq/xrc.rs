//! XRC domains as shared receive queues and their requesters see them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use adverb_transport::{ReceiveWork, SharedReceives};
use adverb_verbs::Srqn;

use super::SrqInner;
use crate::shm::notify::Urgency;
use crate::shm::sync::lock;

/// The completion queue of an XRC shared receive queue.
pub(crate) trait ReceiveCompletions: fmt::Debug + Send + Sync {
    /// Returns its index in the table of the port.
    fn index(&self) -> u32;

    /// Polls the queue from now on.
    fn attach(&self, srq: &Arc<SrqInner>);

    /// Polls it no more.
    fn detach(&self, srq: &Arc<SrqInner>);

    /// The queue has got a completion.
    fn added(&self, urgency: Urgency);

    /// The queue may have got one: a requester of queue pair `index` has died.
    fn raise_anyway(&self, index: u32);

    /// Raises the event that a requester could not raise.
    fn raise_owed(&self);
}

/// The shared receive queues of a domain.
#[derive(Debug)]
pub(crate) struct XrcDomain {
    pub(crate) number: u32,
    queues: Mutex<Vec<(Srqn, Weak<SrqInner>)>>,
}

impl XrcDomain {
    pub(crate) fn new(number: u32) -> Self {
        XrcDomain {
            number,
            queues: Mutex::default(),
        }
    }

    pub(crate) fn add(&self, srqn: Srqn, srq: &Arc<SrqInner>) {
        lock(&self.queues).push((srqn, Arc::downgrade(srq)));
    }

    pub(crate) fn remove(&self, srqn: Srqn) {
        lock(&self.queues).retain(|(number, _)| *number != srqn);
    }

    /// Returns the queue with a number; `None` if it is not in the domain.
    pub(crate) fn queue(&self, srqn: Srqn) -> Option<Arc<SrqInner>> {
        let queues = lock(&self.queues);
        let (_, srq) = queues.iter().find(|(number, _)| *number == srqn)?;
        srq.upgrade()
    }

    pub(crate) fn queues(&self) -> Vec<Arc<SrqInner>> {
        let queues = lock(&self.queues);
        queues.iter().filter_map(|(_, srq)| srq.upgrade()).collect()
    }
}

/// What a receive queue pair has in place of receives.
#[derive(Debug)]
pub(crate) struct XrcTarget {
    pub(crate) domain: Arc<XrcDomain>,
    /// The queues of the requests that the UDP port has taken and not completed, oldest first.
    taken: Arc<Mutex<VecDeque<Arc<SrqInner>>>>,
}

impl XrcTarget {
    pub(crate) fn new(domain: Arc<XrcDomain>) -> Self {
        XrcTarget {
            domain,
            taken: Arc::default(),
        }
    }

    /// Returns the receives for the UDP port, as queue pair `index` takes them.
    pub(crate) fn receives(&self, index: u32) -> XrcReceives {
        lock(&self.taken).clear();
        XrcReceives {
            domain: self.domain.clone(),
            taken: self.taken.clone(),
            selected: None,
            holder: index as u16,
        }
    }

    /// Returns the queue of the oldest request that the UDP port has taken. Requests complete in this order.
    pub(crate) fn completes(&self) -> Option<Arc<SrqInner>> {
        lock(&self.taken).pop_front()
    }
}

/// The shared receive queues of a domain as the UDP port takes from them, for one queue pair.
#[derive(Debug)]
pub(crate) struct XrcReceives {
    domain: Arc<XrcDomain>,
    taken: Arc<Mutex<VecDeque<Arc<SrqInner>>>>,
    selected: Option<Arc<SrqInner>>,
    holder: u16,
}

impl SharedReceives for XrcReceives {
    fn select(&mut self, srqn: Srqn) -> bool {
        self.selected = self.domain.queue(srqn);
        self.selected.is_some()
    }

    fn take(&mut self) -> Option<ReceiveWork> {
        let srq = self.selected.as_ref()?;
        let work = srq.take_for(self.holder)?;
        lock(&self.taken).push_back(srq.clone());
        Some(work)
    }

    fn give_back(&mut self, work: ReceiveWork) {
        // The last one that was taken.
        if let Some(srq) = lock(&self.taken).pop_back() {
            srq.take_back(&work);
        }
    }
}
