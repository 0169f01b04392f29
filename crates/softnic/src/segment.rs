//! Files mapped into memory.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

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
