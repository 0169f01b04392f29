//! Completion channels.
//!
//! `ibv_destroy_cq` waits until all events taken from the channel for that queue are acknowledged. So
//! the channel counts the events taken per queue: dropping a queue acknowledges the remaining ones,
//! and an event taken after that is acknowledged immediately.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use adverb_abi as abi;
use adverb_units::Span;
use adverb_verbs::{CompletionChannel, CqId, CreateError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::explain::object_error;
use crate::faults::set_nonblocking;
use crate::handle::Handle;

#[derive(Debug)]
pub(crate) struct ChannelInner {
    pub(crate) raw: NonNull<abi::ibv_comp_channel>,
    /// Events taken and not acknowledged, by the id of the queue.
    queues: Mutex<HashMap<u32, Arc<AtomicU32>>>,
    pub(crate) handle: Arc<Handle>,
}

// SAFETY: libibverbs locks its objects, so any thread may call it; the pointer is only passed to it,
// and the descriptor in the structure does not change.
unsafe impl Send for ChannelInner {}
// SAFETY: as for `Send`.
unsafe impl Sync for ChannelInner {}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        // SAFETY: its completion queues hold an `Arc` of it, so none is left; it is destroyed once.
        unsafe { (self.handle.library().ibv_destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

impl ChannelInner {
    fn queues(&self) -> MutexGuard<'_, HashMap<u32, Arc<AtomicU32>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a queue and returns its count of unacknowledged events.
    pub(crate) fn register(&self, id: u32) -> Arc<AtomicU32> {
        let unacknowledged = Arc::new(AtomicU32::new(0));
        self.queues().insert(id, unacknowledged.clone());
        unacknowledged
    }

    /// Unregisters a queue that is about to be destroyed; returns the number of its events still to be
    /// acknowledged. From now on `take` does not return its events.
    pub(crate) fn forget(&self, id: u32) -> u32 {
        let count = self.queues().remove(&id);
        count.map_or(0, |count| count.swap(0, Ordering::Relaxed))
    }

    /// Takes the next event; `None` if there is none.
    fn take(&self) -> io::Result<Option<CqId>> {
        let library = self.handle.library();
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        loop {
            // Locked while an event is taken and counted: otherwise `forget` could run in between, and
            // the event would never be acknowledged.
            let queues = self.queues();
            // SAFETY: the channel is not destroyed yet; its descriptor does not block.
            let result = unsafe {
                (library.ibv_get_cq_event)(self.raw.as_ptr(), &raw mut cq, &raw mut context)
            };
            if result != 0 {
                let error = io::Error::last_os_error();
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    io::ErrorKind::Interrupted => continue,
                    _ => Err(error),
                };
            }
            let id = context as usize as u32;
            if let Some(count) = queues.get(&id) {
                count.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(CqId(id)));
            }
            // SAFETY: `ibv_destroy_cq` waits for this acknowledgement, so the queue still exists.
            unsafe { (library.ibv_ack_cq_events)(cq, 1) };
        }
    }
}

/// A completion channel.
#[derive(Clone, Debug)]
pub struct VerbsChannel {
    pub(crate) inner: Arc<ChannelInner>,
}

impl VerbsChannel {
    pub(crate) fn new(handle: &Arc<Handle>) -> Result<Self, CreateError> {
        let action = "create a completion channel";
        // SAFETY: the context is open.
        let raw = unsafe { (handle.library().ibv_create_comp_channel)(handle.raw.as_ptr()) };
        let raw =
            NonNull::new(raw).ok_or_else(|| object_error(action, io::Error::last_os_error()))?;
        let inner = Arc::new(ChannelInner {
            raw,
            queues: Mutex::default(),
            handle: handle.clone(),
        });
        // SAFETY: the channel was just created.
        set_nonblocking(unsafe { (*raw.as_ptr()).fd }).map_err(|e| object_error(action, e))?;
        Ok(VerbsChannel { inner })
    }
}

impl AsFd for VerbsChannel {
    /// The descriptor is readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw((*self.inner.raw.as_ptr()).fd) }
    }
}

impl CompletionChannel for VerbsChannel {
    fn get_event(&self, timeout: Span) -> io::Result<Option<CqId>> {
        let deadline = Instant::now() + timeout.into();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok();
            let mut fds = [PollFd::new(self, PollFlags::IN)];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
            if let Some(event) = self.inner.take()? {
                return Ok(Some(event));
            }
        }
    }
}
