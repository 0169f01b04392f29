//! Asynchronous events: those that were reported, and limits of shared receive queues that were reached.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use adverb_verbs::AsyncEvent;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{ReadWriteFlags, preadv2};

use super::{Port, PortSrq};
use crate::shm::sync::lock;

/// The asynchronous events of a port that were not polled yet, except limits of shared receive queues.
#[derive(Debug, Default)]
pub(super) struct AsyncEvents {
    waiting: Mutex<VecDeque<AsyncEvent>>,
    /// A semaphore that counts the events, if a program waits for them at a descriptor, which refers to the same open
    /// file.
    counter: OnceLock<OwnedFd>,
}

impl Port {
    /// Adds an asynchronous event.
    pub(crate) fn report(&self, event: AsyncEvent) {
        lock(&self.events.waiting).push_back(event);
        if let Some(counter) = self.events.counter.get() {
            // The counter is far from its maximum, so this neither fails nor waits.
            let _ = rustix::io::write(counter, &1_u64.to_ne_bytes());
        }
    }

    /// Returns a descriptor from which 8 bytes can be read for each asynchronous event.
    pub(crate) fn open_async_events(&self) -> io::Result<OwnedFd> {
        let counter = eventfd(0, EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC)?;
        let of_program = counter.try_clone()?;
        let known = &self.events.counter;
        known
            .set(counter)
            .map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))?;
        self.wake.wake();
        Ok(of_program)
    }

    /// Reports limits of shared receive queues that were reached. Returns whether it has to be called again, because
    /// a limit is armed: requesters write it to shared memory, and do not wake this process.
    pub(crate) fn report_limits(&self) -> bool {
        if self.events.counter.get().is_none() {
            return false;
        }
        let srqs = self.shared_queues();
        srqs.iter().for_each(|srq| srq.take_datagrams());
        for event in srqs.iter().filter_map(|srq| srq.take_limit_event()) {
            self.report(event);
        }
        srqs.iter().any(|srq| srq.has_limit())
    }

    fn shared_queues(&self) -> Vec<Arc<dyn PortSrq>> {
        let srqs = lock(&self.srqs);
        srqs.values().filter_map(Weak::upgrade).collect()
    }

    /// Takes the oldest asynchronous event. Whether a shared receive queue's limit was reached is in the
    /// queue's shared memory, where requesters write it.
    pub(crate) fn async_event(&self) -> Option<AsyncEvent> {
        if let Some(event) = lock(&self.events.waiting).pop_front() {
            return Some(event);
        }
        let srqs = self.shared_queues();
        srqs.iter().for_each(|srq| srq.take_datagrams());
        srqs.iter().find_map(|srq| srq.take_limit_event())
    }

    /// Removes the asynchronous events of an object that is being destroyed.
    pub(crate) fn forget(&self, is_of: impl Fn(AsyncEvent) -> bool) {
        let mut events = lock(&self.events.waiting);
        let before = events.len();
        events.retain(|event| !is_of(*event));
        if let Some(counter) = self.events.counter.get() {
            for _ in events.len()..before {
                let mut count = [0; 8];
                let into = &mut [IoSliceMut::new(&mut count)];
                // Without waiting, although the program's descriptor may block: the program may have decremented the
                // counter and not taken the event; then it finds none, and waits for the next one.
                let _ = preadv2(counter, into, u64::MAX, ReadWriteFlags::NOWAIT);
            }
        }
    }
}
