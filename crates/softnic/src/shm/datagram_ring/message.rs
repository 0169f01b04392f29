//! What lies in a cell, who holds it and who is to get it.

use crate::shm::layout::QP_INDEX_BITS;

/// A cell of a ring, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell(pub(super) u32);

impl Cell {
    /// Its number, below [`super::DatagramRing::cells`].
    pub fn number(self) -> usize {
        self.0 as usize
    }
}

/// Who claims a cell: never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(pub(super) u64);

impl Holder {
    /// A sender of the port in `slot`, whose owner has `epoch`.
    pub fn new(slot: u32, epoch: u64) -> Self {
        Holder(epoch << 32 | u64::from(slot + 1))
    }

    /// Whether it is of the port in `slot`.
    pub fn is_of(self, slot: u32) -> bool {
        self.0 as u32 == slot + 1
    }
}

/// What a message is, beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Bytes of payload.
    pub length: u32,
    /// The queue pair that it came from, 24 bits.
    pub source: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// What its receive gets before the payload.
    pub front: Front,
}

/// Who is to get a message, where several queue pairs share a ring: one life of a queue pair. A later
/// one does not get what was meant for an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addressee(pub(super) u32);

impl Addressee {
    /// The life `generation` of the queue pair at `index` of its owner's table.
    pub fn new(index: u32, generation: u64) -> Self {
        Addressee((generation as u32) << QP_INDEX_BITS | index)
    }

    /// Its index in its owner's table.
    pub fn index(self) -> u32 {
        self.0 & ((1 << QP_INDEX_BITS) - 1)
    }
}

/// What a receive gets before the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// The header of a message within this host, which the receiver makes.
    OfHost,
    /// What lies at [`super::DatagramRing::front`].
    Given,
}
