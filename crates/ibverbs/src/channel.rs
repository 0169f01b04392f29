//! Completion channels.
//!
//! `ibv_destroy_cq` waits until all events taken of the queue are acknowledged. So the channel
//! counts what it hands out, by queue: dropping a queue acknowledges the rest, and an event that
//! is taken after that is acknowledged at once.

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

use crate::context::Handle;
use crate::explain::object_error;
use crate::faults::set_nonblocking;

#[derive(Debug)]
pub(crate) struct ChannelInner {
    pub(crate) raw: NonNull<abi::ibv_comp_channel>,
    /// Events handed out and not acknowledged, by the queue's name.
    queues: Mutex<HashMap<u32, Arc<AtomicU32>>>,
    pub(crate) handle: Arc<Handle>,
}

// SAFETY: verbs are thread-safe, and the pointer is only passed to them; the descriptor behind it
// does not change.
unsafe impl Send for ChannelInner {}
// SAFETY: as above.
unsafe impl Sync for ChannelInner {}

impl Drop for ChannelInner {
    fn drop(&mut self) {
        // SAFETY: the channel's queues hold it, so none is left.
        unsafe { (self.handle.library().ibv_destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

impl ChannelInner {
    fn queues(&self) -> MutexGuard<'_, HashMap<u32, Arc<AtomicU32>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the count of a queue that is about to be made.
    pub(crate) fn register(&self, id: u32) -> Arc<AtomicU32> {
        let unacknowledged = Arc::new(AtomicU32::new(0));
        self.queues().insert(id, unacknowledged.clone());
        unacknowledged
    }

    /// Forgets a queue that is about to be destroyed; returns how many of its events have been
    /// handed out and are to be acknowledged. Later ones are not handed out.
    pub(crate) fn forget(&self, id: u32) -> u32 {
        let count = self.queues().remove(&id);
        count.map_or(0, |count| count.swap(0, Ordering::Relaxed))
    }

    /// The next event that waits.
    fn take(&self) -> io::Result<Option<CqId>> {
        let library = self.handle.library();
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        loop {
            // Held over both steps: a queue is forgotten before the event is taken or after it is
            // counted.
            let queues = self.queues();
            // SAFETY: the channel lives, its descriptor does not block.
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
            // SAFETY: the queue is not destroyed before this event of it is acknowledged.
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
        // SAFETY: the channel was just made.
        set_nonblocking(unsafe { (*raw.as_ptr()).fd }).map_err(|e| object_error(action, e))?;
        Ok(VerbsChannel { inner })
    }
}

impl AsFd for VerbsChannel {
    /// Readable while events wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw((*self.inner.raw.as_ptr()).fd) }
    }
}

impl CompletionChannel for VerbsChannel {
    fn get_event(&self, patience: Span) -> io::Result<Option<CqId>> {
        let deadline = Instant::now() + patience.into();
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
