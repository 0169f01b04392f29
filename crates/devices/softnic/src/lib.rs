//! The user-space NIC: a verbs device without hardware, kernel module, daemon or root.
//!
//! Its *local port* connects processes (or threads) of one user on one host. The requester's CPU carries out an
//! operation in shared memory; the passive side of WRITE and READ runs no code. Its optional *UDP port* speaks RoCEv2
//! to other addresses.
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
//! Every shared word has one writer at a time, every step that is visible to another process is one atomic store, and
//! no lock is shared between processes. A receive completes by a single store ([`shm::ring`]) or compare-and-swap
//! ([`shm::datagram_ring`]), so a requester that dies leaves it either posted or completed. A pidfd becomes readable
//! when a process dies, and the kernel releases the locks of its files, which are removed then.
//!
//! # Trust
//! Files have mode 0600, in a directory of the user with mode 0700: the local port trusts this user and nobody else.
//! The UDP port trusts nobody.
//!
//! This crate needs `unsafe` for mappings, shared structures and copies.
#![allow(unsafe_code)]

mod channel;
mod context;
mod cq;
mod datagrams;
mod domain;
mod engine;
mod gsi;
mod idle;
mod memory;
mod null_region;
mod owner_requests;
mod pages;
mod port;
mod program_memory;
mod qp;
mod recv_queue;
mod requester;
mod settings;
mod sge_check;
#[doc(hidden)]
pub mod shm;
mod signals;
mod srq;
mod udp;
mod windows;
mod xrc;

pub use channel::SoftChannel;
pub use context::{SoftAh, SoftContext, SoftDevice};
pub use cq::SoftCq;
pub use domain::SoftPd;
pub use gsi::{Gsi, ReceivedMad};
#[cfg(feature = "testing")]
pub use idle::yields;
pub use memory::SoftMr;
pub use null_region::SoftNullMr;
pub use pages::{NotShared, RegionCounts, region_counts};
#[cfg(feature = "testing")]
pub use port::PrivateReach;
pub use qp::{Route, SoftQp};
pub use settings::{
    NamedDevice, ParseDeviceError, RECORD_VARIABLE, Settings, SettingsError, StatsFormat,
};
pub use sge_check::{PrefetchError, SgeError};
pub use shm::dir::{SharedMemory, shared_memory};
pub use shm::notify::Armed;
pub use shm::regions::WindowType;
pub use srq::SoftSrq;
#[cfg(feature = "testing")]
pub use udp::Fault;
pub use udp::{CAPTURE_VARIABLE, create_capture, host_addresses, interface_index};
pub use windows::SoftMw;
pub use xrc::SoftXrcd;
