//! The port's file: entries of its tables, and room for receive rings.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use adverb_verbs::CreateError;

use super::{Port, remedy};
use crate::shm::layout::{self, CqEntry, Header, MrEntry, OwnerRequestEntry, QpEntry, SrqEntry};
use crate::shm::segment::reserve;
use crate::shm::sync::lock;

/// An entry of one of the port file's tables.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TableEntry {
    Qp(u32),
    Cq(u32),
    Mr(u32),
    Srq(u32),
}

impl Port {
    #[inline]
    pub(crate) fn qp_entry(&self, index: u32) -> &QpEntry {
        self.tables.qps.at(index)
    }

    #[inline]
    pub(crate) fn cq_entry(&self, index: u32) -> &CqEntry {
        self.tables.cqs.at(index)
    }

    #[inline]
    pub(crate) fn mr_entry(&self, index: u32) -> &MrEntry {
        self.tables.mrs.at(index)
    }

    #[inline]
    pub(crate) fn srq_entry(&self, index: u32) -> &SrqEntry {
        self.tables.srqs.at(index)
    }

    /// Allocates storage for a table entry, so that no later access faults.
    pub(crate) fn reserve_entry(&self, entry: TableEntry) -> io::Result<()> {
        let (offset, length) = match entry {
            TableEntry::Qp(i) => (qp_offset(i), size_of::<QpEntry>()),
            TableEntry::Cq(i) => (cq_offset(i), size_of::<CqEntry>()),
            TableEntry::Mr(i) => (mr_offset(i), size_of::<MrEntry>()),
            TableEntry::Srq(i) => (srq_offset(i), size_of::<SrqEntry>()),
        };
        reserve(&self.file, offset as u64, length as u64)
    }

    /// Allocates `length` bytes for a receive ring. They contain what the last user left.
    pub(crate) fn take_ring(&self, length: u64) -> Result<Range<u64>, CreateError> {
        let exhausted = CreateError::Exhausted {
            what: "room for receive queues",
            limit: 1 << 30,
        };
        let range = lock(&self.arena).take(length).ok_or(exhausted)?;
        if let Err(source) = reserve(&self.file, range.start, range.end - range.start) {
            lock(&self.arena).give(range);
            return Err(self.no_room("allocate a receive queue", source));
        }
        Ok(range)
    }

    pub(crate) fn give_ring(&self, range: Range<u64>) {
        lock(&self.arena).give(range);
    }

    /// Allocates `length` bytes for a datagram ring of `slots` receives: one that was freed, or a new one, cleared.
    pub(crate) fn take_datagram_block(
        &self,
        slots: usize,
        length: u64,
    ) -> Result<Range<u64>, CreateError> {
        let mut blocks = lock(&self.datagram_blocks);
        if let Some(block) = blocks.get_mut(&slots).and_then(Vec::pop) {
            return Ok(block);
        }
        drop(blocks);
        let block = self.take_ring(length)?;
        // SAFETY: the range was just allocated within this port's mapping, and nothing else uses it.
        unsafe { std::ptr::write_bytes(self.address(block.start), 0, length as usize) };
        Ok(block)
    }

    pub(crate) fn give_datagram_block(&self, slots: usize, block: Range<u64>) {
        let mut blocks = lock(&self.datagram_blocks);
        blocks.entry(slots).or_default().push(block);
    }

    /// Returns the address of a byte of the port file.
    pub(crate) fn address(&self, offset: u64) -> *mut u8 {
        debug_assert!((offset as usize) < self.mapping.length());
        self.mapping.base().wrapping_add(offset as usize)
    }

    /// Returns the error for a failed allocation of storage.
    pub(crate) fn no_room(&self, action: &str, source: io::Error) -> CreateError {
        let action = format!("{action} in {}", self.dir.path().display());
        CreateError::System {
            action,
            remedy: remedy(&self.dir, &source),
            source,
        }
    }

    /// Returns the word by which peers know whether this process lives.
    pub(crate) fn engine_word(&self) -> &AtomicU32 {
        let header: &Header = self.mapping.at(0);
        &header.engine
    }

    /// Returns a bit per slot: whether its port has a request for this one.
    pub(crate) fn owner_request_bits(&self) -> &[AtomicU64] {
        let header: &Header = self.mapping.at(0);
        &header.owner_requests.0
    }

    /// Returns the owner request of the port in `slot`.
    pub(crate) fn owner_request(&self, slot: u32) -> &OwnerRequestEntry {
        self.tables.owner_requests.at(slot)
    }

    /// Returns the epoch of the port in `slot`, if its owner has sent datagrams to this port.
    pub(crate) fn sender(&self, slot: u32) -> Option<u64> {
        let epoch = self.tables.senders.at(slot).epoch.load(Ordering::Acquire);
        (epoch != 0).then_some(epoch)
    }
}

fn qp_offset(index: u32) -> usize {
    layout::QP_TABLE + index as usize * size_of::<QpEntry>()
}

fn cq_offset(index: u32) -> usize {
    layout::CQ_TABLE + index as usize * size_of::<CqEntry>()
}

fn mr_offset(index: u32) -> usize {
    layout::MR_TABLE + index as usize * size_of::<MrEntry>()
}

fn srq_offset(index: u32) -> usize {
    layout::SRQ_TABLE + index as usize * size_of::<SrqEntry>()
}
