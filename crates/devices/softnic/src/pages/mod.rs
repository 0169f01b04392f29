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
//! - The calling thread only executes this module, with all signals blocked. Its stack is elsewhere ([`exchange::exchange`]).
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
mod exchange;
mod fork;
pub(crate) mod maps;
pub(crate) mod threads;

use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::shm::fork::Process;
use exchange::{SharedPages, Undisturbed, exchange};

/// Environment variable: `process_vm` makes all regions be reached by address.
const SWITCH: &str = "ADVERB_MEMORY";
const BY_ADDRESS: &str = "process_vm";

/// Longest region whose pages are exchanged: copying takes some 0.6 s per GiB.
const MAX_LENGTH: u64 = 1 << 30;
/// Maximum number of files with shared pages. Each costs a descriptor, and makes each further exchange slower, which looks at
/// all descriptors and mappings: 2000 took 11 s.
const MAX_SHARED: usize = 256;
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
    /// More than the limit.
    #[error("the pages of 256 other regions are shared")]
    TooMany,
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
        if self.shared.len() >= MAX_SHARED {
            return Err(NotShared::TooMany);
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
