//! Asynchronous events: those that were reported, and limits of shared receive queues that were reached.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use adverb_verbs::AsyncEvent;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};

use super::{Port, PortSrq};
use crate::shm::sync::lock;

/// The asynchronous events of a port that were not polled yet, except limits of shared receive queues.
#[derive(Debug, Default)]
pub(super) struct AsyncEvents {
    waiting: Mutex<VecDeque<AsyncEvent>>,
    /// Set if a program waits for the events at a descriptor.
    bell: OnceLock<EventBell>,
}

/// A pair of sockets, through which a byte passes for each asynchronous event.
#[derive(Debug)]
struct EventBell {
    write: OwnedFd,
    /// The descriptor that the program has, too.
    read: OwnedFd,
}

impl Port {
    /// Adds an asynchronous event.
    pub(crate) fn report(&self, event: AsyncEvent) {
        lock(&self.events.waiting).push_back(event);
        if let Some(bell) = self.events.bell.get() {
            // If the socket is full, its other end is readable anyway.
            let _ = rustix::net::send(&bell.write, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Returns a descriptor from which a byte can be read for each asynchronous event.
    pub(crate) fn open_async_events(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC;
        let (read, write) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let of_program = read.try_clone()?;
        let bell = &self.events.bell;
        bell.set(EventBell { write, read })
            .map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))?;
        self.wake.wake();
        Ok(of_program)
    }

    /// Reports limits of shared receive queues that were reached. Returns whether it has to be called again, because
    /// a limit is armed: requesters write it to shared memory, and do not wake this process.
    pub(crate) fn report_limits(&self) -> bool {
        if self.events.bell.get().is_none() {
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
        if let Some(bell) = self.events.bell.get() {
            for _ in events.len()..before {
                // The program may have taken the byte; then it waits for the next one.
                let _ = rustix::net::recv(&bell.read, &mut [0_u8], RecvFlags::DONTWAIT);
            }
        }
    }
}
