//! Events, as the program gets them, and their channels: a queue with a descriptor that is readable while it has any.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use adverb_abi::{
    rdma_cm_event, rdma_cm_event_param, rdma_cm_id, rdma_conn_param, rdma_event_channel,
    rdma_ud_param,
};

use super::event::Kind;
use super::id::Shared;
use crate::call::{self, Refusal};
use crate::object::{Object, lock};

/// Parameters of an event; the private data are separate.
#[derive(Clone, Copy)]
pub(super) enum Param {
    Conn(rdma_conn_param),
    Ud(rdma_ud_param),
}

// SAFETY: the pointers to private data are null until the program gets the event.
unsafe impl Send for Param {}

impl std::fmt::Debug for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Param::Conn(_) => "Conn",
            Param::Ud(_) => "Ud",
        })
    }
}

/// An event that the program has not taken.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) kind: Kind,
    pub(super) status: c_int,
    pub(super) id: Arc<Shared>,
    /// Connection requests: the id that listens.
    pub(super) listener: Option<Arc<Shared>>,
    pub(super) param: Param,
    pub(super) private_data: Vec<u8>,
    /// The peer has accepted. The program's thread connects the queue pair when it takes the event.
    pub(super) is_reply: bool,
    /// Multicast: the program's context, which the event has instead of private data.
    pub(super) context: Option<usize>,
}

/// An event that the program has taken and not acknowledged.
struct Taken {
    id: Arc<Shared>,
    listener: Option<Arc<Shared>>,
    _private_data: Vec<u8>,
}

type EventObject = Object<rdma_cm_event, Taken>;

impl Event {
    pub(super) fn new(kind: Kind, status: c_int, id: &Arc<Shared>) -> Self {
        Event {
            kind,
            status,
            id: id.clone(),
            listener: None,
            param: Param::Conn(rdma_conn_param::zeroed()),
            private_data: Vec::new(),
            is_reply: false,
            context: None,
        }
    }

    /// Whether it is an event of `id`: its own, or a request to it.
    pub(super) fn is_of(&self, id: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.id, id) || self.listener.as_ref().is_some_and(|l| Arc::ptr_eq(l, id))
    }

    /// Acknowledges an event that was taken and that the program does not get.
    pub(super) fn discard(self) {
        awaited(&self.id, &self.listener).event_acknowledged();
    }

    /// Makes C's event of one that was taken.
    pub(super) fn hand_out(self) -> *mut rdma_cm_event {
        let Event {
            kind,
            status,
            id,
            listener,
            param,
            private_data,
            context,
            ..
        } = self;
        let data = match (context, private_data.is_empty()) {
            (Some(context), _) => std::ptr::with_exposed_provenance(context),
            (None, true) => std::ptr::null(),
            (None, false) => private_data.as_ptr().cast(),
        };
        let length = private_data.len() as u8;
        let param = match param {
            Param::Conn(conn) => rdma_cm_event_param {
                conn: rdma_conn_param {
                    private_data: data,
                    private_data_len: length,
                    ..conn
                },
            },
            Param::Ud(ud) => rdma_cm_event_param {
                ud: rdma_ud_param {
                    private_data: data,
                    private_data_len: length,
                    ..ud
                },
            },
        };
        let c_of = |shared: &Option<Arc<Shared>>| -> *mut rdma_cm_id {
            shared.as_ref().map_or(std::ptr::null_mut(), |l| l.c())
        };
        let c = rdma_cm_event {
            id: id.c(),
            listen_id: c_of(&listener),
            event: kind as u32,
            status,
            param,
        };
        let own = Taken {
            id,
            listener,
            _private_data: private_data,
        };
        Object::create(c, own)
    }
}

/// Frees an event.
///
/// # Safety
/// `event` is from [`Event::hand_out`], and freed once.
pub(super) unsafe fn acknowledge(event: *mut rdma_cm_event) {
    // SAFETY: the caller's.
    let Taken { id, listener, .. } = &unsafe { EventObject::of(event) }.own;
    let (id, listener) = (id.clone(), listener.clone());
    // SAFETY: the caller's.
    unsafe { EventObject::destroy(event) };
    awaited(&id, &listener).event_acknowledged();
}

/// Returns the id that is not destroyed before the program has acknowledged an event: of a request the one that listens, as
/// in the kernel.
fn awaited<'a>(id: &'a Arc<Shared>, listener: &'a Option<Arc<Shared>>) -> &'a Shared {
    listener.as_ref().unwrap_or(id)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    call::number("rdma_ack_cm_event", || {
        if event.is_null() {
            return Err(Refusal::invalid("the event is NULL"));
        }
        // SAFETY: the program acknowledges an event that it has taken, once.
        unsafe { acknowledge(event) };
        Ok(0)
    })
}

/// Acknowledges the event that a synchronous id keeps.
///
/// # Safety
/// `c` is alive, and no other thread operates on it.
pub(super) unsafe fn drop_event(c: *mut rdma_cm_id) {
    // SAFETY: the caller's; the event was taken and not acknowledged.
    unsafe {
        if !(*c).event.is_null() {
            acknowledge((*c).event);
            (*c).event = std::ptr::null_mut();
        }
    }
}

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

    /// The descriptor. Who takes an event first reads 8 bytes from it.
    pub(super) fn fd(&self) -> c_int {
        self.counter.as_raw_fd()
    }

    /// Takes the oldest event. Another thread may have removed it since the counter was read.
    ///
    /// The event is counted while the queue is locked: a thread that destroys its id either removes it or finds it counted, and
    /// waits until the program acknowledges it.
    pub(super) fn take(&self) -> Option<Event> {
        let mut events = lock(&self.events);
        let event = events.pop_front()?;
        awaited(&event.id, &event.listener).event_taken();
        Some(event)
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

/// Frees a channel.
///
/// # Safety
/// `channel` is from [`create_channel`], and freed once.
pub(super) unsafe fn destroy_channel(channel: *mut rdma_event_channel) {
    // SAFETY: the caller's.
    unsafe { ChannelObject::destroy(channel) };
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use adverb_abi::IBV_QPT_RC;
    use adverb_wire::cm::PortSpace;

    use super::super::id::{self, Origin, Phase};
    use super::*;

    /// The id was freed if another thread destroyed it in between.
    #[test]
    fn an_id_outlives_an_event_that_was_taken_and_not_handed_out() {
        let channel = Channel::new().unwrap();
        let id = id::create(Origin {
            c_channel: std::ptr::null_mut(),
            channel: channel.clone(),
            context: std::ptr::null_mut(),
            space: PortSpace::Tcp,
            qp_type: IBV_QPT_RC,
            phase: Phase::New,
        });
        id.report(Kind::AddrResolved, 0);
        let event = channel.take().unwrap();
        let destroyer = thread::spawn(move || id::destroy(&id));
        thread::sleep(Duration::from_millis(50));
        assert!(!destroyer.is_finished());
        // SAFETY: the event is acknowledged once.
        unsafe { acknowledge(event.hand_out()) };
        destroyer.join().unwrap();
    }
}
