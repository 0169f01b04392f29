//! Routes the guest's answers to the waiting requests.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use crate::protocol::{Event, JobId, read_frame};

/// Receivers of each job's events; `None` once the machine has ended.
#[derive(Clone)]
pub(super) struct Routes(Arc<Mutex<Option<Waiting>>>);

/// The receivers of the jobs' events.
type Waiting = HashMap<JobId, Sender<Event>>;

impl Routes {
    pub(super) fn new() -> Self {
        Routes(Arc::new(Mutex::new(Some(HashMap::new()))))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Option<Waiting>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Passes events on until the port's end; then all receivers are disconnected.
    pub(super) fn follow(&self, port: &UnixStream) {
        while let Ok((job, event)) = read_frame::<Event>(port) {
            self.with(|jobs| {
                let to = jobs.as_ref().and_then(|jobs| jobs.get(&job));
                // A job that nobody waits for any more is not an error.
                to.map(|to| to.send(event))
            });
        }
        self.with(Option::take);
    }

    /// Where a job's events arrive; disconnected at once if the machine has ended.
    pub(super) fn events_of(&self, job: JobId) -> Receiver<Event> {
        let (to, events) = mpsc::channel();
        self.with(|jobs| jobs.as_mut().map(|jobs| jobs.insert(job, to)));
        events
    }

    /// The answers to a request that is about to be sent.
    pub(super) fn await_answers(&self, job: JobId) -> Pending<'_> {
        let events = self.events_of(job);
        Pending {
            routes: self,
            job,
            events,
        }
    }
}

/// A request that waits for answers, which are dropped with it.
pub(super) struct Pending<'a> {
    routes: &'a Routes,
    pub(super) job: JobId,
    pub(super) events: Receiver<Event>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.routes
            .with(|jobs| jobs.as_mut().map(|jobs| jobs.remove(&self.job)));
    }
}
