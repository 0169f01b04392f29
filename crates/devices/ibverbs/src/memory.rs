//! Memory regions: registered anonymous memory of this process.

use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use adverb_abi as abi;
use adverb_units::Bytes;
use adverb_verbs::{
    AccessFlags, Lkey, MemoryAccessError, MemoryRegion, PageKind, RegisterError, Rkey, Sge,
};

use crate::explain::memlock_remedy;
use crate::handle::PdInner;
use crate::mapping::Mapping;

/// A memory region and its memory. Dropping it deregisters and unmaps the memory.
#[derive(Debug)]
pub struct VerbsMr {
    raw: NonNull<abi::ibv_mr>,
    length: u64,
    lkey: Lkey,
    rkey: Rkey,
    mapping: Option<Mapping>,
    base: NonNull<u8>,
    pd: Arc<PdInner>,
}

// SAFETY: the memory is only accessed by raw copies and atomics, never through references, because
// devices write to it at any time; libibverbs may be called by any thread.
unsafe impl Send for VerbsMr {}
// SAFETY: as for `Send`.
unsafe impl Sync for VerbsMr {}

impl VerbsMr {
    pub(crate) fn new(
        pd: &Arc<PdInner>,
        (length, access): (Bytes, AccessFlags),
        pages: Option<PageKind>,
    ) -> Result<Self, RegisterError> {
        let max = pd.handle.caps.max_mr_size;
        if length.get() == 0 || length > max {
            return Err(RegisterError::Length { length, max });
        }
        if !access.is_consistent() {
            return Err(RegisterError::Access { access });
        }
        let failed = |source: io::Error| RegisterError::Memory {
            length,
            place: format!("this process, for {}", pd.handle.name),
            remedy: registration_remedy(&source, length),
            source,
        };
        let mapping = match pages {
            None => Mapping::new(length.as_usize()).map_err(failed)?,
            Some(kind) => {
                let mapped = Mapping::on(kind, length.as_usize());
                mapped.map_err(|source| RegisterError::Memory {
                    length,
                    place: format!("{} pages of this process", kind_word(kind)),
                    remedy: page_remedy(kind).to_owned(),
                    source,
                })?
            }
        };
        let (base, library) = (mapping.base, pd.handle.library());
        // SAFETY: the domain is not deallocated yet; the memory is unmapped after the region is
        // deregistered (see `drop`).
        let raw = unsafe {
            let memory = base.as_ptr().cast::<c_void>();
            let flags = access.bits() as i32;
            (library.ibv_reg_mr)(pd.raw.as_ptr(), memory, length.as_usize(), flags)
        };
        let raw = NonNull::new(raw).ok_or_else(|| failed(io::Error::last_os_error()))?;
        pd.handle.pages.count(mapping.pages);
        // SAFETY: the region was just registered.
        let (lkey, rkey) = unsafe { (Lkey((*raw.as_ptr()).lkey), Rkey((*raw.as_ptr()).rkey)) };
        Ok(VerbsMr {
            raw,
            length: length.get(),
            lkey,
            rkey,
            mapping: Some(mapping),
            base,
            pd: pd.clone(),
        })
    }

    #[inline]
    fn check(&self, offset: u64, length: u64) -> Result<*mut u8, MemoryAccessError> {
        let end = offset.checked_add(length);
        if end.is_some_and(|end| end <= self.length) {
            Ok(self.base.as_ptr().wrapping_add(offset as usize))
        } else {
            Err(MemoryAccessError {
                offset,
                length,
                region: Bytes::new(self.length),
            })
        }
    }
}

fn kind_word(kind: PageKind) -> &'static str {
    match kind {
        PageKind::Small => "small",
        PageKind::Huge => "huge",
    }
}

fn page_remedy(kind: PageKind) -> &'static str {
    match kind {
        PageKind::Small => "free some memory",
        PageKind::Huge => {
            "reserve more huge pages of 2 MiB, such as `sysctl vm.nr_hugepages=1024`, or use small pages"
        }
    }
}

fn registration_remedy(error: &io::Error, length: Bytes) -> String {
    let remedy = memlock_remedy(error, length);
    if remedy.is_empty() {
        "the driver refuses it: try a shorter region".into()
    } else {
        remedy.trim_start_matches("; ").into()
    }
}

impl Drop for VerbsMr {
    fn drop(&mut self) {
        // SAFETY: the region is deregistered once.
        let result = unsafe { (self.pd.handle.library().ibv_dereg_mr)(self.raw.as_ptr()) };
        if result != 0 {
            // The device may still access the memory, so it is leaked.
            std::mem::forget(self.mapping.take());
        }
    }
}

impl MemoryRegion for VerbsMr {
    fn addr(&self) -> u64 {
        self.base.as_ptr().expose_provenance() as u64
    }

    fn length(&self) -> Bytes {
        Bytes::new(self.length)
    }

    fn lkey(&self) -> Lkey {
        self.lkey
    }

    fn rkey(&self) -> Rkey {
        self.rkey
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MemoryAccessError> {
        let source = self.check(offset, into.len() as u64)?;
        // SAFETY: `check` has verified that the range is within the mapping; `into` is exclusive.
        unsafe { ptr::copy(source, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MemoryAccessError> {
        let target = self.check(offset, from.len() as u64)?;
        // SAFETY: `check` has verified that the range is within the mapping, which is writable.
        unsafe { ptr::copy(from.as_ptr(), target, from.len()) };
        Ok(())
    }

    #[inline]
    fn load(&self, offset: u64) -> Result<u8, MemoryAccessError> {
        let byte = self.check(offset, 1)?;
        // SAFETY: `check` has verified that the byte is within the mapping; atomics may race with writers.
        Ok(unsafe { (*byte.cast::<AtomicU8>()).load(Ordering::Acquire) })
    }

    fn words(&self) -> Option<&[AtomicU64]> {
        let words = self.length as usize / size_of::<AtomicU64>();
        let first = self.base.as_ptr().cast::<AtomicU64>();
        // SAFETY: the mapping has at least `length` bytes and lives as long as `self` is borrowed; it is aligned. Atomics
        // may race with any writer.
        first
            .is_aligned()
            .then(|| unsafe { std::slice::from_raw_parts(first, words) })
    }

    #[inline]
    fn sge(&self, offset: u64, length: u32) -> Result<Sge<'_>, MemoryAccessError> {
        let addr = self.check(offset, length.into())?;
        // SAFETY: `check` has verified that the range is within the mapping, which `self` keeps mapped as
        // long as the SGE borrows it.
        Ok(unsafe { Sge::from_raw(addr.expose_provenance() as u64, length, self.lkey) })
    }
}
