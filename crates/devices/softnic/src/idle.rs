//! Yields the core of a thread that polls without success.
//!
//! A polling thread occupies its core. If the peer's thread is waiting for the same core, the awaited message cannot be
//! sent until the scheduler preempts the poller, milliseconds later. With two pairs of threads on two cores, hardly any
//! message arrives sooner. So a thread calls `sched_yield` after [`POLLS`] consecutive polls without success, some 10 µs.
//!
//! Measured on two cores (Linux 6.18, EEVDF) with an 8 B ping, which one pair exchanges at 4.7 M/s: two pairs reach
//! 4.5 M/s together instead of 2.1 M/s, 32 pairs 3.4 M/s instead of 0.05 M/s, and one pair with two computing threads
//! 2.1 M/s instead of 1.0 M/s.
//!
//! The number of polls is a compromise. With 2048 polls 32 pairs reach 2.5 M/s, with 16,384 polls 0.8 M/s. With 256
//! polls one pair next to two computing threads reaches 0.7 M/s, because it yields before the peer can answer, and
//! each yield costs it a slice. If no other thread is runnable, the call returns after 0.2 µs, which does not delay
//! a message measurably: those that arrive within 10 µs are found before, and others rarely arrive during the call.
//!
//! If each of the 32 pairs is in another scheduling group (a session with `sched_autogroup_enabled`), they reach 2.0 M/s
//! together instead of 0.4 M/s.
//!
//! Two threads that are not pinned and start on one core share it for up to 0.1 s, instead of some milliseconds, if other
//! work keeps the kernel from balancing: it does not like to move a thread that has run in the last 0.5 ms.

use std::cell::Cell;

/// Consecutive polls without success after which a thread yields.
const POLLS: u32 = 1024;
/// A poll of the UDP port makes a system call and takes as long as this number of other polls.
pub(crate) const POLLS_PER_UDP_POLL: u32 = 32;

thread_local! {
    /// Polls without success since the calling thread's last success or yield.
    static MISSES: Cell<u32> = const { Cell::new(0) };
}

/// Counts polls without success, and yields the core after [`POLLS`] of them.
#[inline]
pub(crate) fn note_misses(polls: u32) {
    MISSES.with(|misses| {
        let count = misses.get() + polls;
        if count < POLLS {
            misses.set(count);
        } else {
            misses.set(0);
            yield_core();
        }
    });
}

/// Notes that the calling thread makes progress: it has found a completion, or posts a request.
#[inline]
pub(crate) fn note_progress() {
    MISSES.with(|misses| misses.set(0));
}

#[cold]
#[inline(never)]
fn yield_core() {
    #[cfg(feature = "testing")]
    YIELDS.with(|yields| yields.set(yields.get() + 1));
    std::thread::yield_now();
}

#[cfg(feature = "testing")]
thread_local! {
    static YIELDS: Cell<u64> = const { Cell::new(0) };
}

/// Returns how many times the calling thread has yielded its core because it polled without success.
#[cfg(feature = "testing")]
pub fn yields() -> u64 {
    YIELDS.with(Cell::get)
}
