//! Exchanges pages for the pages of a file, and back.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, fallocate, fchmod, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::maps::Mapped;
use super::threads::Paused;
use super::{NotShared, PagesOf, alone, maps, overlap};
use crate::shm::fork::Withheld;

/// Name of the files, as mappings show it.
const NAME: &str = "adverb-pages";
const MAPPED_NAME: &[u8] = b"/memfd:adverb-pages";

/// Bytes that are exchanged at once. They need memory twice for a moment.
const STEP: u64 = 4 << 20;
/// How near the stack may be.
const STACK: u64 = 256 << 10;

/// Descriptors of the files are at least this high, so that programs get the low ones.
const FIRST_FD: u64 = 768;

/// Pages that are shared.
pub(super) struct SharedPages {
    /// Where they were when they were exchanged.
    pub(super) range: Range<u64>,
    /// Open until this is dropped.
    file: ManuallyDrop<File>,
    pub(super) inode: u64,
    /// Number of regions.
    pub(super) users: usize,
    withheld: Option<Withheld>,
}

/// Checks that the range is private anonymous memory, and not the stack that is in use.
fn check_place(range: &Range<u64>) -> Result<(), NotShared> {
    let local = 0u8;
    let stack = (&raw const local).addr() as u64;
    if overlap(range, &(stack.saturating_sub(STACK)..stack + STACK)) {
        return Err(NotShared::OtherMapping);
    }
    let mut next = range.start;
    let mut has_aio = false;
    maps::visit(|mapped| {
        has_aio |= mapped.name.starts_with(b"/[aio]");
        if (mapped.start..mapped.end).contains(&next) && is_exchangeable(mapped) {
            next = mapped.end;
        }
    })
    .map_err(|_| NotShared::Unknown)?;
    match (has_aio, next >= range.end) {
        (true, _) => Err(NotShared::Device),
        (_, false) => Err(NotShared::OtherMapping),
        (false, true) => Ok(()),
    }
}

fn is_exchangeable(mapped: &Mapped<'_>) -> bool {
    let name = mapped.name;
    let is_anonymous =
        mapped.inode == 0 && (name.is_empty() || name == b"[heap]" || name.starts_with(b"[anon:"));
    // Pages that an earlier region has made private again.
    let was_shared = name.starts_with(MAPPED_NAME);
    mapped.permissions == b"rw-p" && (is_anonymous || was_shared)
}

/// Blocks all signals of the calling thread while it lives.
pub(super) struct Undisturbed(libc::sigset_t);

impl Undisturbed {
    pub(super) fn begin() -> Self {
        // SAFETY: both sets are ours, and initialized by the calls.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Undisturbed(before)
        }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        // SAFETY: restores what `begin` has stored.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut());
        }
    }
}

/// Exchanges pages for the pages of a new file with the same contents.
pub(super) fn exchange(range: &Range<u64>) -> Result<SharedPages, NotShared> {
    let length = range.end - range.start;
    let file = create(length)?;
    let pages = SharedPages {
        range: range.clone(),
        inode: file.metadata()?.ino(),
        users: 1,
        withheld: Some(Withheld::new(file.as_fd())),
        file: ManuallyDrop::new(file),
    };
    let _paused = Paused::begin().ok_or(NotShared::OtherThreads)?;
    alone::check()?;
    check_place(range)?;
    let mut offset = 0;
    while offset < length {
        let step = STEP.min(length - offset);
        if let Err(reason) = pages.exchange_step(offset, step) {
            pages.make_private();
            return Err(reason);
        }
        offset += step;
    }
    Ok(pages)
}

/// Creates a file of `length` bytes, whose descriptor is not one that programs would get.
fn create(length: u64) -> Result<File, NotShared> {
    // Writing more would raise a signal.
    if getrlimit(Resource::Fsize)
        .current
        .is_some_and(|limit| limit < length)
    {
        return Err(NotShared::Refused);
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create(NAME, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(NAME, flags)?,
        created => created?,
    };
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let first = FIRST_FD.min(limit / 4 * 3) as i32;
    let file = File::from(rustix::io::fcntl_dupfd_cloexec(&file, first)?);
    fchmod(&file, Mode::RUSR | Mode::WUSR)?;
    file.set_len(length)?;
    // Nobody may take mapped pages away.
    let seals = rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW;
    rustix::fs::fcntl_add_seals(&file, seals | rustix::fs::SealFlags::SEAL)?;
    Ok(file)
}

impl SharedPages {
    /// Returns where the file has the byte at `addr`.
    pub(super) fn at(&self, addr: u64) -> PagesOf {
        PagesOf {
            fd: self.fd() as u32,
            inode: self.inode,
            offset: addr - self.range.start,
        }
    }

    fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Whether `range` is still mapped to the pages of the file.
    pub(super) fn are_all_mapped(&self, range: &Range<u64>) -> Result<bool, NotShared> {
        let mut next = range.start;
        maps::visit(|mapped| {
            let is_here = (mapped.start..mapped.end).contains(&next);
            let offset = mapped.start.wrapping_sub(self.range.start);
            if is_here && self.is_of(mapped) && mapped.offset == offset {
                next = mapped.end;
            }
        })
        .map_err(|_| NotShared::Unknown)?;
        Ok(next >= range.end)
    }

    /// Whether this is a shared mapping of the file.
    fn is_of(&self, mapped: &Mapped<'_>) -> bool {
        is_shared_mapping(mapped) && mapped.inode == self.inode
    }

    /// Copies pages and exchanges them.
    fn exchange_step(&self, offset: u64, length: u64) -> Result<(), NotShared> {
        let at = self.range.start + offset;
        self.copy(offset, length, Transfer::ToFile)?;
        let shared = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: the file has the same bytes as the range, which nothing writes to meanwhile (see above).
        if unsafe { map(at, length, shared, self.fd(), offset) } {
            return Ok(());
        }
        // The kernel may have removed the old mapping before it failed.
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: as above; the bytes are copied back.
        let restored = unsafe { map(at, length, private, -1, 0) }
            && self.copy(offset, length, Transfer::FromFile).is_ok();
        if !restored {
            fail("cannot map registered memory again");
        }
        Err(NotShared::Refused)
    }

    fn copy(&self, offset: u64, length: u64, transfer: Transfer) -> io::Result<()> {
        let mut done = 0;
        while done < length {
            let at = std::ptr::with_exposed_provenance_mut::<c_void>(
                (self.range.start + offset + done) as usize,
            );
            let (left, place) = ((length - done) as usize, (offset + done) as libc::off_t);
            // SAFETY: the kernel checks the range, which is the program's.
            let moved = unsafe {
                match transfer {
                    Transfer::ToFile => libc::pwrite(self.fd(), at, left, place),
                    Transfer::FromFile => libc::pread(self.fd(), at, left, place),
                }
            };
            match u64::try_from(moved) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(moved) => done += moved,
                Err(_) => return Err(io::Error::last_os_error()),
            }
        }
        Ok(())
    }

    /// Whether the descriptor is still the file's: the program may have closed it and opened another file.
    fn owns_descriptor(&self) -> bool {
        (self.file.metadata()).is_ok_and(|meta| meta.ino() == self.inode)
    }

    /// Makes all pages private, wherever the program has moved them. Threads may access them at the same time: the kernel
    /// exchanges a mapping atomically, and copies each page. What the program unmaps at this very moment, it must not map
    /// for something else.
    pub(super) fn make_private(&self) {
        if !self.owns_descriptor() {
            return;
        }
        let mut places = Vec::new();
        let listed = maps::visit(|mapped| {
            if self.is_of(mapped) {
                places.push((mapped.start, mapped.end, mapped.offset, mapped.protection()));
            }
        });
        let mut is_complete = listed.is_ok();
        for (start, end, offset, protection) in places {
            let length = end - start;
            // SAFETY: a private mapping of the same bytes, to which peers do not write any longer.
            unsafe {
                is_complete &= map(start, length, libc::MAP_PRIVATE, self.fd(), offset);
                let at = std::ptr::with_exposed_provenance_mut::<c_void>(start as usize);
                is_complete &= libc::madvise(at, length as usize, libc::MADV_POPULATE_WRITE) == 0;
                if protection != libc::PROT_READ | libc::PROT_WRITE {
                    libc::mprotect(at, length as usize, protection);
                }
            }
        }
        // Each page has a copy of its own now. If the program gives its contents up (`MADV_DONTNEED`), it reads zeros, as
        // from anonymous memory.
        if is_complete {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&*self.file, punch, 0, self.range.end - self.range.start);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    ToFile,
    FromFile,
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        self.withheld = None;
        if self.owns_descriptor() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// Maps memory at an address that is in use.
///
/// # Safety
/// The program has the range, and gets the same bytes again.
unsafe fn map(at: u64, length: u64, flags: libc::c_int, fd: i32, offset: u64) -> bool {
    let address = std::ptr::with_exposed_provenance_mut::<c_void>(at as usize);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = flags | libc::MAP_FIXED;
    // SAFETY: the caller's.
    let mapped = unsafe {
        libc::mmap(
            address,
            length as usize,
            protection,
            flags,
            fd,
            offset as libc::off_t,
        )
    };
    mapped != libc::MAP_FAILED
}

pub(super) fn is_shared_mapping(mapped: &Mapped<'_>) -> bool {
    mapped.is_shared() && mapped.name.starts_with(MAPPED_NAME)
}

/// Ends the process, whose memory would be wrong.
pub(super) fn fail(what: &str) -> ! {
    // No allocation: this may be the child of a fork.
    for text in ["adverb: ", what, "\n"] {
        // SAFETY: the text is readable.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}
