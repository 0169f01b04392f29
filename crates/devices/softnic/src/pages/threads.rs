//! The threads of this library, which pause while pages are exchanged.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use rustix::thread::gettid;

const NONE: i32 = 0;

/// Threads of this library that run, by thread ID.
static THREADS: [AtomicI32; 64] = [const { AtomicI32::new(NONE) }; 64];
/// Number of them that may access memory now.
static WORKING: AtomicU32 = AtomicU32::new(0);
static IS_PAUSED: AtomicBool = AtomicBool::new(false);

/// How long to wait until they pause. They work for microseconds at a time, if they get a core.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait until the kernel has removed a thread that has ended.
const END: Duration = Duration::from_secs(10);

/// The calling thread as one of this library's, until it is dropped.
#[derive(Debug)]
pub(crate) struct OwnThread(());

impl OwnThread {
    /// Makes the calling thread one of this library's. Returns its ID, too.
    pub(crate) fn begin() -> (Self, i32) {
        let id = gettid().as_raw_nonzero().get();
        let take = |place: &&AtomicI32| {
            let taken = place.compare_exchange(NONE, id, Ordering::AcqRel, Ordering::Relaxed);
            taken.is_ok()
        };
        // If there are too many, this one is regarded as a thread of the program.
        let _ = THREADS.iter().find(take);
        begin_work();
        (OwnThread(()), id)
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        WORKING.fetch_sub(1, Ordering::Release);
    }
}

/// Forgets a thread that was joined, after the kernel has removed it.
pub(crate) fn forget(id: i32) {
    let path = format!("/proc/self/task/{id}");
    let deadline = Instant::now() + END;
    while std::fs::exists(&path).unwrap_or(false) && Instant::now() < deadline {
        yield_now();
    }
    if let Some(place) = THREADS
        .iter()
        .find(|place| place.load(Ordering::Relaxed) == id)
    {
        place.store(NONE, Ordering::Release);
    }
}

/// Forgets all threads, in the child of a fork.
pub(crate) fn forget_all() {
    THREADS
        .iter()
        .for_each(|place| place.store(NONE, Ordering::Relaxed));
    WORKING.store(0, Ordering::Relaxed);
}

/// Whether a thread is one of this library's.
pub(crate) fn is_own(id: i32) -> bool {
    THREADS
        .iter()
        .any(|place| place.load(Ordering::Acquire) == id)
}

fn begin_work() {
    loop {
        WORKING.fetch_add(1, Ordering::SeqCst);
        if !IS_PAUSED.load(Ordering::SeqCst) {
            return;
        }
        WORKING.fetch_sub(1, Ordering::SeqCst);
        while IS_PAUSED.load(Ordering::SeqCst) {
            yield_now();
        }
    }
}

/// Runs a blocking call of an own thread, during which pages may be exchanged: the thread itself accesses no memory, and
/// bytes that the kernel returns may be lost.
pub(crate) fn block<T>(call: impl FnOnce() -> T) -> T {
    WORKING.fetch_sub(1, Ordering::SeqCst);
    let result = call();
    begin_work();
    result
}

/// While this lives, no thread of this library accesses memory, except the calling one.
#[derive(Debug)]
pub(crate) struct Paused(());

impl Paused {
    /// Waits until all threads pause; `None` if they do not.
    pub(crate) fn begin() -> Option<Self> {
        IS_PAUSED.store(true, Ordering::SeqCst);
        let paused = Paused(());
        let deadline = Instant::now() + TIMEOUT;
        while WORKING.load(Ordering::SeqCst) != 0 {
            if Instant::now() > deadline {
                return None;
            }
            yield_now();
        }
        Some(paused)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        IS_PAUSED.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn threads_work_only_while_nothing_pauses_them() {
        let (began, has_begun) = mpsc::channel();
        let (stop, is_stopped) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let (own, id) = OwnThread::begin();
            began.send(id).unwrap();
            let stopped = block(|| is_stopped.recv());
            let was_paused = IS_PAUSED.load(Ordering::SeqCst);
            drop(own);
            (stopped.is_ok(), was_paused)
        });
        let id = has_begun.recv().unwrap();
        assert!(is_own(id));
        let paused = Paused::begin().expect("the only thread blocks");
        stop.send(()).unwrap();
        drop(paused);
        assert_eq!(thread.join().unwrap(), (true, false));
        forget(id);
        assert!(!is_own(id));
    }
}
