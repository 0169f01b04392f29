//! Memory of this process to register as memory regions, on huge pages if possible.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Size of the huge pages asked for. A smaller region does not use them.
const HUGE_PAGE: usize = 2 << 20;

/// Number of regions by the kind of their pages, since the device was opened.
#[derive(Debug, Default)]
pub(crate) struct PageCounts {
    huge: AtomicU32,
    normal: AtomicU32,
}

impl PageCounts {
    pub(crate) fn count(&self, pages: Pages) {
        let counter = match pages {
            Pages::Huge => &self.huge,
            Pages::Normal => &self.normal,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the kinds of pages, for the record of a measurement.
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

/// The pages behind a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Huge pages reserved by the administrator (`vm.nr_hugepages`).
    Huge,
    /// Normal pages; the kernel may merge them into transparent huge pages.
    Normal,
}

/// Anonymous memory, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) base: NonNull<u8>,
    length: usize,
    pub(crate) pages: Pages,
}

impl Mapping {
    /// Maps at least `length` zeroed bytes, on reserved huge pages if `length` fills one and there are
    /// enough.
    pub(crate) fn new(length: usize) -> io::Result<Self> {
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
            // SAFETY: the range is the mapping just made. If the kernel refuses the advice, the memory
            // keeps its normal pages.
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
    // SAFETY: the kernel chooses an unused address, so no other memory is affected.
    let base = unsafe {
        rustix::mm::mmap_anonymous(ptr::null_mut(), length, access, MapFlags::PRIVATE | flags)
    }?;
    Ok(NonNull::new(base.cast()).expect("the kernel maps nothing at 0 that is not asked for"))
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping's only owner, and the region over it was deregistered before.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
