//! CPU load: threads of a machine that work while a program is measured.

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

/// Threads of a machine that work as long as the program runs ([`crate::Cluster::load`]).
///
/// More threads than the node has CPUs take turns on them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuLoad {
    /// How many.
    pub threads: u32,
    /// Where.
    pub node: Node,
    /// At what.
    pub work: Work,
}

/// What such a thread does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Work {
    /// It computes, without memory; or with memory of its own, which the NIC never touches.
    Own,
    /// It walks through the beginning of the memory that the machine registered first, again and again.
    Walk {
        /// How much of it.
        bytes: Bytes,
        /// What it does there.
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
