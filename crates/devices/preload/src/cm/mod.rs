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
//! `id`, `channel` (with its events) and `agent` have the state, and refer to each other. Above them are `deliver`,
//! which runs on the threads of `agents`, and `establish`, where the program takes events; above these, the exported
//! functions.
//!
//! An id without event channel is synchronous: its operations wait for their events on a channel of its own.
//!
//! rsockets (`crate::rsocket`) use these functions.

pub(crate) mod address;
pub(crate) mod agent;
mod agents;
mod channel;
mod connect;
mod cq;
mod create;
mod datagram;
mod deliver;
mod endpoint;
mod establish;
pub(crate) mod event;
mod id;
mod info;
mod listen;
mod options;
mod param;
mod path;
mod qp;
mod route;
mod srq;
pub(crate) mod verbs;
mod xrc;
