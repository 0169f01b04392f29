//! The user-space NIC: a verbs device without hardware, kernel module, daemon or root.
//!
//! Its *local port*: both ends are processes (or threads) of one user on one host. The requester's
//! own CPU carries an operation out, in shared memory; the passive side of WRITE and READ runs
//! nothing. Its *UDP port*, if one is asked for, speaks RoCEv2 to other addresses.
//!
//! ```text
//!  process A                         /dev/shm/adverb-UID/                  process B
//!  post_send ── copies payload ────► 001.m3     B's memory regions   ◄── reads it
//!            ── completes receive ─► 001.port   B's receive rings    ◄── poll_cq (UD: and copies)
//!            ── raises event ──────► 001.c0     B's channels (FIFO)  ◄── sleeps on it
//!            ◄─ own completion: private memory of A, no sharing
//! ```
//!
//! # Layers
//! [`shm`] has the shared memory and its rings; `udp` the sockets, and drives the transport's state machines;
//! the other modules are the verbs objects, the port that owns both, and the engine thread. `udp` uses `shm`,
//! and knows the objects only by the traits of `udp::host`.
//!
//! # What makes it safe to kill a peer at any instruction
//! Every shared word has one writer at a time, and every step that another process can see is one
//! atomic store; there is no lock across processes. A receive completes by the one store that ends
//! it ([`shm::ring`]; [`shm::datagram_ring`]: the one swap), so a requester that dies leaves it either posted
//! or completed. The kernel tells
//! of deaths by pidfd, and by file locks it tells which files are stale.
//!
//! # Trust
//! Files are 0600 in a 0700 directory of the user: the local port trusts exactly this uid. The UDP
//! port trusts nobody.
//!
//! This is a crate where `unsafe` is at home: mappings, shared structures and copies.
#![allow(unsafe_code)]

mod channel;
mod context;
mod cq;
mod datagrams;
mod domain;
mod engine;
mod memory;
mod port;
mod qp;
mod recv_queue;
mod requester;
#[doc(hidden)]
pub mod shm;
mod srq;
mod udp;

pub use channel::SoftChannel;
pub use context::{SoftAh, SoftContext, SoftDevice};
pub use cq::SoftCq;
pub use domain::SoftPd;
pub use memory::SoftMr;
pub use qp::SoftQp;
pub use shm::dir::{SharedMemory, shared_memory};
pub use shm::notify::Armed;
pub use srq::SoftSrq;
#[cfg(feature = "testing")]
pub use udp::Fault;
pub use udp::host_addresses;
