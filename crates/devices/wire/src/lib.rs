//! Parses and writes RoCEv2 packets. It does no I/O, has no state, and does not panic on any input.
//!
//! ```text
//!  IPv4 or IPv6 | UDP, port 4791 | BTH | extended headers | payload | pad | ICRC
//!  └──────────────────────────── Frame ───────────────────────────────────────┘
//!                                 └────────── Packet ─────────────┘
//! ```
//!
//! * One module per header, with a type that is parsed from bytes and written by `to_bytes`. A [`WireError`] names the
//!   check that failed, and the value.
//! * [`opcode`]: the extended headers of a packet, and its position in its message.
//! * [`packet`]: from the base transport header to the padding; transports use this.
//! * [`icrc`]: the invariant CRC, also for a receiver that does not see the IP header.
//! * [`frame`]: a packet with its IP and UDP headers and its ICRC.
//! * [`mad`], [`cm`]: management datagrams and the messages of the communication manager, payload of UD packets.
//! * [`pcap`]: writes captures for other programs. Packets and frames print on one line.
//!
//! Sources: IBTA volume 1, chapter 9 (transport), 12 (communication management), 5.2 (headers), 7.8 (ICRC), 8.3
//! (GRH), 13.4 (management datagrams); annexes A11 (IP CM service), A14 (XRC), A17 (RoCEv2).

#![forbid(unsafe_code)]

pub mod aeth;
pub mod atomic_ack_eth;
pub mod atomic_eth;
pub mod bth;
pub mod cm;
mod crc32;
pub mod deth;
mod error;
mod fields;
pub mod frame;
pub mod grh;
pub mod icrc;
pub mod ieth;
pub mod imm_dt;
pub mod ipv4;
pub mod ipv6;
pub mod mad;
pub mod opcode;
pub mod packet;
pub mod pcap;
mod print;
pub mod reth;
pub mod udp;
pub mod xrc_eth;

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
pub use xrc_eth::XrcEth;

/// UDP destination port of RoCEv2 (IBTA annex A17.3.2.2; IANA `roce`).
pub const ROCE_PORT: u16 = 4791;

/// P_Key of the default partition, with full membership.
pub const DEFAULT_PKEY: u16 = 0xffff;
