//! The NIC's unit for atomic operations: locks, and a queue per port.

use std::collections::VecDeque;

use adverb_units::{Span, Time};

use crate::host::memory::Range;
use crate::params;
use crate::resource::Server;

#[derive(Debug)]
pub(crate) struct Atomics {
    /// Locks, by the low bits of the address.
    pub(crate) buckets: Vec<Server>,
    pub(crate) ports: Vec<PortQueue>,
    /// Largest number of operations in flight, over all ports.
    pub(crate) slots: usize,
    pub(crate) in_flight: usize,
    /// How long operations were in flight, all together.
    pub(crate) worked: Span,
}

#[derive(Debug)]
pub(crate) struct PortQueue {
    pub(crate) waiting: VecDeque<WaitingAtomic>,
    /// Whether an event for the first operation is scheduled.
    pub(crate) is_scheduled: bool,
    /// How long it waited for locks.
    pub(crate) blocked: Span,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingAtomic {
    pub(crate) message: u32,
    pub(crate) bucket: usize,
    pub(crate) range: Range,
    /// When it has passed the receive side.
    pub(crate) at: Time,
}

impl Atomics {
    pub(crate) fn new(n: &params::NicParams, ports: usize) -> Self {
        let queue = |_| PortQueue {
            waiting: VecDeque::new(),
            is_scheduled: false,
            blocked: Span::ZERO,
        };
        Atomics {
            buckets: vec![Server::default(); n.atomic_buckets as usize],
            ports: (0..ports.max(1)).map(queue).collect(),
            slots: n.atomic_slots as usize,
            in_flight: 0,
            worked: Span::ZERO,
        }
    }
}
