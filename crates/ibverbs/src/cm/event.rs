//! Event channels: what the connection manager reports, waited for with a bound.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::time::Instant;

use adverb_abi as abi;
use adverb_units::Span;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::faults::set_nonblocking;
use crate::library::CmLibrary;

/// `rdma_event_channel`, destroyed at the end.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) raw: NonNull<abi::rdma_event_channel>,
    pub(super) library: &'static CmLibrary,
}

// SAFETY: librdmacm is thread-safe; the pointer is only passed to it.
unsafe impl Send for Channel {}
// SAFETY: as above; the descriptor behind it does not change.
unsafe impl Sync for Channel {}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: all ids of the channel hold it, so they are destroyed.
        unsafe { (self.library.rdma_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// An event, acknowledged.
#[derive(Debug)]
pub(super) struct Event {
    /// `rdma_cm_event_type`.
    pub(super) kind: u32,
    /// 0, a negative errno, or the reason of a rejection.
    pub(super) status: i32,
    /// The peer's queue pair, where the event tells it.
    pub(super) qp_num: u32,
    /// Whose event it is; of a connection request the new id, which is the receiver's to destroy.
    pub(super) id: *mut abi::rdma_cm_id,
}

impl Channel {
    pub(super) fn new(library: &'static CmLibrary) -> io::Result<Self> {
        // SAFETY: there is nothing to hold.
        let raw = unsafe { (library.rdma_create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let channel = Channel { raw, library };
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    fn fd(&self) -> i32 {
        // SAFETY: the channel lives.
        unsafe { (*self.raw.as_ptr()).fd }
    }

    /// The next event, waited for until `end`; none where nothing came.
    pub(super) fn next(&self, end: Instant) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.take()? {
                return Ok(Some(event));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            // SAFETY: the descriptor is the channel's, which lives.
            let fd = unsafe { BorrowedFd::borrow_raw(self.fd()) };
            let mut fds = [PollFd::new(&fd, PollFlags::IN)];
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut fds, Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// An event that waits.
    fn take(&self) -> io::Result<Option<Event>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel lives, its descriptor does not block.
        if unsafe { (self.library.rdma_get_cm_event)(self.raw.as_ptr(), &raw mut raw) } != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: the library gave an event, which lives until it is acknowledged.
        let (event, param) = unsafe { (&*raw, (*raw).param.conn) };
        let event = Event {
            kind: event.event,
            status: event.status,
            qp_num: param.qp_num,
            id: event.id,
        };
        // Destroying an id waits until its events are acknowledged: so all are, at once.
        // SAFETY: it is acknowledged once; nothing of it is used after.
        unsafe { (self.library.rdma_ack_cm_event)(raw) };
        Ok(Some(event))
    }
}

/// The moment that `patience` ends.
pub(super) fn end_of(patience: Span) -> Instant {
    Instant::now() + std::time::Duration::from(patience)
}
