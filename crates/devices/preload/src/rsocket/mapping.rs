//! The buffers that a program has mapped for its peer.

use adverb_softnic::SoftMr;
use adverb_verbs::MemoryRegion as _;

use super::wire::{Iomap, Target};
use crate::activity;

/// A buffer of the program that is registered.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) addr: u64,
    pub(super) length: usize,
    pub(super) offset: u64,
    /// Its entry in the peer's list; `None` if it is for local use only.
    pub(super) index: Option<u32>,
    pub(super) is_announced: bool,
    pub(super) memory: SoftMr,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        activity::deregistered(self.length);
    }
}

/// The buffers that a program has mapped on an rsocket.
#[derive(Debug, Default)]
pub(super) struct Iomaps(pub(super) Vec<Mapping>);

impl Iomaps {
    /// Returns the next entry to write to the peer's list.
    pub(super) fn next_change(&mut self) -> Option<(u32, Iomap)> {
        let pending = |mapping: &&mut Mapping| !mapping.is_announced;
        let mapping = self.0.iter_mut().find(pending)?;
        mapping.is_announced = true;
        let entry = Iomap {
            offset: mapping.offset,
            target: Target {
                addr: mapping.addr,
                key: mapping.memory.rkey().0,
                length: mapping.length as u32,
            },
        };
        Some((mapping.index?, entry))
    }

    pub(super) fn has_changes(&self) -> bool {
        self.0.iter().any(|mapping| !mapping.is_announced)
    }

    /// Returns the first of the peer's `count` entries that no buffer has.
    pub(super) fn free_index(&self, count: u32) -> Option<u32> {
        (0..count).find(|index| self.0.iter().all(|m| m.index != Some(*index)))
    }
}
