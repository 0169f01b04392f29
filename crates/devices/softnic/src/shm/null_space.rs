//! The address space of null memory regions, and the table of a port's null regions.
//!
//! A null region consists of two regions of address space of this process: one reads as zeros, the other, whose key the
//! program has, is the same few pages over and over. The elements of a request that name a null region are replaced by
//! elements of one of these when the request is posted, so nothing else in the device knows null regions.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, OnceLock};

use adverb_verbs::{Lkey, RecvRequest, SendFlags, SendRequest, Sge};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use crate::shm::sync::lock;

/// Length of the address space: an element of a request has at most 4 GiB - 1 B.
pub(crate) const LENGTH: usize = 1 << 32;
/// The pages to which what is discarded is written.
const PAGES: usize = 1 << 22;

/// The null regions of a port: by the key of the program, which is the sink's, the element of all zeros.
#[derive(Debug, Default)]
pub(crate) struct NullRegions {
    /// There has been one. Each post reads it.
    exist: std::sync::atomic::AtomicBool,
    zeros: Mutex<HashMap<u32, Lkey>>,
}

/// The address space of all null regions of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pub(crate) zeros: usize,
    pub(crate) sink: usize,
}

impl Space {
    /// Reserves the address space, once.
    pub(crate) fn get() -> io::Result<Self> {
        static SPACE: OnceLock<Space> = OnceLock::new();
        if let Some(space) = SPACE.get() {
            return Ok(*space);
        }
        let made = Self::make()?;
        // If another thread was faster, its space is used, and this one stays.
        Ok(*SPACE.get_or_init(|| made))
    }

    fn make() -> io::Result<Self> {
        let memory = memfd_create("adverb-null", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, PAGES as u64)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let nowhere = std::ptr::null_mut();
        // SAFETY: new mappings; the last ones replace parts of the one before them, which nothing uses yet.
        unsafe {
            let zeros = mmap_anonymous(nowhere, LENGTH, ProtFlags::READ, flags)?;
            let sink = mmap_anonymous(nowhere, LENGTH, ProtFlags::empty(), flags)?;
            let access = ProtFlags::READ | ProtFlags::WRITE;
            for offset in (0..LENGTH).step_by(PAGES) {
                let part = sink.wrapping_byte_add(offset);
                let flags = MapFlags::SHARED | MapFlags::FIXED;
                mmap(part, PAGES, access, flags, &memory, 0)?;
            }
            Ok(Space {
                zeros: zeros.expose_provenance(),
                sink: sink.expose_provenance(),
            })
        }
    }
}

/// An address range of this process that is not the program's: a part of a null region, or empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnRange {
    pub(crate) first: usize,
    pub(crate) length: usize,
}

impl OwnRange {
    pub(crate) fn base(self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.first)
    }
}

/// Copies of the elements of requests, in which null regions are replaced.
pub(crate) type Replaced = Vec<Vec<Sge<'static>>>;

impl NullRegions {
    /// Whether a request may name a null region.
    #[inline]
    pub(crate) fn exist(&self) -> bool {
        self.exist.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Adds a region by the keys of its parts.
    pub(crate) fn add(&self, sink: Lkey, zeros: Lkey) {
        lock(&self.zeros).insert(sink.0, zeros);
        (self.exist).store(true, std::sync::atomic::Ordering::Release);
    }

    pub(crate) fn remove(&self, sink: Lkey) {
        lock(&self.zeros).remove(&sink.0);
    }

    /// Whether this is the key of a null region.
    pub(crate) fn has(&self, lkey: Lkey) -> bool {
        self.exist() && lock(&self.zeros).contains_key(&lkey.0)
    }

    /// Returns the elements of send requests.
    #[cold]
    pub(crate) fn replace_in_sends(&self, requests: &[SendRequest<'_>]) -> Replaced {
        let elements = requests.iter().map(|request| {
            let is_inline = request.flags.contains(SendFlags::INLINE);
            let writes = request.operation.writes_local_memory();
            self.replace(request.sges, (!is_inline).then_some(writes))
        });
        elements.collect()
    }

    /// Returns the elements of receive requests.
    #[cold]
    pub(crate) fn replace_in_receives(&self, requests: &[RecvRequest<'_>]) -> Replaced {
        let elements = requests.iter();
        elements.map(|r| self.replace(r.sges, Some(true))).collect()
    }

    /// Copies elements, which are written or only read; `None`: they have no keys.
    fn replace(&self, sges: &[Sge<'_>], writes: Option<bool>) -> Vec<Sge<'static>> {
        let known = lock(&self.zeros);
        let replaced = sges.iter().map(|sge| {
            let (mut addr, mut lkey) = (sge.addr(), sge.lkey());
            if let Some(writes) = writes
                && let Some(zeros) = known.get(&lkey.0)
                && let Ok(space) = Space::get()
            {
                (addr, lkey) = match writes {
                    true => (space.sink as u64, lkey),
                    false => (space.zeros as u64, *zeros),
                };
            }
            // SAFETY: the copy is used as the original, whose memory outlives the call in which both are used.
            unsafe { Sge::from_raw(addr, sge.length(), lkey) }
        });
        replaced.collect()
    }
}

/// Returns requests with other elements.
pub(crate) fn sends_of<'a>(
    requests: &[SendRequest<'a>],
    replaced: &'a Replaced,
) -> Vec<SendRequest<'a>> {
    let both = requests.iter().zip(replaced);
    both.map(|(request, sges)| request.with_sges(sges))
        .collect()
}

/// Returns requests with other elements.
pub(crate) fn receives_of<'a>(
    requests: &[RecvRequest<'_>],
    replaced: &'a Replaced,
) -> Vec<RecvRequest<'a>> {
    let both = requests.iter().zip(replaced);
    both.map(|(request, sges)| RecvRequest::new(request.wr_id, sges))
        .collect()
}
