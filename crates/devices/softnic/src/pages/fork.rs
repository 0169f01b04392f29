//! Keeps shared pages from being shared with the child of a `fork`.
//!
//! The child replaces them by private copies before `fork` returns in it; `fork` returns in the parent after that, so the
//! copies have the parent's bytes at the moment of the fork. What other threads of the parent or peers write meanwhile may
//! be in the copies or not. A child that cannot make its copies ends, because it must not write to the parent's pages. Children that
//! share the parent's memory until they run another program (`vfork`, `posix_spawn`, `system`) need nothing. The system call
//! `clone` itself, without the C library's `fork`, runs no handler: such a child shares the pages with its parent.

use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use super::exchange::{fail, is_shared_mapping};
use super::{NotShared, STATE, maps, threads};

/// How long a parent waits for a child that neither ends nor goes on (it is stopped).
const TIMEOUT: Duration = Duration::from_secs(60);

/// Mappings that are replaced in one pass.
const PER_PASS: usize = 128;

/// Whether the lock is held across the fork.
static IS_HELD: AtomicBool = AtomicBool::new(false);
/// Whether the child has to copy pages.
static HAS_PAGES: AtomicBool = AtomicBool::new(false);
/// The pipe whose end of file tells the parent that the child is ready, or has ended.
static PIPE: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];

/// Keeps shared pages from the children of this process, from now on.
///
/// # Errors
/// The C library has no memory for the handlers.
pub(super) fn watch() -> Result<(), NotShared> {
    static IS_WATCHED: OnceLock<bool> = OnceLock::new();
    let register = || {
        // SAFETY: the handlers are functions of this library, which is not unloaded while it has a port.
        unsafe { libc::pthread_atfork(Some(prepare), Some(resume), Some(keep_copies)) == 0 }
    };
    let is_watched = *IS_WATCHED.get_or_init(register);
    is_watched.then_some(()).ok_or(NotShared::Refused)
}

/// Before a fork.
extern "C" fn prepare() {
    let state = loop {
        match STATE.try_lock() {
            Some(state) => break state,
            None => std::thread::yield_now(),
        };
    };
    let mut ends = [-1; 2];
    let has_pages = !state.shared.is_empty();
    HAS_PAGES.store(has_pages, Ordering::Relaxed);
    if has_pages {
        // If there is no descriptor left, the child cannot list its mappings either, and ends.
        // SAFETY: the kernel writes two descriptors.
        unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    }
    std::mem::forget(state);
    for (place, end) in PIPE.iter().zip(ends) {
        place.store(end, Ordering::Relaxed);
    }
    IS_HELD.store(true, Ordering::Relaxed);
}

fn unlock() {
    if IS_HELD.swap(false, Ordering::Relaxed) {
        // SAFETY: `prepare` has locked it, on this thread, and dropped no guard.
        unsafe { STATE.force_unlock() };
    }
}

fn close(end: &AtomicI32) {
    let fd = end.swap(-1, Ordering::Relaxed);
    if fd >= 0 {
        // SAFETY: `prepare` has opened it.
        unsafe { libc::close(fd) };
    }
}

/// After a fork, in the parent: waits until the child has copies.
extern "C" fn resume() {
    close(&PIPE[1]);
    let fd = PIPE[0].load(Ordering::Relaxed);
    let deadline = Instant::now() + TIMEOUT;
    while fd >= 0 && Instant::now() < deadline {
        let mut poll = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry. The kernel reports the end of file as an event.
        if unsafe { libc::poll(&raw mut poll, 1, 1000) } > 0 {
            break;
        }
    }
    close(&PIPE[0]);
    unlock();
}

/// After a fork, in the child, on its only thread: only calls that are safe in a signal handler.
extern "C" fn keep_copies() {
    threads::forget_all();
    // The descriptor is needed to list the mappings.
    close(&PIPE[0]);
    if HAS_PAGES.load(Ordering::Relaxed) {
        while copy_some() == PER_PASS {}
    }
    close(&PIPE[1]);
    unlock();
}

/// Replaces shared pages by copies; returns the number of mappings. They may be in use by this process or mapped from peers:
/// the child has no use for the latter.
fn copy_some() -> usize {
    let mut places = [(0, 0, 0); PER_PASS];
    let mut count = 0;
    let listed = maps::visit(|mapped| {
        if is_shared_mapping(mapped) && count < PER_PASS && is_of_parent(mapped.inode) {
            places[count] = (mapped.start, mapped.end - mapped.start, mapped.protection());
            count += 1;
        }
    });
    if listed.is_err() {
        fail("fork: cannot read /proc/self/maps to copy registered memory");
    }
    for (start, length, protection) in &places[..count] {
        // SAFETY: the listed mappings of this process, which has one thread.
        if !unsafe { copy(*start as usize, *length as usize, *protection) } {
            fail("fork: no memory for a copy of registered memory");
        }
    }
    count
}

/// Whether this file has pages of a region of the parent.
fn is_of_parent(inode: u64) -> bool {
    // SAFETY: the parent's thread that became this process holds the lock.
    let state = unsafe { &*STATE.as_mut_ptr() };
    state.shared.iter().any(|pages| pages.inode == inode)
}

/// Replaces a mapping by a private copy; returns false if there is no memory for it.
///
/// # Safety
/// The range is mapped, and no other thread of this process uses it.
unsafe fn copy(start: usize, length: usize, protection: libc::c_int) -> bool {
    let at = std::ptr::with_exposed_provenance_mut::<c_void>(start);
    let both = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, and one of the caller's of the same length, which is then replaced.
    unsafe {
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let new = libc::mmap(std::ptr::null_mut(), length, both, private, -1, 0);
        if new == libc::MAP_FAILED {
            return false;
        }
        if protection & libc::PROT_READ == 0 {
            libc::mprotect(at, length, libc::PROT_READ);
        }
        std::ptr::copy_nonoverlapping(at.cast::<u8>(), new.cast::<u8>(), length);
        let moves = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let is_moved = libc::mremap(new, length, length, moves, at) == at;
        is_moved && (protection == both || libc::mprotect(at, length, protection) == 0)
    }
}
