//! The NIC's unit for atomic operations: locks, and a queue per port in front of them.

use std::collections::VecDeque;

use adverb_units::Time;

use crate::host::memory::Range;
use crate::params;
use crate::resource::Server;

/// The NIC's unit for atomic operations.
#[derive(Debug)]
pub(crate) struct Atomics {
    /// Locks, by the low bits of the address.
    pub(crate) buckets: Vec<Server>,
    pub(crate) ports: Vec<Queue>,
    /// Operations that may be in flight, of all ports together.
    pub(crate) slots: usize,
    pub(crate) under_way: usize,
}

/// The operations of a port.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) waiting: VecDeque<Waiting>,
    /// The first one is to be looked at, at a time that is settled.
    pub(crate) is_settled: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) message: u32,
    pub(crate) bucket: usize,
    pub(crate) range: Range,
    /// When it has passed the receiving side.
    pub(crate) at: Time,
}

impl Atomics {
    pub(crate) fn new(n: &params::Nic, ports: usize) -> Self {
        let queue = |_| Queue {
            waiting: VecDeque::new(),
            is_settled: false,
        };
        Atomics {
            buckets: vec![Server::default(); n.atomic_buckets as usize],
            ports: (0..ports.max(1)).map(queue).collect(),
            slots: n.atomic_slots as usize,
            under_way: 0,
        }
    }
}
