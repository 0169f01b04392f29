//! Packets on their way to the socket: those to one peer that follow each other leave together.

use std::io;
use std::net::{IpAddr, SocketAddr};

use adverb_transport::{PACKET_SPACE, PacketBuffer};
use adverb_units::Impairment;
use adverb_wire::frame::Flow;
use adverb_wire::icrc;
use adverb_wire::ipv4::{Fragmentation, Unseen};

use super::impairment::{Impaired, Passage};
use super::socket::{RoceSocket, never_cuts};

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

/// How the packets of a batch leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// As one, which the kernel cuts: they are numbered in their identification.
    Together,
    /// Each for itself.
    Singly,
}

/// Peers that get their packets singly, because the way to them takes no batches, which only sending
/// tells.
#[derive(Debug, Default)]
struct Refusing(Vec<IpAddr>);

impl Refusing {
    /// More are forgotten, and found out anew.
    const MOST: usize = 64;

    fn note(&mut self, peer: IpAddr) {
        if self.0.len() == Self::MOST {
            self.0.clear();
        }
        self.0.push(peer);
    }

    #[inline]
    fn leaving(&self, peer: IpAddr) -> Leaving {
        match self.0.contains(&peer) {
            true => Leaving::Singly,
            false => Leaving::Together,
        }
    }
}

/// A packet that was built behind a batch which it does not join, and which the socket does not take now.
#[derive(Clone, Copy, Debug)]
struct Held {
    to: SocketAddr,
    flow: Flow,
    /// Without its ICRC.
    length: usize,
}

/// One batch: packets of one length (the last may be shorter) to one peer.
#[derive(Debug)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    to: Option<(SocketAddr, Flow)>,
    leaving: Leaving,
    /// Length of all its packets but the last.
    segment: usize,
    count: usize,
    length: usize,
    /// It lies behind the batch, whose successor it begins.
    held: Option<Held>,
    refusing: Refusing,
    impaired: Option<Box<Impaired>>,
    fronts: icrc::Fronts,
    /// Packets that the kernel refused: no route, no right, too long.
    pub(super) refused: u64,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Outbox {
            bytes: vec![0; MOST + PACKET_SPACE],
            to: None,
            leaving: Leaving::Together,
            segment: 0,
            count: 0,
            length: 0,
            held: None,
            refusing: Refusing::default(),
            impaired: None,
            fronts: icrc::Fronts::default(),
            refused: 0,
        }
    }

    /// From now on packets suffer so.
    pub(super) fn impair(&mut self, how: Impairment) {
        self.impaired = Some(Box::new(Impaired::new(how)));
    }

    pub(super) fn impaired(&self) -> Option<&Impaired> {
        self.impaired.as_deref()
    }

    /// Where the next packet is built, with room for its ICRC.
    pub(super) fn place(&mut self) -> &mut PacketBuffer {
        let place = self.bytes[self.length..].first_chunk_mut();
        place.expect("a batch leaves room for a packet")
    }

    /// Whether packets to `peer` that follow each other leave together.
    #[inline]
    pub(super) fn joins(&self, peer: IpAddr) -> bool {
        self.refusing.leaving(peer) == Leaving::Together
    }

    /// Adds the packet of `length` bytes that was built at [`Outbox::place`]. Full: it is kept, and
    /// nothing may be built before [`Outbox::flush`] has made room.
    pub(super) fn add(
        &mut self,
        socket: &RoceSocket,
        (to, flow): (SocketAddr, &Flow),
        length: usize,
    ) -> Room {
        match self.impaired {
            None => self.admit(socket, (to, flow), length),
            Some(_) => self.add_impaired(socket, (to, flow), length),
        }
    }

    /// The same of a packet that may suffer on the way.
    #[cold]
    fn add_impaired(
        &mut self,
        socket: &RoceSocket,
        (to, flow): (SocketAddr, &Flow),
        length: usize,
    ) -> Room {
        let Some(impaired) = &mut self.impaired else {
            return self.admit(socket, (to, flow), length);
        };
        let packet = &self.bytes[self.length..][..length + icrc::LEN];
        let passage = impaired.meet(to, || {
            let mut alone = packet.to_vec();
            icrc::seal(flow, unseen(0), &mut alone, length).expect("there is room for the ICRC");
            alone
        });
        let is_due = impaired.is_due();
        let room = match passage {
            Passage::Usual => self.admit(socket, (to, flow), length),
            Passage::None => Room::Free,
        };
        // It leaves behind those before it, and before those behind it.
        match is_due && room == Room::Free {
            true => self.flush(socket),
            false => room,
        }
    }

    #[inline]
    fn admit(
        &mut self,
        socket: &RoceSocket,
        (to, flow): (SocketAddr, &Flow),
        length: usize,
    ) -> Room {
        let joins =
            self.to.is_some_and(|(batch, _)| batch == to) && length + icrc::LEN <= self.segment;
        if self.count == 0 || joins {
            return self.put(socket, (to, flow), length);
        }
        let flow = *flow;
        self.held = Some(Held { to, flow, length });
        self.make_way(socket)
    }

    /// Sends the batch, if there is one, and begins another with the packet that is held.
    fn make_way(&mut self, socket: &RoceSocket) -> Room {
        let end = self.length;
        if self.send(socket) == Room::Full {
            return Room::Full;
        }
        let Some(Held { to, flow, length }) = self.held.take() else {
            return Room::Free;
        };
        self.bytes.copy_within(end..end + length, 0);
        self.put(socket, (to, &flow), length)
    }

    /// Makes the packet behind the batch its last one, or the first one of a new batch.
    fn put(&mut self, socket: &RoceSocket, (to, flow): (SocketAddr, &Flow), length: usize) -> Room {
        let whole = length + icrc::LEN;
        if self.count == 0 {
            (self.to, self.segment) = (Some((to, *flow)), whole);
            self.leaving = self.refusing.leaving(to.ip());
        }
        let place = match self.leaving {
            Leaving::Together => self.count as u16,
            Leaving::Singly => 0,
        };
        let buffer = &mut self.bytes[self.length..];
        let sealed = self.fronts.seal(flow, unseen(place), buffer, length);
        sealed.expect("the place has room for the ICRC");
        self.count += 1;
        self.length += whole;
        let is_last = whole < self.segment
            || self.count >= socket.most_segments()
            || self.length + self.segment > MOST;
        match is_last {
            true => self.flush(socket),
            false => Room::Free,
        }
    }

    /// Sends what is here.
    #[inline]
    pub(super) fn flush(&mut self, socket: &RoceSocket) -> Room {
        match self.count == 0 && self.impaired.is_none() {
            true => Room::Free,
            false => self.flush_all(socket),
        }
    }

    fn flush_all(&mut self, socket: &RoceSocket) -> Room {
        if self.held.is_some() && self.make_way(socket) == Room::Full {
            return Room::Full;
        }
        let room = self.send(socket);
        if room == Room::Free && self.impaired.is_some() {
            self.send_strays(socket);
        }
        room
    }

    /// Sends the packets that were held back and are due.
    #[cold]
    fn send_strays(&mut self, socket: &RoceSocket) {
        let (impaired, refused) = (&mut self.impaired, &mut self.refused);
        impaired.iter_mut().for_each(|impaired| {
            impaired.release(|stray| {
                match socket.send(stray.to, &stray.bytes, stray.bytes.len()) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                    Err(_) => *refused += 1,
                    Ok(()) => {}
                }
                true
            });
        });
    }

    /// Sends the batch.
    fn send(&mut self, socket: &RoceSocket) -> Room {
        let Some((to, flow)) = self.to else {
            return Room::Free;
        };
        if self.leaving == Leaving::Singly {
            return self.send_singly(socket, to);
        }
        match socket.send(to, &self.bytes[..self.length], self.segment) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Room::Full,
            Err(e) if self.count > 1 => {
                if never_cuts(&e) {
                    self.refusing.note(to.ip());
                }
                self.part(&flow);
                return self.send_singly(socket, to);
            }
            Err(_) => self.refused += 1,
            Ok(()) => {}
        }
        self.clear();
        Room::Free
    }

    /// Has the packets of the batch leave singly. They are sealed anew, for each is the first of a batch of
    /// its own now, which is what its identification says.
    fn part(&mut self, flow: &Flow) {
        self.leaving = Leaving::Singly;
        for packet in self.bytes[..self.length].chunks_mut(self.segment) {
            let length = packet.len() - icrc::LEN;
            icrc::seal(flow, unseen(0), packet, length).expect("the packet had an ICRC");
        }
    }

    fn send_singly(&mut self, socket: &RoceSocket, to: SocketAddr) -> Room {
        let mut done = 0;
        while done < self.count {
            let rest = &self.bytes[done * self.segment..self.length];
            match socket.send_singly(to, rest, self.segment) {
                Ok(sent) => done += sent,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.keep_from(done);
                    return Room::Full;
                }
                Err(_) => {
                    self.refused += 1;
                    done += 1;
                }
            }
        }
        self.clear();
        Room::Free
    }

    /// Forgets the packets before this one.
    fn keep_from(&mut self, first: usize) {
        let from = first * self.segment;
        let held = self.held.map_or(0, |held| held.length);
        self.bytes.copy_within(from..self.length + held, 0);
        (self.count, self.length) = (self.count - first, self.length - from);
    }

    fn clear(&mut self) {
        (self.to, self.count, self.length) = (None, 0, 0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::Write as _;
    use std::os::fd::{AsFd, AsRawFd};
    use std::time::{Duration, Instant};

    use adverb_wire::frame::Addresses;

    use super::super::inbox::Inbox;
    use super::*;

    /// A socket of the loopback device, and its address.
    fn socket() -> (RoceSocket, SocketAddr) {
        let socket = RoceSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = rustix::net::getsockname(socket.as_fd()).unwrap();
        (socket, at.try_into().unwrap())
    }

    /// Whether the kernel takes batches: not as on an interface that computes no checksums.
    fn take_batches(socket: &RoceSocket, takes: bool) {
        let unchecked = libc::c_int::from(!takes);
        // SAFETY: the option's value is an int.
        let done = unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NO_CHECK,
                (&raw const unchecked).cast(),
                size_of_val(&unchecked) as libc::socklen_t,
            )
        };
        assert_eq!(done, 0);
    }

    fn flow(own: SocketAddr, peer: SocketAddr) -> Flow {
        Flow {
            addresses: Addresses::of(own.ip(), peer.ip()).unwrap(),
            source_port: own.port(),
            destination_port: peer.port(),
        }
    }

    /// Sends three packets of 40 B, and what is in them.
    fn send_three(outbox: &mut Outbox, from: &RoceSocket, (peer, flow): (SocketAddr, &Flow)) {
        for n in 1..=3 {
            outbox.place()[..40].fill(n);
            assert_eq!(outbox.add(from, (peer, flow), 40), Room::Free);
        }
        assert_eq!(outbox.flush(from), Room::Free);
        assert_eq!(outbox.refused, 0);
    }

    /// Each packet's first byte and the identification that it was sealed with, in the order of coming.
    fn came(to: &RoceSocket, flow: &Flow, count: usize) -> Vec<(u8, u16)> {
        let (mut came, mut inbox) = (Vec::new(), Inbox::default());
        let deadline = Instant::now() + Duration::from_secs(10);
        while came.len() < count {
            assert!(Instant::now() < deadline, "came: {came:?}");
            inbox.fill(to);
            for datagram in inbox.datagrams() {
                let found = icrc::find_identification(flow, unseen(0), datagram.bytes);
                let (packet, identification) = found.unwrap();
                came.push((packet[0], identification));
            }
        }
        came
    }

    #[test]
    fn packets_of_a_batch_that_is_refused_leave_one_by_one() {
        let ((from, own), (to, peer)) = (socket(), socket());
        take_batches(&from, false);
        let flow = flow(own, peer);
        send_three(&mut Outbox::new(), &from, (peer, &flow));
        // Each is the first of its batch.
        assert_eq!(came(&to, &flow, 3), [(1, 0), (2, 0), (3, 0)]);
    }

    #[test]
    fn no_batch_is_tried_where_one_was_refused_and_elsewhere_they_are() {
        let ((from, own), (to, peer)) = (socket(), socket());
        let elsewhere = RoceSocket::bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let there = rustix::net::getsockname(elsewhere.as_fd()).unwrap();
        let there: SocketAddr = there.try_into().unwrap();
        let mut outbox = Outbox::new();
        take_batches(&from, false);
        send_three(&mut outbox, &from, (peer, &flow(own, peer)));
        for _ in 0..2 {
            send_three(&mut outbox, &from, (peer, &flow(own, peer)));
            send_three(&mut outbox, &from, (there, &flow(own, there)));
        }
        let singly = [(1, 0), (2, 0), (3, 0)];
        let came_here = came(&to, &flow(own, peer), 9);
        assert_eq!(came_here, singly.repeat(3));
        // The kernel numbers the datagrams of a batch.
        let together = [(1, 0), (2, 1), (3, 2)];
        assert_eq!(came(&elsewhere, &flow(own, there), 6), together.repeat(2));
    }

    #[test]
    fn a_packet_that_no_room_was_for_leaves_behind_the_batch() {
        let ((from, own), (to, peer)) = (socket(), socket());
        let flow = flow(own, peer);
        for gone in 0..2 {
            let mut outbox = Outbox::new();
            outbox.refusing.note(peer.ip());
            for n in 1..=2 {
                outbox.place()[..40].fill(n);
                outbox.add(&from, (peer, &flow), 40);
            }
            // Too long for the batch; and the socket took only the first `gone` packets of that.
            outbox.place()[..44].fill(3);
            outbox.held = Some(Held {
                to: peer,
                flow,
                length: 44,
            });
            outbox.keep_from(gone);
            assert_eq!(outbox.flush(&from), Room::Free);
            let left = &[(1, 0), (2, 0), (3, 0)][gone..];
            assert_eq!(came(&to, &flow, left.len()), left);
            assert_eq!(outbox.count, 0);
        }
    }

    #[test]
    fn packets_leave_one_by_one_over_ipv6_too() {
        let bound = || RoceSocket::bind("[::1]:0".parse().unwrap());
        let (Ok(from), Ok(to)) = (bound(), bound()) else {
            let mut stderr = std::io::stderr();
            return writeln!(stderr, "NOT RUN: packets at ::1: no IPv6 here").unwrap();
        };
        let at = |socket: &RoceSocket| -> SocketAddr {
            let name = rustix::net::getsockname(socket.as_fd()).unwrap();
            name.try_into().unwrap()
        };
        let (own, peer) = (at(&from), at(&to));
        let flow = flow(own, peer);
        let mut outbox = Outbox::new();
        outbox.refusing.note(peer.ip());
        send_three(&mut outbox, &from, (peer, &flow));
        assert_eq!(came(&to, &flow, 3), [(1, 0), (2, 0), (3, 0)]);
    }
}
