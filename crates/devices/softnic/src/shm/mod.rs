//! The shared memory of a port, and the protocols by which the processes of one user share it.
//!
//! A port's file ([`layout`]) is mapped by its owner and its peers ([`segment`], [`peer`]); [`dir`] finds it,
//! and determines by file locks whether its owner lives. Receive requests and completions travel through rings:
//! [`ring`] of one queue pair, [`shared_ring`] of a shared receive queue, [`datagram_ring`] of UD messages from
//! several senders. [`ready`] marks queue pairs with completions, [`notify`] raises completion events; [`quiesce`] waits until no peer is in the middle of an operation.
//!
//! Nothing here knows verbs objects or the UDP port. The rings are model-checked with loom (`tests/loom.rs`),
//! for which they are public.

pub(crate) mod arena;
pub(crate) mod copy;
pub mod datagram_ring;
pub(crate) mod dir;
pub(crate) mod fork;
pub(crate) mod indices;
pub(crate) mod layout;
pub(crate) mod life;
pub mod notify;
pub(crate) mod null_space;
pub(crate) mod peer;
pub(crate) mod process;
pub mod quiesce;
pub mod ready;
pub(crate) mod regions;
pub mod ring;
pub(crate) mod segment;
pub mod send_ring;
pub mod shared_ring;
pub(crate) mod sync;
pub(crate) mod tasks;
