//! Event channels: a queue of events, and a descriptor that is readable while there are any.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use adverb_abi::{rdma_cm_event, rdma_event_channel};

use super::event::Event;
use super::id::Shared;
use crate::call::{self, Refusal};
use crate::object::{Object, lock};

/// The queue of a channel. Its descriptor is a semaphore that counts the events, so a program may poll it, and set it
/// to non-blocking, as it does with the kernel's.
#[derive(Debug)]
pub(crate) struct Channel {
    counter: OwnedFd,
    events: Mutex<VecDeque<Event>>,
}

type ChannelObject = Object<rdma_event_channel, Arc<Channel>>;

impl Channel {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        // SAFETY: creates a descriptor, which is owned here.
        let counter = unsafe {
            let fd = libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Arc::new(Channel {
            counter,
            events: Mutex::default(),
        }))
    }

    /// Returns the channel behind a pointer from C.
    ///
    /// # Safety
    /// `channel` is from `rdma_create_event_channel`, and not destroyed.
    pub(super) unsafe fn of(channel: *const rdma_event_channel) -> Arc<Self> {
        // SAFETY: the caller's.
        unsafe { ChannelObject::of(channel) }.own.clone()
    }

    pub(super) fn push(&self, event: Event) {
        let mut events = lock(&self.events);
        events.push_back(event);
        let one = 1_u64.to_ne_bytes();
        // SAFETY: writes 8 bytes to an event counter, which is far from its maximum.
        unsafe { libc::write(self.counter.as_raw_fd(), one.as_ptr().cast(), 8) };
    }

    /// Takes the oldest event. Waits for it, unless the program has set the descriptor to non-blocking.
    pub(super) fn take(&self) -> Result<Event, Refusal> {
        loop {
            let mut count = [0; 8];
            // SAFETY: reads 8 bytes.
            let read =
                unsafe { libc::read(self.counter.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
            if read < 0 {
                let error = io::Error::last_os_error();
                return Err(Refusal::expected(error.raw_os_error().unwrap_or(libc::EIO)));
            }
            if let Some(event) = lock(&self.events).pop_front() {
                return Ok(event);
            }
        }
    }

    /// Removes the events of an id, and returns them.
    pub(super) fn remove_of(&self, id: &Arc<Shared>) -> Vec<Event> {
        let mut events = lock(&self.events);
        let (gone, kept): (Vec<_>, Vec<_>) = events.drain(..).partition(|event| event.is_of(id));
        *events = kept.into();
        gone.iter().for_each(|_| self.count_down());
        gone
    }

    /// Decrements the counter without waiting. If another thread was faster, it finds no event and waits again.
    fn count_down(&self) {
        let mut count = [0_u8; 8];
        let piece = libc::iovec {
            iov_base: count.as_mut_ptr().cast(),
            iov_len: 8,
        };
        // SAFETY: reads at most 8 bytes to `count`.
        unsafe {
            libc::preadv2(
                self.counter.as_raw_fd(),
                &raw const piece,
                1,
                -1,
                libc::RWF_NOWAIT,
            )
        };
    }
}

pub(super) fn create_channel() -> Result<*mut rdma_event_channel, Refusal> {
    let channel = Channel::new()?;
    let fd = channel.counter.as_raw_fd();
    Ok(Object::create(rdma_event_channel { fd }, channel))
}

#[unsafe(no_mangle)]
extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    call::pointer("rdma_create_event_channel", || {
        super::agent::agents()?;
        create_channel()
    })
}

/// Frees a channel.
///
/// # Safety
/// `channel` is from [`create_channel`], and freed once.
pub(super) unsafe fn destroy_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the caller's.
    unsafe { ChannelObject::destroy(channel) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    if !channel.is_null() {
        // SAFETY: the program destroys a channel that it has created, once.
        unsafe { destroy_channel(channel) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    call::number("rdma_get_cm_event", || {
        if channel.is_null() || event.is_null() {
            return Err(Refusal::invalid("the channel or the event is NULL"));
        }
        // SAFETY: the program passes a channel that it has created.
        let taken = unsafe { Channel::of(channel) }.take()?;
        // SAFETY: the program passes the address of a pointer.
        unsafe { event.write(taken.hand_out()) };
        Ok(0)
    })
}
