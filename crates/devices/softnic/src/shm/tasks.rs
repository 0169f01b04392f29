//! What other threads ask of the engine: to wake up, and to do work on its thread.
//!
//! The engine's thread stays in the network namespace in which the device was opened, wherever the program's
//! other threads move to (`setns`). So sockets are opened there.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::shm::dir::Dir;
use crate::shm::sync::lock;

/// How long to wait for the engine, which does not exist in the child of a fork.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Wakes the engine.
#[derive(Debug)]
pub(crate) struct Wake {
    pub(crate) fifo: File,
    /// The engine ticks: it need not be woken for another waiting request.
    pub(crate) watching: AtomicBool,
}

impl Wake {
    pub(crate) fn create(dir: &Dir, slot: u32) -> io::Result<Self> {
        Ok(Wake {
            fifo: dir.create_fifo(slot, "wake")?,
            watching: AtomicBool::new(false),
        })
    }

    /// Wakes the engine.
    pub(crate) fn wake(&self) {
        // If the FIFO is full, the engine has been woken already. A thread cannot be cancelled in it, unlike in the C
        // library's write.
        let _ = rustix::io::write(&self.fifo, &[0]);
    }

    /// Makes the engine tick, if it does not yet.
    pub(crate) fn watch(&self) {
        if !self.watching.swap(true, Ordering::Relaxed) {
            self.wake();
        }
    }

    pub(crate) fn drain(&self) {
        let mut bytes = [0; 256];
        while (&self.fifo)
            .read(&mut bytes)
            .is_ok_and(|n| n == bytes.len())
        {}
    }
}

type Task = Box<dyn FnOnce() + Send>;

/// Tasks for the engine's thread.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<Vec<Task>>);

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tasks").field(&lock(&self.0).len()).finish()
    }
}

impl Tasks {
    /// Runs `work` on the thread of the engine that `wake` wakes, and waits for the result. The caller must not hold
    /// a lock that the engine takes.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        wake: &Wake,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (done, outcome) = mpsc::sync_channel(1);
        // The send fails if the caller has given up waiting.
        let task = Box::new(move || drop(done.send(work())));
        lock(&self.0).push(task);
        wake.wake();
        outcome
            .recv_timeout(TIMEOUT)
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Runs all tasks, on the engine's thread.
    pub(crate) fn run_all(&self) {
        let tasks = std::mem::take(&mut *lock(&self.0));
        tasks.into_iter().for_each(|task| task());
    }
}
