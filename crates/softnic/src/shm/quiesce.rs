//! Waiting until a peer is not in the middle of an operation on this side's memory.
//!
//! A requester marks the start and end of each operation with plain stores to a word of its own
//! ([`Busy`]): odd while it works. The owner first takes back what the operation needs (stores the
//! queue pair's phase), then makes every running thread of every Adverb process pass a full
//! barrier (`membarrier`, so that requesters need no fence of their own: 0 ns on the data path),
//! then waits until the word is even or has moved on.

use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};

use crate::shm::sync::{AtomicU64, Ordering, compiler_fence, yield_now};

/// A requester's mark: odd while it works on the peer's memory.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Busy(AtomicU64);

impl Busy {
    /// Requester: an operation begins. What it needs must be loaded after this.
    #[inline]
    pub fn enter(&self) {
        // Release: who waits for the end of the former operation may see only this store.
        self.0
            .store(self.0.load(Ordering::Relaxed) | 1, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    /// Requester: the operation has ended.
    #[inline]
    pub fn leave(&self) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Release,
        );
    }

    /// Owner, after [`barrier`]: waits until the operation that may be in flight has ended.
    /// False where it has not within `patience`.
    pub fn wait_idle(&self, patience: Duration, is_dead: impl Fn() -> bool) -> bool {
        let seen = self.0.load(Ordering::Acquire);
        if seen & 1 == 0 {
            return true;
        }
        let deadline = Instant::now() + patience;
        while self.0.load(Ordering::Acquire) == seen {
            if is_dead() {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            yield_now();
        }
        true
    }
}

/// Registers this process for [`barrier`]s of its peers.
pub(crate) fn register() -> rustix::io::Result<()> {
    membarrier(MembarrierCommand::RegisterGlobalExpedited)
}

/// A full barrier on every running thread of every registered process.
///
/// Falls back to the slow form where the expedited one fails; registration made sure at opening
/// that the kernel has it.
#[cfg(not(loom))]
pub fn barrier() {
    if membarrier(MembarrierCommand::GlobalExpedited).is_err() {
        let _ = membarrier(MembarrierCommand::Global);
    }
}

/// Under loom the requester fences itself (see `sync`); the owner's half is left.
#[cfg(loom)]
pub fn barrier() {
    crate::shm::sync::fence(Ordering::SeqCst);
}
