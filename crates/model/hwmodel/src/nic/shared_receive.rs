//! A shared receive queue, and asynchronous events of a context.

use std::collections::VecDeque;

use adverb_verbs::{AsyncEvent, SrqCaps};

use crate::ids::MachineId;
use crate::nic::receive_queue::Receive;

/// A context of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) machine: MachineId,
    pub(crate) context: u32,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) owner: Owner,
    pub(crate) pd: u32,
    pub(crate) caps: SrqCaps,
    pub(crate) receives: VecDeque<Receive>,
    /// Receives posted and not polled.
    pub(crate) in_use: u32,
    /// 0: not armed.
    pub(crate) limit: u32,
    /// The program's handle, and queue pairs that take from it.
    pub(crate) users: u32,
}

impl Srq {
    /// Of one user: the program's handle.
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

/// What happened to a context's objects, until the program asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingEvent {
    pub(crate) owner: Owner,
    pub(crate) event: AsyncEvent,
}
