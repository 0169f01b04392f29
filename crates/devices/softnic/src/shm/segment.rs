//! Files mapped into memory.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::shm::layout::{
    self, CqEntry, MAX_CQ, MAX_MR, MAX_QP, MAX_SLOTS, MAX_SRQ, MrEntry, OwnerRequestEntry, QpEntry,
    SenderEntry, SharedWords, SrqEntry,
};

/// A mapping of a whole file of shared memory. Dropping it unmaps the file.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping is an address range that any thread may use; its users decide who may access which byte.
unsafe impl Send for Mapping {}
// SAFETY: shared access to its bytes is by atomics (`at`), or by raw pointers whose users rule out races.
unsafe impl Sync for Mapping {}

/// Whether pages are faulted in at once or at first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Population {
    /// At once, so that no page fault occurs during a measurement.
    Now,
    /// At first use, for sparse files.
    Lazy,
}

impl Mapping {
    /// Maps the first `length` bytes of `file`, readable and writable, shared.
    pub(crate) fn new(file: &File, length: u64, population: Population) -> io::Result<Self> {
        Self::part(file, 0, length, population)
    }

    /// Maps `length` bytes of `file` from `offset` on, a multiple of the page size.
    pub(crate) fn part(
        file: &File,
        offset: u64,
        length: u64,
        population: Population,
    ) -> io::Result<Self> {
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let populate = match population {
            Population::Now => MapFlags::POPULATE,
            Population::Lazy => MapFlags::empty(),
        };
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | populate,
                file.as_fd(),
                offset,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, length })
    }

    /// Maps new memory of this process only.
    #[cfg(feature = "testing")]
    pub(crate) fn private(length: u64) -> io::Result<Self> {
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::PRIVATE)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, length })
    }

    /// Returns the address of the first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the length in bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Returns the `T` at byte `offset`.
    ///
    /// # Panics
    /// If it is not within the mapping or not aligned, which is an error in our layout.
    pub(crate) fn at<T: SharedWords>(&self, offset: usize) -> &T {
        let end = offset.checked_add(size_of::<T>());
        assert!(
            end.is_some_and(|end| end <= self.length) && offset.is_multiple_of(align_of::<T>())
        );
        // SAFETY: in bounds and aligned as asserted (the base is page-aligned), mapped while `self` lives;
        // `SharedWords` promises that any bytes are a valid `T`, which consists of atomics.
        unsafe { &*self.base.as_ptr().add(offset).cast() }
    }
}

/// A table of shared entries within a mapping.
#[derive(Debug)]
pub(crate) struct Table<T> {
    first: *const T,
    count: u32,
}

// SAFETY: the pointer stays valid on every thread, as the caller of `new` promised.
unsafe impl<T: SharedWords> Send for Table<T> {}
// SAFETY: entries consist of atomics (`SharedWords`), which threads may share.
unsafe impl<T: SharedWords> Sync for Table<T> {}

impl<T: SharedWords> Table<T> {
    /// Makes a table of the `count` entries at byte `offset` of `mapping`.
    ///
    /// # Safety
    /// The table must not be used after the mapping is dropped.
    ///
    /// # Panics
    /// If they are not within the mapping, which is an error in our layout.
    pub(crate) unsafe fn new(mapping: &Mapping, offset: usize, count: u32) -> Self {
        assert!(offset + count as usize * size_of::<T>() <= mapping.length());
        Table {
            first: mapping.at::<T>(offset),
            count,
        }
    }

    /// Returns entry `index`.
    ///
    /// # Panics
    /// If there is no such entry.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> &T {
        assert!(
            index < self.count,
            "no entry {index} in a table of {}",
            self.count
        );
        // SAFETY: within the table by the assertion, within the mapping as `new` checked, and
        // mapped as its caller promised.
        unsafe { &*self.first.add(index as usize) }
    }

    /// Returns entry `index`, if it exists.
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        (index < self.count).then(|| self.at(index))
    }
}

/// The tables of a port file.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) senders: Table<SenderEntry>,
    pub(crate) owner_requests: Table<OwnerRequestEntry>,
    pub(crate) qps: Table<QpEntry>,
    pub(crate) cqs: Table<CqEntry>,
    pub(crate) mrs: Table<MrEntry>,
    pub(crate) srqs: Table<SrqEntry>,
}

impl Tables {
    /// Returns the tables of a port file.
    ///
    /// # Safety
    /// They must not be used after the mapping is dropped.
    pub(crate) unsafe fn of(mapping: &Mapping) -> Self {
        // SAFETY: the caller promises that the tables are not used after the mapping is dropped.
        unsafe {
            Tables {
                senders: Table::new(mapping, layout::SENDERS, MAX_SLOTS),
                owner_requests: Table::new(mapping, layout::OWNER_REQUESTS, MAX_SLOTS),
                qps: Table::new(mapping, layout::QP_TABLE, MAX_QP),
                cqs: Table::new(mapping, layout::CQ_TABLE, MAX_CQ),
                mrs: Table::new(mapping, layout::MR_TABLE, MAX_MR),
                srqs: Table::new(mapping, layout::SRQ_TABLE, MAX_SRQ),
            }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the range. References into it borrow `self`, and raw pointers are kept only
        // together with an `Arc` of the mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// Allocates storage for `length` bytes at `offset` of `file`. So a full file system is an error here, not a
/// SIGBUS at a later access.
pub(crate) fn reserve(file: &File, offset: u64, length: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::empty(), offset, length)?)
}

/// Frees the storage of the first `length` bytes of `file`, even if other processes still map them.
pub(crate) fn release(file: &File, length: u64) -> io::Result<()> {
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, punch, 0, length)?)
}
