//! The InfiniBand transport as state machines without I/O: RC, UC and UD, and the communication manager ([`cm`]).
//!
//! A queue pair is a value. The driver (a device's port) passes packets and the time to it, and takes packets, completions
//! and the next deadline from it:
//!
//! ```text
//!            post_send, post_receive                 poll_completion
//!  program ───────────────────────────►┌──────────┐──────────────────► program
//!             handle_packet            │ RcQp     │  poll_transmit
//!  network ───────────────────────────►│ UcQp     │──────────────────► network
//!             handle_timeout           │ UdQp     │  poll_timeout
//!    clock ───────────────────────────►└────┬─────┘──────────────────► clock
//!                                           │ Memory: check, read, write, atomic, invalidate
//!                                           ▼
//!                                     registered memory
//! ```
//!
//! Nothing here reads a clock, starts a thread or uses random numbers: the same calls give the same results. Packets are
//! built in the driver's buffer; in the steady state nothing is allocated. Every dropped packet has a [`DropReason`] and
//! is counted. `docs/transport.md` shows how to write a driver.
//!
//! A packet is an [`adverb_wire::Packet`], from the base transport header to the padding. The driver, which knows the
//! addresses, adds and checks the ICRC, and finds the queue pair by its number.

#![forbid(unsafe_code)]

pub mod cm;
mod completion;
mod drops;
mod inbound;
pub mod memory;
pub mod rc;
mod receive;
mod request;
mod segment;
mod sends;
mod sequence;
mod shared;
mod uc;
mod ud;

pub use completion::{Completion, Queue, Solicited};
pub use drops::{Counters, DropReason};
pub use memory::{Access, AccessError, AtomicOperation, Key, Memory, Place};
pub use rc::{RcConfig, RcQp, RequesterConfig, ResponderConfig, ResponderFault};
pub use receive::{ReceiveQueue, SharedReceives};
pub use request::{
    LocalPiece, Payload, Pieces, PostError, ReceiveWork, SendWork, UnknownOperation, Work,
};
pub use segment::MAX_MESSAGE;
pub use uc::{UcConfig, UcQp};
pub use ud::{Datagram, UdConfig, UdDestination, UdQp, sent_qkey};

/// Size of the driver's buffer for a packet: the longest packet with its ICRC.
pub const PACKET_SPACE: usize = adverb_wire::packet::MAX_PACKET + adverb_wire::icrc::LEN;

/// A buffer for one packet.
pub type PacketBuffer = [u8; PACKET_SPACE];
