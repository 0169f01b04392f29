//! A shared receive queue, and pending asynchronous events.

use std::collections::VecDeque;

use adverb_verbs::{AsyncEvent, SrqCaps};

use crate::ids::MachineId;
use crate::nic::receive_queue::Receive;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) machine: MachineId,
    pub(crate) context: u32,
}

#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) owner: Owner,
    pub(crate) pd: u32,
    pub(crate) caps: SrqCaps,
    pub(crate) receives: VecDeque<Receive>,
    /// Receives that are posted, and whose completions are not polled.
    pub(crate) in_use: u32,
    /// 0: not armed.
    pub(crate) limit: u32,
    /// Number of users: the program's handle, and queue pairs.
    pub(crate) users: u32,
}

impl Srq {
    /// An empty queue with one user, the program's handle.
    pub(crate) fn new(owner: Owner, pd: u32, caps: SrqCaps) -> Self {
        Srq {
            owner,
            pd,
            caps,
            receives: VecDeque::new(),
            in_use: 0,
            limit: 0,
            users: 1,
        }
    }
}

/// An asynchronous event that the program has not polled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingEvent {
    pub(crate) owner: Owner,
    pub(crate) event: AsyncEvent,
}
