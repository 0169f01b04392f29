//! What a child process inherits by `fork`: the port stays its parent's.
//!
//! A child shares its parent's open files. So that a lock ends and an address is free when the parent dies, the child's
//! descriptors of them are replaced when it begins ([`Withheld`]). Objects that it inherits do nothing when they are dropped
//! ([`Process::is_parent`]).

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

const NONE: RawFd = -1;

/// Number of forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Descriptors that children do not keep. The handler must not wait for a lock.
static WITHHELD: [AtomicI32; 1024] = [const { AtomicI32::new(NONE) }; 1024];

/// The process that created something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// Returns the calling process. Its later children are noticed.
    pub(crate) fn current() -> Self {
        static REGISTERED: Once = Once::new();
        // SAFETY: the handler is a function of this library, which is not unloaded while it has a port. If there is no
        // memory for it, children share the port with their parent.
        REGISTERED.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(begin_child));
        });
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether it is a parent of the calling process.
    pub(crate) fn is_parent(self) -> bool {
        self.0 != FORKS.load(Ordering::Relaxed)
    }
}

/// A descriptor that children do not keep. It has to be dropped before the descriptor is closed.
#[derive(Debug)]
pub(crate) struct Withheld(Option<&'static AtomicI32>);

impl Withheld {
    pub(crate) fn new(fd: BorrowedFd<'_>) -> Self {
        let fd = fd.as_raw_fd();
        let take = |place: &&AtomicI32| {
            let taken = place.compare_exchange(NONE, fd, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        };
        // If there are too many, children keep the others.
        Withheld(WITHHELD.iter().find(take))
    }
}

impl Drop for Withheld {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(NONE, Ordering::Release);
        }
    }
}

/// In a new child, on its only thread: only calls that are safe in a signal handler.
extern "C" fn begin_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    let how = libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: replaces descriptors that are open and ours by another open one. Their owner closes that.
    unsafe {
        let nothing = libc::open(c"/dev/null".as_ptr(), how);
        for place in &WITHHELD {
            let fd = place.load(Ordering::Acquire);
            if fd != NONE && nothing != NONE {
                libc::dup3(nothing, fd, libc::O_CLOEXEC);
            }
        }
        libc::close(nothing);
    }
}
