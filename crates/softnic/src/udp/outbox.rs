//! Packets on their way to the socket: those to one peer that follow each other leave together.

use std::io;
use std::net::SocketAddr;

use adverb_transport::{PACKET_SPACE, PacketBuffer};
use adverb_wire::frame::Flow;
use adverb_wire::icrc;
use adverb_wire::ipv4::{Fragmentation, Unseen};

use super::socket::RoceSocket;

/// Longest batch: that of an IP packet, less its headers.
const MOST: usize = (1 << 16) - 256;

/// What a socket's packets have in their IP header that the receiver does not see.
pub(super) fn unseen(place: u16) -> Unseen {
    Unseen {
        identification: place,
        fragmentation: Fragmentation::Forbidden,
    }
}

/// Whether packets can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// They can.
    Free,
    /// The socket takes no more now; what is here goes first.
    Full,
}

/// One batch: packets of one length (the last may be shorter) to one peer.
#[derive(Debug)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    to: Option<SocketAddr>,
    /// Length of all its packets but the last.
    segment: usize,
    count: usize,
    length: usize,
    /// Packets that the kernel refused: no route, no right, too long.
    pub(super) refused: u64,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Outbox {
            bytes: vec![0; MOST + PACKET_SPACE],
            to: None,
            segment: 0,
            count: 0,
            length: 0,
            refused: 0,
        }
    }

    /// Where the next packet is built, with room for its ICRC.
    pub(super) fn place(&mut self) -> &mut PacketBuffer {
        let place = self.bytes[self.length..].first_chunk_mut();
        place.expect("a batch leaves room for a packet")
    }

    /// Adds the packet of `length` bytes that was built at [`Outbox::place`]. Full: it is kept, and
    /// nothing may be built before [`Outbox::flush`] has made room.
    pub(super) fn add(
        &mut self,
        socket: &RoceSocket,
        (to, flow): (SocketAddr, &Flow),
        length: usize,
    ) -> Room {
        let whole = length + icrc::LEN;
        let joins = self.to == Some(to) && whole <= self.segment;
        let mut room = Room::Free;
        if self.count != 0 && !joins {
            let at = self.length;
            room = self.flush(socket);
            if room == Room::Full {
                // A loss, which the transport mends: there is no place for two batches.
                self.refused += 1;
                return room;
            }
            self.bytes.copy_within(at..at + length, 0);
        }
        if self.count == 0 {
            (self.to, self.segment) = (Some(to), whole);
        }
        let place = unseen(self.count as u16);
        let buffer = &mut self.bytes[self.length..];
        icrc::seal(flow, place, buffer, length).expect("the place has room for the ICRC");
        self.count += 1;
        self.length += whole;
        let is_last = whole < self.segment
            || self.count >= socket.most_segments()
            || self.length + self.segment > MOST;
        if is_last { self.flush(socket) } else { room }
    }

    /// Sends what is here.
    pub(super) fn flush(&mut self, socket: &RoceSocket) -> Room {
        let Some(to) = self.to else {
            return Room::Free;
        };
        match socket.send(to, &self.bytes[..self.length], self.segment) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Room::Full,
            Err(_) => self.refused += self.count as u64,
            Ok(()) => {}
        }
        (self.to, self.count, self.length) = (None, 0, 0);
        Room::Free
    }
}
