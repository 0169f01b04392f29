//! RoCEv2 packets as bytes. No I/O, no state, and no bytes that make it panic.
//!
//! ```text
//!  IPv4 or IPv6 | UDP, port 4791 | BTH | extended headers | payload | pad | ICRC
//!  └──────────────────────────── Frame ───────────────────────────────────────┘
//!                                 └────────── Packet ─────────────┘
//! ```
//!
//! * One module a header. Each has a *view*, which reads the fields of bytes that are long enough,
//!   and a *plain* type, which is parsed from the view ([`WireError`] says what is wrong, with the
//!   value) and written back by `to_bytes`.
//! * [`opcode`]: which headers follow, and where in its message a packet stands.
//! * [`packet`]: from the base transport header to the padding: what transports work with.
//! * [`icrc`]: the invariant CRC, also for a receiver that does not see the IP header.
//! * [`frame`]: a packet with its IP and UDP headers and its ICRC, as captures have it.
//! * [`pcap`]: captures that other programs read. Packets and frames print as one line.
//!
//! Sources: IBTA volume 1, chapter 9 (transport), 5.2 (headers), 7.8 (ICRC), 8.3 (GRH); annex A17
//! (RoCEv2).

#![forbid(unsafe_code)]

#[macro_use]
mod view;

pub mod aeth;
pub mod atomic_ack_eth;
pub mod atomic_eth;
pub mod bth;
mod crc32;
pub mod deth;
mod error;
pub mod ethernet;
pub mod frame;
pub mod grh;
pub mod icrc;
pub mod ieth;
pub mod imm_dt;
pub mod ipv4;
pub mod ipv6;
pub mod opcode;
pub mod packet;
pub mod pcap;
mod print;
pub mod reth;
pub mod udp;

pub use aeth::{Aeth, Credits, NakCode, Syndrome};
pub use atomic_ack_eth::AtomicAckEth;
pub use atomic_eth::AtomicEth;
pub use bth::{Bth, UnknownOpcode};
pub use deth::Deth;
pub use error::WireError;
pub use frame::{Flow, Frame, Ip};
pub use grh::Grh;
pub use icrc::Icrc;
pub use ieth::Ieth;
pub use imm_dt::ImmDt;
pub use opcode::{Headers, Opcode, Position, Service, Verb};
pub use packet::{Extension, Packet, PacketHeaders};
pub use reth::Reth;

/// The UDP port of RoCEv2 (IANA `roce`, to which IBTA annex A17.3.2.2 leaves it).
pub const ROCE_PORT: u16 = 4791;

/// The partition that every port is a full member of.
pub const DEFAULT_PKEY: u16 = 0xffff;
