//! Locks that are held during `fork`, so that the child does not inherit them from a thread that it does not have.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use crate::activity::PROCESS;
use crate::files::listing::OPEN;
use crate::object::lock;

/// How long `fork` waits for a lock. A thread that holds one may wait for what another handler of the fork has locked.
const PATIENCE: Duration = Duration::from_secs(1);

/// A lock that is held during `fork`.
pub(crate) struct ForkLock<T: 'static> {
    mutex: Mutex<T>,
    /// The thread that forks and holds the lock; 0 for none.
    forking: AtomicUsize,
    held: UnsafeCell<Option<MutexGuard<'static, T>>>,
}

// SAFETY: `mutex` protects the data, and only the thread that has locked it for a fork accesses `held`.
unsafe impl<T: Send> Sync for ForkLock<T> {}

impl<T> ForkLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        ForkLock {
            mutex: Mutex::new(value),
            forking: AtomicUsize::new(0),
            held: UnsafeCell::new(None),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.mutex)
    }

    /// Locks it; `None` if another thread holds it for longer than `patience`.
    pub(crate) fn lock_within(&self, patience: Duration) -> Option<MutexGuard<'_, T>> {
        let deadline = Instant::now() + patience;
        loop {
            match self.mutex.try_lock() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return None,
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }

    fn hold(&'static self) {
        if let Some(guard) = self.lock_within(PATIENCE) {
            // SAFETY: the calling thread has locked it.
            unsafe { *self.held.get() = Some(guard) };
            self.forking.store(this_thread(), Ordering::Relaxed);
        }
    }

    fn release(&'static self) {
        if self.forking.load(Ordering::Relaxed) == this_thread() {
            self.forking.store(0, Ordering::Relaxed);
            // SAFETY: the calling thread has locked it in `hold`, or is the child of the thread that has.
            drop(unsafe { (*self.held.get()).take() });
        }
    }
}

/// Returns a number of the calling thread, which is the same in the child of a fork.
fn this_thread() -> usize {
    // SAFETY: returns a number.
    unsafe { libc::pthread_self() as usize }
}

extern "C" fn prepare() {
    // In this order, because the writer of a record opens directories.
    PROCESS.hold();
    OPEN.hold();
}

extern "C" fn release() {
    OPEN.release();
    PROCESS.release();
}

/// The loader calls it when this library is loaded. Handlers that are registered later run earlier: registering memory locks
/// its own state, and then opens directories.
extern "C" fn at_load() {
    // SAFETY: the handlers are functions of this library. Without memory for them, forks hold no locks.
    unsafe { libc::pthread_atfork(Some(prepare), Some(release), Some(release)) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
