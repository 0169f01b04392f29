//! The memory regions that this process has registered, for access by packets, and its memory windows.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::pages::{NotShared, PagesOf, Reach};
use crate::shm::null_space::OwnRange;
use adverb_verbs::Rkey;

use crate::shm::layout::{KEY_BYTE, mr_index};
use crate::shm::segment::Mapping;

/// The memory of a region. A file is unmapped when the last user drops it.
#[derive(Debug)]
pub(crate) enum LocalRegion {
    /// A file of shared memory that was allocated for it.
    File(Mapping),
    /// Memory that the program already had.
    Program(ProgramMemory),
    /// A part of a null region, or an empty region.
    Null(OwnRange),
    /// As `Program`, but mapped by a test's device.
    #[cfg(feature = "testing")]
    Private(Mapping),
}

/// An address range of the program.
#[derive(Debug)]
pub(crate) struct ProgramMemory {
    base: NonNull<u8>,
    length: usize,
    reach: Reach,
}

// SAFETY: an address range that any thread may use, as whoever registered it promised (`SoftContext::register`).
unsafe impl Send for ProgramMemory {}
// SAFETY: its bytes are only accessed by raw pointers, and may be written by anybody at any time.
unsafe impl Sync for ProgramMemory {}

impl ProgramMemory {
    pub(crate) fn new(base: NonNull<u8>, length: usize, reach: Reach) -> Self {
        ProgramMemory {
            base,
            length,
            reach,
        }
    }
}

impl LocalRegion {
    /// Returns the address of the first byte in this process.
    pub(crate) fn base(&self) -> *mut u8 {
        match self {
            LocalRegion::File(mapping) => mapping.base(),
            LocalRegion::Program(memory) => memory.base.as_ptr(),
            LocalRegion::Null(range) => range.base(),
            #[cfg(feature = "testing")]
            LocalRegion::Private(mapping) => mapping.base(),
        }
    }

    /// Returns the pages that peers map, if it is program memory with shared pages.
    pub(crate) fn shared_pages(&self) -> Option<PagesOf> {
        match self {
            LocalRegion::Program(memory) => match &memory.reach {
                Reach::Mapped(sharing) => Some(sharing.pages),
                Reach::Address { .. } => None,
            },
            _ => None,
        }
    }

    /// Returns why its pages are not shared, if it is program memory that is reached by address.
    pub(crate) fn why_not_shared(&self) -> Option<NotShared> {
        match self {
            LocalRegion::Program(memory) => match memory.reach {
                Reach::Mapped(_) => None,
                Reach::Address { reason, .. } => Some(reason),
            },
            _ => None,
        }
    }

    /// Returns the length in bytes.
    pub(crate) fn length(&self) -> u64 {
        let length = match self {
            LocalRegion::File(mapping) => mapping.length(),
            LocalRegion::Program(memory) => memory.length,
            LocalRegion::Null(range) => range.length,
            #[cfg(feature = "testing")]
            LocalRegion::Private(mapping) => mapping.length(),
        };
        length as u64
    }
}

/// The regions of a port by their index. Each access of a packet looks its region up, so this is not a hash table.
#[derive(Debug, Default)]
pub(crate) struct RegionTable(Vec<Option<Arc<LocalRegion>>>);

impl RegionTable {
    pub(crate) fn insert(&mut self, index: u32, region: &Arc<LocalRegion>) {
        let index = index as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        self.0[index] = Some(region.clone());
    }

    pub(crate) fn remove(&mut self, index: u32) {
        if let Some(place) = self.0.get_mut(index as usize) {
            *place = None;
        }
    }

    /// Returns the regions of memory that the program already had.
    pub(crate) fn program_memory(&self) -> impl Iterator<Item = &LocalRegion> {
        let regions = self.0.iter().flatten().map(|region| &**region);
        regions.filter(|region| !matches!(region, LocalRegion::File(_)))
    }

    /// Returns the region at the index of `key`. The caller has to compare the region's key with `key`.
    #[inline]
    pub(crate) fn at(&self, key: u32) -> Option<&Arc<LocalRegion>> {
        self.0.get(mr_index(key) as usize)?.as_ref()
    }
}

/// Type of a memory window (`ibv_mw_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowType {
    /// Bound by `ibv_bind_mw`, for all queue pairs of the protection domain.
    Type1,
    /// Bound by a work request, for its queue pair.
    Type2,
}

/// The windows of a port by their index in the table of keys.
pub(crate) type Windows = HashMap<u32, Window>;

/// What a window is. What it is bound to is in its entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Any of its keys.
    pub(crate) key: u32,
    pub(crate) pd: u32,
    pub(crate) kind: WindowType,
}

impl Window {
    /// Whether `rkey` is one of its keys.
    pub(crate) const fn has_key(&self, rkey: Rkey) -> bool {
        (self.key ^ rkey.0) & !KEY_BYTE == 0
    }
}
