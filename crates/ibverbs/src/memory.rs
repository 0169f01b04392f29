//! Memory regions: anonymous memory of this process, registered.

use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use adverb_abi as abi;
use adverb_units::Bytes;
use adverb_verbs::{AccessFlags, Lkey, MemoryAccessError, MemoryRegion, RegisterError, Rkey, Sge};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::context::PdInner;
use crate::explain::memlock_remedy;

/// The size of the huge pages that are asked for; a region of less does not get any.
const HUGE_PAGE: usize = 2 << 20;

/// How many regions got which pages, since the device was opened.
#[derive(Debug, Default)]
pub(crate) struct PageCounts {
    huge: AtomicU32,
    normal: AtomicU32,
}

impl PageCounts {
    fn count(&self, pages: Pages) {
        let counter = match pages {
            Pages::Huge => &self.huge,
            Pages::Normal => &self.normal,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// For the provenance.
    pub(crate) fn words(&self) -> String {
        let (huge, normal) = (
            self.huge.load(Ordering::Relaxed),
            self.normal.load(Ordering::Relaxed),
        );
        match (huge, normal) {
            (0, 0) => "no region yet".into(),
            (0, _) => "normal pages".into(),
            (_, 0) => "huge pages of 2 MiB".into(),
            _ => format!("huge pages of 2 MiB ({huge} regions) and normal pages ({normal})"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pages {
    /// Reserved huge pages.
    Huge,
    /// What the system gives.
    Normal,
}

/// Anonymous memory, unmapped at the end.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    length: usize,
    pages: Pages,
}

impl Mapping {
    /// At least `length` zeroed bytes, on huge pages where it is large enough and they are there.
    fn new(length: usize) -> io::Result<Self> {
        if length >= HUGE_PAGE
            && let Some(rounded) = length.checked_next_multiple_of(HUGE_PAGE)
            && let Ok(base) = map(rounded, MapFlags::HUGETLB | MapFlags::HUGE_2MB)
        {
            return Ok(Mapping {
                base,
                length: rounded,
                pages: Pages::Huge,
            });
        }
        let base = map(length, MapFlags::empty())?;
        if length >= HUGE_PAGE {
            // SAFETY: the mapping was just made. Without the kernel's help it stays as it is.
            let _ =
                unsafe { rustix::mm::madvise(base.as_ptr().cast(), length, Advice::LinuxHugepage) };
        }
        Ok(Mapping {
            base,
            length,
            pages: Pages::Normal,
        })
    }
}

fn map(length: usize, flags: MapFlags) -> io::Result<NonNull<u8>> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: new memory at an address that the kernel chooses.
    let base = unsafe {
        rustix::mm::mmap_anonymous(ptr::null_mut(), length, access, MapFlags::PRIVATE | flags)
    }?;
    Ok(NonNull::new(base.cast()).expect("the kernel maps nothing at 0 that is not asked for"))
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping's only owner, and no device has it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

/// A memory region and its memory. Dropping it deregisters and unmaps.
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

// SAFETY: the memory is only reached by copies and atomics, as a peer's device reaches it, too;
// verbs are thread-safe.
unsafe impl Send for VerbsMr {}
// SAFETY: as above.
unsafe impl Sync for VerbsMr {}

impl VerbsMr {
    pub(crate) fn new(
        pd: &Arc<PdInner>,
        length: Bytes,
        access: AccessFlags,
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
        let mapping = Mapping::new(length.as_usize()).map_err(failed)?;
        let (base, library) = (mapping.base, pd.handle.library());
        // SAFETY: the domain lives; the memory stays mapped for longer than the region.
        let raw = unsafe {
            let memory = base.as_ptr().cast::<c_void>();
            let flags = access.bits() as i32;
            (library.ibv_reg_mr)(pd.raw.as_ptr(), memory, length.as_usize(), flags)
        };
        let raw = NonNull::new(raw).ok_or_else(|| failed(io::Error::last_os_error()))?;
        pd.handle.pages.count(mapping.pages);
        // SAFETY: the region was just made.
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
            // The device may still reach the memory: it is never given back.
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
        // SAFETY: the source lies in our mapping, as checked; `into` is exclusive memory.
        unsafe { ptr::copy(source, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MemoryAccessError> {
        let target = self.check(offset, from.len() as u64)?;
        // SAFETY: the target lies in our writable mapping, as checked; `from` is readable.
        unsafe { ptr::copy(from.as_ptr(), target, from.len()) };
        Ok(())
    }

    #[inline]
    fn load(&self, offset: u64) -> Result<u8, MemoryAccessError> {
        let byte = self.check(offset, 1)?;
        // SAFETY: the byte lies in our mapping, as checked; atomics may race with any writer.
        Ok(unsafe { (*byte.cast::<AtomicU8>()).load(Ordering::Acquire) })
    }

    #[inline]
    fn sge(&self, offset: u64, length: u32) -> Result<Sge<'_>, MemoryAccessError> {
        let addr = self.check(offset, length.into())?;
        // SAFETY: the piece lies in our mapping, which lives as long as the borrow of self.
        Ok(unsafe { Sge::from_raw(addr.expose_provenance() as u64, length, self.lkey) })
    }
}
