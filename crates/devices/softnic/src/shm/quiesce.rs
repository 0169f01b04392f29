//! Waits until no peer is in the middle of an operation on this side's memory.
//!
//! A requester marks the start and end of each operation with plain stores to a word of its own ([`Busy`]),
//! which is odd during an operation. The owner first revokes what an operation needs (it stores the queue
//! pair's phase). Then it makes every running thread of every Adverb process execute a full barrier
//! (`membarrier`), so that requesters need no fence, which would cost time in each operation. After it, either
//! the requester has seen the new phase, or the owner sees the word odd. Finally it waits until the word is
//! even or has advanced.

use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};

use crate::shm::sync::{AtomicU64, Ordering, compiler_fence, yield_now};

/// How long a peer may take to end an operation. After that its queue pair is not reused.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);

/// A requester's mark, which is odd during an operation on the peer's memory.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Busy(AtomicU64);

impl Busy {
    /// Requester: begins an operation. Load what it needs after this.
    #[inline]
    pub fn enter(&self) {
        // Release: an owner that waits for the end of the previous operation may see only this store.
        self.0
            .store(self.0.load(Ordering::Relaxed) | 1, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    /// Requester: ends the operation.
    #[inline]
    pub fn leave(&self) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Release,
        );
    }

    /// Owner, after [`barrier`]: waits until the operation that may be in flight has ended.
    /// Returns false if it does not end within `timeout`.
    pub fn wait_idle(&self, timeout: Duration, is_dead: impl Fn() -> bool) -> bool {
        let seen = self.0.load(Ordering::Acquire);
        if seen & 1 == 0 {
            return true;
        }
        let deadline = Instant::now().checked_add(timeout);
        let mut looks = 0;
        while self.0.load(Ordering::Acquire) == seen {
            if is_dead() {
                return true;
            }
            if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                return false;
            }
            pause(looks);
            looks += 1;
        }
        true
    }
}

/// Lets others run. A peer that does not end its operation within `LOOKS` looks has lost its core, or is stopped.
fn pause(looks: u32) {
    #[cfg(not(loom))]
    if looks >= LOOKS {
        return std::thread::sleep(PAUSE);
    }
    #[cfg(loom)]
    let _ = looks;
    yield_now();
}

/// Number of looks at the peer's mark after which a thread sleeps between them.
#[cfg(not(loom))]
const LOOKS: u32 = 1 << 16;
#[cfg(not(loom))]
const PAUSE: Duration = Duration::from_millis(1);

/// Registers this process for [`barrier`]s of its peers.
pub(crate) fn register() -> rustix::io::Result<()> {
    membarrier(MembarrierCommand::RegisterGlobalExpedited)
}

/// A full barrier on every running thread of every registered process.
///
/// Falls back to the slow form if the expedited one fails. Opening the device has checked that the kernel
/// supports it.
#[cfg(not(loom))]
pub fn barrier() {
    if membarrier(MembarrierCommand::GlobalExpedited).is_err() {
        let _ = membarrier(MembarrierCommand::Global);
    }
}

/// Under loom the requester's compiler fence is a full fence (see `sync`), so only the owner's fence is needed here.
#[cfg(loom)]
pub fn barrier() {
    crate::shm::sync::fence(Ordering::SeqCst);
}
