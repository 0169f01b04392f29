//! Protocols that move a message between two peers: by rendezvous (the peers exchange an address, then the data move
//! without a copy), into a prearranged buffer, by an eager copy, or by sockets.
//!
//! | protocol | messages of a transfer from sender S to receiver R |
//! |---|---|
//! | [`Protocol::Write`] | S WRITEs START (length); R WRITEs REPLY (address); S WRITEs the data, then FIN |
//! | [`Protocol::Read`] | S WRITEs START (address, length); R READs the data, then WRITEs FIN |
//! | [`Protocol::Prearranged`] | S WRITEs the data, then FIN; R WRITEs a credit when it no longer needs them |
//! | [`Protocol::Eager`] | S copies the message to registered slots and SENDs them; R copies it from its slots, and WRITEs a credit for every eighth |
//! | [`Protocol::Sockets`] | the kernel's TCP |
//!
//! # Ownership of buffers
//!
//! A [`Channel`] has one outgoing and one incoming buffer.
//!
//! - The outgoing buffer belongs to the program until [`Channel::send`], then to the NICs: with `Write` and
//!   `Prearranged` this NIC reads it, with `Read` the peer's. It belongs to the program again when
//!   [`Channel::store`] returns, which waits for the end of the transfer.
//! - The incoming buffer belongs to the peer until [`Channel::receive`] returns, then to the program until
//!   [`Channel::release`] or the next `receive`.
//!
//! Records such as START have a slot for each kind in the receiver's memory, and their last byte is the number of the
//! transfer, which the receiver polls: an RC queue pair delivers WRITEs in order, and the bytes of one WRITE in
//! ascending order. A record never replaces one that has not been seen: the next record of its kind follows from
//! another one that the peer sends after it has seen it.
//!
//! Lost packets are the transport's concern: RC and TCP deliver every message exactly once and in order, or fail. If
//! the peer ends or its host fails, a wait fails with an error: within the retries of the queue pair, or its timeout.
//! Both peers must not send at the same time: with a rendezvous each would wait for the other one's receive.

mod channel;

use adverb_results::words;
use serde::{Deserialize, Serialize};

pub use channel::Channel;

use crate::wan::Traffic;
use channel::{CHUNK, HALF, HEADER, SLOTS};

/// How a message is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Rendezvous; the sender WRITEs.
    Write,
    /// Rendezvous; the receiver READs.
    Read,
    /// The sender WRITEs to a buffer that the peers have agreed on.
    Prearranged,
    /// The sender copies the message and SENDs the copy; the receiver copies it, too.
    Eager,
    /// Sockets of the kernel's TCP.
    Sockets,
}

words! {
    Protocol {
        Write => "write", Read => "read", Prearranged => "prearranged", Eager => "eager",
        Sockets => "sockets"
    }
}

impl Protocol {
    /// Returns the memory that an end of a channel registers for messages of up to `size` bytes.
    pub fn memory(self, size: u32) -> u64 {
        match self {
            Protocol::Sockets => 0,
            Protocol::Eager => channel::rings(),
            _ => channel::buffers(size),
        }
    }

    /// Returns the requests that an end posts for `count` messages of `size` bytes that it sends, and as many that it
    /// receives and releases.
    pub fn traffic(self, size: u32, count: u64) -> Traffic {
        let none = Traffic::default();
        match self {
            Protocol::Write => Traffic {
                writes: 4 * count,
                ..none
            },
            Protocol::Read => Traffic {
                writes: 2 * count,
                reads: count,
                ..none
            },
            Protocol::Prearranged => Traffic {
                writes: 3 * count,
                ..none
            },
            Protocol::Eager => {
                let chunks = (u64::from(size) + HEADER).div_ceil(CHUNK.into()) * count;
                Traffic {
                    writes: chunks / HALF,
                    sends: chunks,
                    ..none
                }
            }
            Protocol::Sockets => none,
        }
    }
}

const _: () = assert!(SLOTS == 2 * HALF, "credits are for half of the slots");
