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
    to: Option<(SocketAddr, Flow)>,
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
        let joins = self.to.is_some_and(|(batch, _)| batch == to) && whole <= self.segment;
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
            (self.to, self.segment) = (Some((to, *flow)), whole);
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
        let Some((to, flow)) = self.to else {
            return Room::Free;
        };
        match socket.send(to, &self.bytes[..self.length], self.segment) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Room::Full,
            // An interface that computes no checksums takes no batches, which only sending tells.
            Err(_) if self.count > 1 => return self.send_singly(socket, (to, &flow)),
            Err(_) => self.refused += 1,
            Ok(()) => {}
        }
        self.clear();
        Room::Free
    }

    /// Sends the packets of a batch one by one. Each is sealed anew, for it is the first of its own
    /// batch now, which is what its identification says.
    fn send_singly(&mut self, socket: &RoceSocket, (to, flow): (SocketAddr, &Flow)) -> Room {
        let mut sent = 0;
        for packet in self.bytes[..self.length].chunks_mut(self.segment) {
            let length = packet.len() - icrc::LEN;
            icrc::seal(flow, unseen(0), packet, length).expect("the packet had an ICRC");
            match socket.send(to, packet, packet.len()) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.refused += 1,
                Ok(()) => {}
            }
            sent += 1;
        }
        if sent < self.count {
            let from = sent * self.segment;
            self.bytes.copy_within(from..self.length, 0);
            (self.count, self.length) = (self.count - sent, self.length - from);
            return Room::Full;
        }
        self.clear();
        Room::Free
    }

    fn clear(&mut self) {
        (self.to, self.count, self.length) = (None, 0, 0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};
    use std::time::{Duration, Instant};

    use adverb_wire::frame::Addresses;

    use super::super::socket::Inbox;
    use super::*;

    /// A socket of the loopback device, and its address.
    fn socket() -> (RoceSocket, SocketAddr) {
        let socket = RoceSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = rustix::net::getsockname(socket.as_fd()).unwrap();
        (socket, at.try_into().unwrap())
    }

    /// From now on the kernel takes no batches, as on an interface that computes no checksums.
    fn refuse_batches(socket: &RoceSocket) {
        let on: libc::c_int = 1;
        // SAFETY: the option's value is an int.
        let done = unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NO_CHECK,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        assert_eq!(done, 0);
    }

    #[test]
    fn packets_of_a_batch_that_is_refused_leave_one_by_one() {
        let ((from, own), (to, peer)) = (socket(), socket());
        refuse_batches(&from);
        let flow = Flow {
            addresses: Addresses::of(own.ip(), peer.ip()).unwrap(),
            source_port: own.port(),
            destination_port: peer.port(),
        };
        let mut outbox = Outbox::new();
        for n in 1..=3 {
            outbox.place()[..40].fill(n);
            assert_eq!(outbox.add(&from, (peer, &flow), 40), Room::Free);
        }
        assert_eq!(outbox.flush(&from), Room::Free);
        assert_eq!(outbox.refused, 0);
        let (mut came, mut inbox) = (Vec::new(), Inbox::default());
        let deadline = Instant::now() + Duration::from_secs(10);
        while came.len() < 3 {
            assert!(Instant::now() < deadline, "came: {came:?}");
            inbox.fill(&to);
            for datagram in inbox.datagrams() {
                // Each is the first of its batch.
                let packet = icrc::check(&flow, unseen(0), datagram.bytes).unwrap();
                came.push(packet[0]);
            }
        }
        assert_eq!(came, [1, 2, 3]);
    }
}
