//! Event channels of the connection manager, read with a timeout.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::time::Instant;

use adverb_abi as abi;
use adverb_units::Span;
use adverb_verbs::{Gid, Lid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::faults::set_nonblocking;
use crate::library::CmLibrary;

/// `rdma_event_channel`, destroyed when dropped.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) raw: NonNull<abi::rdma_event_channel>,
    pub(super) library: &'static CmLibrary,
}

// SAFETY: librdmacm locks its objects, so any thread may call it; the pointer is only passed to it.
unsafe impl Send for Channel {}
// SAFETY: as for `Send`; the descriptor in the structure does not change.
unsafe impl Sync for Channel {}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: ids of the channel hold an `Arc` of it, so none is left; it is destroyed once.
        unsafe { (self.library.rdma_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

/// An acknowledged event.
#[derive(Debug)]
pub(super) struct Event {
    /// `rdma_cm_event_type`.
    pub(super) kind: u32,
    /// 0, a negative errno, or the reason of a rejection.
    pub(super) status: i32,
    /// The peer's queue pair number, if the event contains it.
    pub(super) qp_num: u32,
    /// GID and LID of the multicast group that was joined.
    pub(super) group: Option<(Gid, Lid)>,
    /// The id of the event; for a connection request the new id, which the receiver has to destroy.
    pub(super) id: *mut abi::rdma_cm_id,
}

impl Channel {
    pub(super) fn new(library: &'static CmLibrary) -> io::Result<Self> {
        // SAFETY: the function has no preconditions.
        let raw = unsafe { (library.rdma_create_event_channel)() };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let channel = Channel { raw, library };
        set_nonblocking(channel.fd())?;
        Ok(channel)
    }

    fn fd(&self) -> i32 {
        // SAFETY: the channel is not destroyed yet.
        unsafe { (*self.raw.as_ptr()).fd }
    }

    /// Waits for the next event until `end`; returns `None` on timeout.
    pub(super) fn next(&self, end: Instant) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.take()? {
                return Ok(Some(event));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            // SAFETY: the descriptor is open as long as the channel, which `self` is.
            let fd = unsafe { BorrowedFd::borrow_raw(self.fd()) };
            let mut fds = [PollFd::new(&fd, PollFlags::IN)];
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut fds, Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes a pending event; `None` if there is none.
    fn take(&self) -> io::Result<Option<Event>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is not destroyed yet; its descriptor does not block.
        if unsafe { (self.library.rdma_get_cm_event)(self.raw.as_ptr(), &raw mut raw) } != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: the library returned an event, which is valid until it is acknowledged.
        let (event, param) = unsafe { (&*raw, (*raw).param.conn) };
        let group = (event.event == abi::RDMA_CM_EVENT_MULTICAST_JOIN).then(|| {
            // SAFETY: as above; this event has parameters of datagrams, and zeros are valid ones.
            let group = unsafe { event.param.ud.ah_attr };
            // SAFETY: all bytes of a GID are valid.
            (Gid(unsafe { group.grh.dgid.raw }), Lid(group.dlid))
        });
        let event = Event {
            group,
            kind: event.event,
            status: event.status,
            qp_num: param.qp_num,
            id: event.id,
        };
        // Destroying an id waits until its events are acknowledged, so this happens right away.
        // SAFETY: it is acknowledged once and not used afterwards.
        unsafe { (self.library.rdma_ack_cm_event)(raw) };
        Ok(Some(event))
    }
}

/// Returns the moment at which `timeout` ends.
pub(super) fn end_of(timeout: Span) -> Instant {
    Instant::now() + std::time::Duration::from(timeout)
}
