//! Atomics (loom's while the shared-memory protocols are model-checked), and locks of this process.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};
#[cfg(not(loom))]
pub(crate) use std::thread::yield_now;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::thread::yield_now;

/// Loom has no compiler fence. A full fence models what the compiler fence becomes together with the other side's
/// `membarrier`.
#[cfg(loom)]
pub(crate) fn compiler_fence(order: Ordering) {
    fence(order);
}

/// A full fence after an atomic read-modify-write. On x86-64 that instruction already is one.
#[inline]
pub(crate) fn fence_after_rmw() {
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    fence(Ordering::SeqCst);
}

/// Locks a mutex whose data stays consistent if a holder panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
