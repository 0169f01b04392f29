//! Memory that a program already has, shared with peers: its pages are exchanged for the pages of a file.
//!
//! Registering copies whole pages to an unnamed file (`memfd`), and maps that at the same addresses. Peers of the same
//! user open the file by `/proc/PID/fd`, map it, and copy without a system call. A file in the directory of the ports
//! would have a name to open it by, but `/dev/shm` is small in containers (64 MiB), and a crash would leave the file behind.
//! When the last region that uses the pages is deregistered, they become private again ([`SharedPages::make_private`]).
//!
//! # Why no byte is lost
//! A write to a page between its copy and its exchange would be lost. So pages are exchanged only if nothing can write to
//! them then:
//! - The calling thread only executes this module, with all signals blocked. Its stack is elsewhere ([`check_place`]).
//! - There is no other thread of the program, and the threads of this library pause (`alone`, `threads`). A new thread
//!   would have to be started by one of these. Worker threads of io_uring are listed as threads, too.
//! - No other process has the same memory: children with `CLONE_VM` are searched for. (The parent of a `vfork` waits.) A
//!   process that is not a child, made by `clone(CLONE_VM | CLONE_PARENT)`, is not noticed; no C library makes one.
//! - No debugger traces the process, and no device or kernel service has pinned pages: io_uring, asynchronous I/O,
//!   AF_XDP, other RDMA devices, GPUs. So there is no open descriptor of an unknown kind, no mapping of an asynchronous
//!   I/O context, and no page counted as locked or pinned.
//! - Peers do not write to them by `process_vm_writev`, because no region that they reach by address is on these pages.
//!
//! Exchanged are only mappings that behave the same afterwards: private, anonymous, readable and writable, without huge
//! pages, no stack. The region has to begin and end on page boundaries, so its pages contain nothing else: neither the
//! allocator's own data nor variables that the kernel writes (`rseq`). Advice given for the pages before (`madvise`,
//! `mbind`) no longer applies.
//!
//! In all other cases the region is reached by address. Which way was taken is counted ([`region_counts`]).

mod alone;
mod fork;
pub(crate) mod maps;
pub(crate) mod threads;

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, fallocate, fchmod, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::shm::fork::{Process, Withheld};
use maps::Mapped;
use threads::Paused;

/// Environment variable: `process_vm` makes all regions be reached by address.
const SWITCH: &str = "ADVERB_MEMORY";
const BY_ADDRESS: &str = "process_vm";

/// Name of the files, as mappings show it.
const NAME: &str = "adverb-pages";
const MAPPED_NAME: &[u8] = b"/memfd:adverb-pages";

/// Longest region whose pages are exchanged: copying takes some 0.6 s per GiB.
const MAX_LENGTH: u64 = 1 << 30;
/// Bytes that are exchanged at once. They need memory twice for a moment.
const STEP: u64 = 4 << 20;
/// How near the stack may be.
const STACK: u64 = 256 << 10;

/// Descriptors of the files are at least this high, so that programs get the low ones.
const FIRST_FD: u64 = 768;

/// Numbers of regions of program memory so far, by the way in which other processes reach them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionCounts {
    /// Their pages were shared.
    pub shared: u64,
    /// By address: `process_vm_readv` and `process_vm_writev`, or the owner's engine.
    pub by_address: u64,
}

static SHARED: AtomicU64 = AtomicU64::new(0);
static ADDRESSED: AtomicU64 = AtomicU64::new(0);

/// Returns how many regions of program memory this process has registered.
pub fn region_counts() -> RegionCounts {
    RegionCounts {
        shared: SHARED.load(Ordering::Relaxed),
        by_address: ADDRESSED.load(Ordering::Relaxed),
    }
}

/// Why the pages of a region are not shared, so that other processes reach it by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotShared {
    /// `ADVERB_MEMORY=process_vm`.
    #[error("ADVERB_MEMORY={BY_ADDRESS} is set")]
    SwitchedOff,
    /// It does not begin or end on a page boundary.
    #[error("it does not consist of whole pages")]
    PartOfPage,
    /// Longer than the limit.
    #[error("it is longer than 1 GiB")]
    TooLong,
    /// Other regions are on the same pages.
    #[error("other regions are on the same pages")]
    Overlaps,
    /// On the stack, in a file, of huge pages, or not writable.
    #[error("it is not private anonymous memory that may be written")]
    OtherMapping,
    /// The program has other threads.
    #[error("the program has other threads")]
    OtherThreads,
    /// A debugger, or a program such as strace.
    #[error("the program is traced")]
    Traced,
    /// `mlock`, or a device.
    #[error("the program has locked or pinned memory")]
    Locked,
    /// A device or kernel service that may access memory at any time.
    #[error(
        "the program has opened a device or service of the kernel that may access memory at any time"
    )]
    Device,
    /// A process with the same memory.
    #[error("a child process may have the same memory")]
    Children,
    /// `/proc` does not show it.
    #[error("/proc does not show the state of the process")]
    Unknown,
    /// The kernel refused a file or a mapping.
    #[error("the kernel refused a file or its mapping")]
    Refused,
}

impl From<io::Error> for NotShared {
    fn from(_: io::Error) -> Self {
        NotShared::Refused
    }
}

impl From<Errno> for NotShared {
    fn from(_: Errno) -> Self {
        NotShared::Refused
    }
}

/// How other processes reach a region of program memory.
#[derive(Debug)]
pub(crate) enum Reach {
    /// By mapping its pages.
    Mapped(Sharing),
    /// By its address. The pages are not exchanged while this lives.
    Address {
        reason: NotShared,
        _pages: AddressedPages,
    },
}

/// A region's use of shared pages.
#[derive(Debug)]
pub(crate) struct Sharing {
    /// What peers need to know.
    pub(crate) pages: PagesOf,
    process: Process,
}

/// Pages that are shared.
struct SharedPages {
    /// Where they were when they were exchanged.
    range: Range<u64>,
    /// Open until this is dropped.
    file: ManuallyDrop<File>,
    inode: u64,
    /// Number of regions.
    users: usize,
    withheld: Option<Withheld>,
}

/// Pages of a region that is reached by address.
#[derive(Debug)]
pub(crate) struct AddressedPages {
    range: Range<u64>,
    process: Process,
}

/// What peers need to know to map a region's pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PagesOf {
    pub(crate) fd: u32,
    pub(crate) inode: u64,
    /// The region's first byte in the file.
    pub(crate) offset: u64,
}

/// All regions of program memory of this process.
struct State {
    /// Which process that is, since the state is inherited by forked ones.
    process: Option<Process>,
    shared: Vec<SharedPages>,
    addressed: Vec<Range<u64>>,
}

/// Held while pages are exchanged, and during `fork`: a child never inherits half-exchanged pages.
static STATE: SpinMutex<State> = SpinMutex::new(State {
    process: None,
    shared: Vec::new(),
    addressed: Vec::new(),
});

fn state() -> SpinMutexGuard<'static, State> {
    loop {
        if let Some(mut state) = STATE.try_lock() {
            let current = Process::current();
            if state.process.is_some_and(|process| process != current) {
                state.shared.clear();
                state.addressed.clear();
            }
            state.process = Some(current);
            return state;
        }
        std::thread::yield_now();
    }
}

/// Shares the pages of a region, if that is safe and the program may write them.
pub(crate) fn reach(region: &Range<u64>) -> Reach {
    let page = crate::program_memory::page_size();
    let range = region.start / page * page
        ..region
            .end
            .checked_next_multiple_of(page)
            .unwrap_or(u64::MAX);
    let process = Process::current();
    let watched = fork::watch();
    // A signal handler that forks would wait for the lock.
    let _undisturbed = Undisturbed::begin();
    let mut state = state();
    match watched.and_then(|()| state.share(region, &range)) {
        Ok(pages) => {
            SHARED.fetch_add(1, Ordering::Relaxed);
            Reach::Mapped(Sharing { pages, process })
        }
        Err(reason) => {
            ADDRESSED.fetch_add(1, Ordering::Relaxed);
            state.addressed.push(range.clone());
            let _pages = AddressedPages { range, process };
            Reach::Address { reason, _pages }
        }
    }
}

impl Drop for AddressedPages {
    fn drop(&mut self) {
        if self.process.is_parent() {
            return;
        }
        let _undisturbed = Undisturbed::begin();
        let mut state = state();
        let found = state
            .addressed
            .iter()
            .position(|range| *range == self.range);
        if let Some(place) = found {
            state.addressed.swap_remove(place);
        }
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        if self.process.is_parent() {
            return;
        }
        let _undisturbed = Undisturbed::begin();
        let mut state = state();
        let is_it = |pages: &SharedPages| pages.inode == self.pages.inode;
        let Some(place) = state.shared.iter().position(is_it) else {
            return;
        };
        state.shared[place].users -= 1;
        if state.shared[place].users == 0 {
            state.shared.swap_remove(place).make_private();
        }
    }
}

fn is_switched_off() -> bool {
    static OFF: OnceLock<bool> = OnceLock::new();
    *OFF.get_or_init(|| std::env::var_os(SWITCH).is_some_and(|value| value == BY_ADDRESS))
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl State {
    fn share(&mut self, region: &Range<u64>, range: &Range<u64>) -> Result<PagesOf, NotShared> {
        if is_switched_off() {
            return Err(NotShared::SwitchedOff);
        }
        let overlapping = |pages: &&mut SharedPages| overlap(&pages.range, range);
        if let Some(pages) = self.shared.iter_mut().find(overlapping) {
            // Its memory may have been unmapped since, and other memory be there now.
            if !pages.are_all_mapped(range)? {
                return Err(NotShared::Overlaps);
            }
            pages.users += 1;
            return Ok(pages.at(region.start));
        }
        if range != region {
            return Err(NotShared::PartOfPage);
        }
        if range.end - range.start > MAX_LENGTH {
            return Err(NotShared::TooLong);
        }
        if self.addressed.iter().any(|other| overlap(other, range)) {
            return Err(NotShared::Overlaps);
        }
        let pages = exchange(range)?;
        let found = pages.at(region.start);
        self.shared.push(pages);
        Ok(found)
    }
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
struct Undisturbed(libc::sigset_t);

impl Undisturbed {
    fn begin() -> Self {
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
fn exchange(range: &Range<u64>) -> Result<SharedPages, NotShared> {
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
    fn at(&self, addr: u64) -> PagesOf {
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
    fn are_all_mapped(&self, range: &Range<u64>) -> Result<bool, NotShared> {
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
    fn make_private(&self) {
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

fn is_shared_mapping(mapped: &Mapped<'_>) -> bool {
    mapped.is_shared() && mapped.name.starts_with(MAPPED_NAME)
}

/// Ends the process, whose memory would be wrong.
fn fail(what: &str) -> ! {
    // No allocation: this may be the child of a fork.
    for text in ["adverb: ", what, "\n"] {
        // SAFETY: the text is readable.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
    // SAFETY: ends the process.
    unsafe { libc::abort() }
}
