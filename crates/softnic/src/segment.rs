//! Files mapped into memory.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::layout::{
    self, CqEntry, MAX_CQ, MAX_MR, MAX_QP, MAX_SLOTS, MAX_SRQ, MrEntry, QpEntry, SenderEntry,
    SrqEntry,
};

/// A file of shared memory, mapped whole. Unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping is an address range; who may touch which byte is decided by its users.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Whether pages are faulted in at once or at first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Population {
    /// All now: no page fault in a measurement.
    Now,
    /// When used: for sparse files.
    Lazy,
}

impl Mapping {
    /// Maps the first `length` bytes of `file`, readable and writable, shared.
    pub(crate) fn new(file: &File, length: u64, population: Population) -> io::Result<Self> {
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
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, length })
    }

    /// First byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Length in bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The `T` at byte `offset`.
    ///
    /// `T` is a struct of atomics, for which every bit pattern is valid.
    ///
    /// # Panics
    /// If it does not lie within the mapping or is not aligned: an offset of ours is wrong.
    pub(crate) fn at<T: SharedWords>(&self, offset: usize) -> &T {
        let end = offset.checked_add(size_of::<T>());
        assert!(
            end.is_some_and(|end| end <= self.length) && offset.is_multiple_of(align_of::<T>())
        );
        // SAFETY: in bounds and aligned as asserted (the base is page-aligned), mapped while self
        // lives, and `SharedWords` promises that any bytes are a valid T that is only atomics.
        unsafe { &*self.base.as_ptr().add(offset).cast() }
    }
}

/// A table of shared entries within a mapping.
#[derive(Debug)]
pub(crate) struct Table<T> {
    first: *const T,
    count: u32,
}

// SAFETY: entries are atomics (`SharedWords`); the pointer stays valid as its maker promised.
unsafe impl<T: SharedWords> Send for Table<T> {}
// SAFETY: as above.
unsafe impl<T: SharedWords> Sync for Table<T> {}

impl<T: SharedWords> Table<T> {
    /// The `count` entries at byte `offset` of `mapping`.
    ///
    /// # Safety
    /// The table must not be used after the mapping is gone.
    ///
    /// # Panics
    /// If they do not lie within the mapping: an offset of ours is wrong.
    pub(crate) unsafe fn new(mapping: &Mapping, offset: usize, count: u32) -> Self {
        assert!(offset + count as usize * size_of::<T>() <= mapping.length());
        Table {
            first: mapping.at::<T>(offset),
            count,
        }
    }

    /// Entry `index`.
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

    /// Entry `index`, if there is one.
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        (index < self.count).then(|| self.at(index))
    }
}

/// The tables of a port file.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) senders: Table<SenderEntry>,
    pub(crate) qps: Table<QpEntry>,
    pub(crate) cqs: Table<CqEntry>,
    pub(crate) mrs: Table<MrEntry>,
    pub(crate) srqs: Table<SrqEntry>,
}

impl Tables {
    /// The tables of a port file.
    ///
    /// # Safety
    /// They must not be used after the mapping is gone.
    pub(crate) unsafe fn of(mapping: &Mapping) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            Tables {
                senders: Table::new(mapping, layout::SENDERS, MAX_SLOTS),
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
        // SAFETY: the range was mapped by `new`; references into it borrow self, raw pointers are
        // kept only beside an Arc of the mapping.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// A struct of atomics that may lie in memory shared with other processes.
///
/// # Safety
/// Every bit pattern is a valid value and all access is by atomics (`#[repr(C)]`).
pub(crate) unsafe trait SharedWords {}

/// Takes storage for `length` bytes at `offset` of `file` now, so that a full file system is an
/// error here and not a SIGBUS later.
pub(crate) fn reserve(file: &File, offset: u64, length: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::empty(), offset, length)?)
}

/// Gives back the storage of the first `length` bytes of `file`, whoever still maps them.
pub(crate) fn release(file: &File, length: u64) -> io::Result<()> {
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, punch, 0, length)?)
}
