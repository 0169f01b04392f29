//! Completion channels.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::atomic::Ordering;

use adverb_abi::{ibv_comp_channel, ibv_context, ibv_cq};
use adverb_softnic::SoftChannel;
use adverb_verbs::{Context as _, CqId};

use crate::call::{self, Refusal, SLICE};
use crate::context::Context;
use crate::cq::Cq;
use crate::object::{Object, Users, lock};

/// A completion channel, behind its `ibv_comp_channel`.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) soft: SoftChannel,
    /// What the program polls, and sets `O_NONBLOCK` on.
    fd: OwnedFd,
    /// Completion queues.
    pub(crate) users: Users,
}

type ChannelObject = Object<ibv_comp_channel, Channel>;

impl Channel {
    /// Returns the channel behind a pointer from C.
    ///
    /// # Safety
    /// `channel` is from `ibv_create_comp_channel`, and not destroyed within `'a`.
    pub(crate) unsafe fn of<'a>(channel: *const ibv_comp_channel) -> &'a Self {
        // SAFETY: the caller's.
        &unsafe { ChannelObject::of(channel) }.own
    }

    /// A completion queue of the channel was armed.
    pub(crate) fn note_armed(&self) {
        self.soft.note_armed(self.fd.as_fd());
    }
}

/// Counts an event as taken; returns its completion queue, which has one more event to acknowledge. `None` if it was destroyed.
fn taken(channel: *const ibv_comp_channel, context: &Context, id: CqId) -> Option<*mut ibv_cq> {
    let cqs = lock(&context.cqs);
    // A late event of a destroyed queue may have the id of a new queue, which may have another channel.
    let cq = cqs.get(id.0)?;
    // SAFETY: destroying the queue removes it from the table, which is locked.
    if unsafe { (*cq).channel }.cast_const() != channel {
        return None;
    }
    // SAFETY: as above.
    let own = unsafe { Cq::of(cq) };
    own.events.taken();
    own.is_announced.store(true, Ordering::Relaxed);
    if let Some(counts) = &own.counts {
        counts.event_taken();
    }
    Some(cq)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    forward!(context => ibv_create_comp_channel(context));
    call::pointer("ibv_create_comp_channel", || {
        // SAFETY: the program passes an open context.
        let soft = unsafe { Context::of(context) }.soft.create_channel()?;
        let fd = soft.open_events()?;
        let c = ibv_comp_channel {
            context,
            fd: fd.as_raw_fd(),
            refcnt: 0,
        };
        let users = Users::default();
        Ok(Object::create(c, Channel { soft, fd, users }))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    forward!(channel => ibv_destroy_comp_channel(channel));
    call::status("ibv_destroy_comp_channel", || {
        // SAFETY: the program passes a channel that it has created.
        unsafe { Channel::of(channel) }
            .users
            .check_none("the completion channel")?;
        // SAFETY: the program destroys it once, and no completion queue uses it.
        unsafe { ChannelObject::destroy(channel) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    const MAY_READ: c_int = 1;
    forward!(channel => "C-unwind" ibv_get_cq_event(channel, cq, cq_context));
    let call = "ibv_get_cq_event";
    // SAFETY: the program passes a channel that it has created, and does not destroy it during the call.
    let (own, context) = unsafe { (Channel::of(channel), Context::of((*channel).context)) };
    let hand_out = |id| {
        let Some(taken) = taken(channel, context, id) else {
            return false;
        };
        // SAFETY: the program passes two addresses; the queue waits for the event's acknowledgement before it is
        // destroyed.
        unsafe {
            *cq = taken;
            *cq_context = (*taken).cq_context;
        }
        true
    };
    let wait_at_port = || match own.soft.wait_at_port(own.fd.as_fd(), SLICE) {
        Ok(None) => Ok(Some(MAY_READ)),
        Ok(Some(event)) => Ok(event.is_some_and(hand_out).then_some(0)),
        Err(error) => Err(Refusal::expected(error.raw_os_error().unwrap_or(libc::EIO))),
    };
    let read = |id| Ok(hand_out(CqId(u32::from_ne_bytes(id))));
    // SAFETY: the closures have nothing to drop.
    unsafe {
        match call::in_slices(call, wait_at_port) {
            MAY_READ => call::reading(call, own.fd.as_raw_fd(), read),
            done => done,
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, events: u32) {
    forward!(cq => ibv_ack_cq_events(cq, events));
    // SAFETY: the program passes a completion queue that it has created.
    unsafe { Cq::of(cq) }.events.acknowledge(events);
}
