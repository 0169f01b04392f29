//! CPU load: threads that work while a program is measured.

use adverb_units::Bytes;

/// A node of a machine with two sockets, as seen from its NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// The NIC's own.
    Nic,
    /// The other one.
    Other,
    /// Both, in turn.
    Both,
}

/// Threads of a machine that work while the program runs ([`crate::Cluster::load`]).
///
/// If there are more threads than the node has CPUs, they take turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuLoad {
    /// Number of threads.
    pub threads: u32,
    /// The node that they run on.
    pub node: Node,
    /// What each thread does.
    pub work: Work,
}

/// What a thread of a load does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// It computes, on no memory or on memory that the NIC does not access.
    Own,
    /// It repeatedly walks through the beginning of the machine's first memory region.
    Walk {
        /// Number of bytes that it walks through.
        bytes: Bytes,
        /// What it does at each place.
        access: Access,
    },
}

/// What a walking thread does at each place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Access {
    /// Reads or writes one byte.
    Bytes {
        /// Share of writes, 0 to 1.
        writes: f64,
    },
    /// Compares and swaps 8 bytes until it succeeds.
    CompareSwap,
}
