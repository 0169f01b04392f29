//! A message in a cell, the cell's holder and the message's addressee.

use crate::shm::layout::QP_INDEX_BITS;

/// A cell of a ring, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell(pub(super) u32);

impl Cell {
    /// Returns its number, below [`super::DatagramRing::cells`].
    pub fn number(self) -> usize {
        self.0 as usize
    }
}

/// The holder of a cell; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(pub(super) u64);

impl Holder {
    /// A sender in the port in `slot`, whose owner has `epoch`.
    pub fn new(slot: u32, epoch: u64) -> Self {
        Holder(epoch << 32 | u64::from(slot + 1))
    }

    /// Whether it is in the port in `slot`.
    pub fn is_of(self, slot: u32) -> bool {
        self.0 as u32 == slot + 1
    }
}

/// A message without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Length of the payload in bytes.
    pub length: u32,
    /// The source queue pair, 24 bits.
    pub source: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// What precedes the payload in the receive.
    pub grh: GrhSource,
}

/// The addressee of a message, if several queue pairs share a ring: one generation of a queue pair. After a
/// RESET, the queue pair does not receive messages to an earlier generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addressee(pub(super) u32);

impl Addressee {
    /// Generation `generation` of the queue pair at `index` of its owner's table.
    pub fn new(index: u32, generation: u64) -> Self {
        Addressee((generation as u32) << QP_INDEX_BITS | index)
    }

    /// Returns its index in its owner's table.
    pub fn index(self) -> u32 {
        self.0 & ((1 << QP_INDEX_BITS) - 1)
    }
}

/// Where the global routing header of a receive comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrhSource {
    /// The message is of this host, and the receiver generates the header.
    Local,
    /// The bytes at [`super::DatagramRing::grh`].
    Received,
}
