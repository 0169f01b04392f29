//! Work for the engine's thread: that one is in the network namespace in which the device was opened,
//! wherever the program's other threads have gone meanwhile (setns).

use std::fmt;
use std::io;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crate::engine::Wake;
use crate::port::lock;

/// How long to wait for the engine, which is gone in the child of a fork.
const PATIENCE: Duration = Duration::from_secs(10);

type Errand = Box<dyn FnOnce() + Send>;

/// What the engine is to do next.
#[derive(Default)]
pub(crate) struct Errands(Mutex<Vec<Errand>>);

impl fmt::Debug for Errands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Errands")
            .field(&lock(&self.0).len())
            .finish()
    }
}

impl Errands {
    /// Has the engine, which `wake` wakes, do something, and waits for it. The caller holds no lock that
    /// the engine takes.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        wake: &Wake,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (done, outcome) = mpsc::sync_channel(1);
        // Who has given up waiting is not told.
        let errand = Box::new(move || drop(done.send(work())));
        lock(&self.0).push(errand);
        wake.wake();
        outcome
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// The engine does what there is to do.
    pub(crate) fn finish(&self) {
        let errands = std::mem::take(&mut *lock(&self.0));
        errands.into_iter().for_each(|errand| errand());
    }
}
