//! Memory of this process to register as memory regions, on huge pages if possible.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use adverb_verbs::PageKind;
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
    /// Maps at least `length` zeroed bytes on pages of the given kind.
    pub(crate) fn on(kind: PageKind, length: usize) -> io::Result<Self> {
        match kind {
            PageKind::Huge => Self::huge(length),
            PageKind::Small => Self::normal(length, Advice::LinuxNoHugepage),
        }
    }

    /// Maps at least `length` zeroed bytes, on reserved huge pages if `length` fills one and there are
    /// enough.
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        if length >= HUGE_PAGE
            && let Ok(mapping) = Self::huge(length)
        {
            return Ok(mapping);
        }
        Self::normal(length, Advice::LinuxHugepage)
    }

    /// Maps reserved huge pages.
    fn huge(length: usize) -> io::Result<Self> {
        let rounded = length.checked_next_multiple_of(HUGE_PAGE);
        let length = rounded.ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping {
            base: map(length, MapFlags::HUGETLB | MapFlags::HUGE_2MB)?,
            length,
            pages: Pages::Huge,
        })
    }

    /// Maps normal pages; `advice` tells the kernel whether to merge the pages of a large mapping.
    fn normal(length: usize, advice: Advice) -> io::Result<Self> {
        let base = map(length, MapFlags::empty())?;
        if length >= HUGE_PAGE {
            // SAFETY: the range is the mapping just made. If the kernel refuses the advice, the memory
            // keeps its normal pages.
            let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), length, advice) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_on_the_pages_that_were_asked_for() {
        let small = Mapping::on(PageKind::Small, 3 << 20).unwrap();
        assert_eq!((small.pages, small.length), (Pages::Normal, 3 << 20));
        // The machine may or may not have reserved huge pages.
        match Mapping::on(PageKind::Huge, 3 << 20) {
            Ok(huge) => assert_eq!((huge.pages, huge.length), (Pages::Huge, 4 << 20)),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOMEM)),
        }
    }
}
