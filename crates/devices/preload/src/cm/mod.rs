//! The C interface of librdmacm over the user-space NIC.
//!
//! ```text
//!  program ── rdma_connect ──► Shared (id) ──► Agent: Manager ── MADs ──► Gsi (queue pair 1) ═══ peer
//!          ◄─ rdma_get_cm_event ── Channel ◄── deliver ◄─ events ─┘ thread "adverb-cm"
//! ```
//! Each device has an [`agent`], with the communication manager of `adverb_transport` and a thread that serves it. An
//! [`id`] has a state that the program's threads and the agent share. Queue pairs are made and modified by the exported
//! functions of this library ([`verbs`]), so an id's queue pair is an ordinary one.
//!
//! An id without event channel is synchronous: its operations wait for their events on a channel of its own.
//!
//! rsockets are not supported: `rsocket` is refused, so that the other functions get none.

mod address;
mod agent;
mod channel;
mod connect;
mod datagram;
mod deliver;
mod endpoint;
mod event;
mod id;
mod info;
mod qp;
mod route;
mod verbs;

use std::ffi::c_int;

use crate::call::{self, Refusal};

/// The functions of rsockets in librdmacm itself rely on its own ids, which this library replaces.
#[unsafe(no_mangle)]
extern "C" fn rsocket(_domain: c_int, _kind: c_int, _protocol: c_int) -> c_int {
    call::number("rsocket", || {
        Err(Refusal::unsupported("rsockets are not supported"))
    })
}
