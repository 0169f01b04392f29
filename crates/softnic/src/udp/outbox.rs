//! Packets on their way to the socket: those to one peer that follow each other leave together.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use adverb_transport::{PACKET_SPACE, PacketBuffer};
use adverb_units::Impairment;
use adverb_wire::icrc;
use adverb_wire::ipv4::{Fragmentation, Unseen};

use super::impairment::{Impaired, Passage};
use super::lanes::Way;
use super::socket::{MOST_SEGMENTS, RoceSocket, is_refusal, never_cuts};

/// Longest batch: that of an IP packet, less its headers.
const MOST: usize = (1 << 16) - 256;

/// What a socket's packets have in their IP header that the receiver does not see.
pub(super) fn unseen(identification: u16) -> Unseen {
    Unseen {
        identification,
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

/// The identification of the packet at `place` of the next call's, or that of so many calls later.
fn identification(way: &Way, leaving: Leaving, place: usize) -> u16 {
    let numbering = &way.by.numbering;
    let farther = match leaving {
        Leaving::Together => place as u16,
        Leaving::Singly => numbering.after(place),
    };
    numbering.next().wrapping_add(farther)
}

/// A packet that was built behind a batch which it does not join, and which the socket does not take now.
#[derive(Clone, Debug)]
struct Held {
    way: Way,
    /// Without its ICRC.
    length: usize,
}

/// One batch: packets of one length (the last may be shorter) to one peer.
#[derive(Debug)]
pub(super) struct Outbox {
    main: Arc<RoceSocket>,
    bytes: Vec<u8>,
    /// The batch's, or that of the last one: the next one's is the same, as a rule.
    way: Option<Way>,
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
    /// Lanes of which it is not known how the kernel numbers the next packet: not to be used any more.
    pub(super) lost: Vec<Arc<RoceSocket>>,
    /// Packets that the kernel refused: no route, no right, too long.
    pub(super) refused: u64,
}

impl Outbox {
    /// For packets that leave by `main` where they have no lane.
    pub(super) fn new(main: &Arc<RoceSocket>) -> Self {
        Outbox {
            main: main.clone(),
            bytes: vec![0; MOST + PACKET_SPACE],
            way: None,
            leaving: Leaving::Together,
            segment: 0,
            count: 0,
            length: 0,
            held: None,
            refusing: Refusing::default(),
            impaired: None,
            fronts: icrc::Fronts::default(),
            lost: Vec::new(),
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
    pub(super) fn add(&mut self, way: &Way, length: usize) -> Room {
        match self.impaired {
            None => self.admit(way, length),
            Some(_) => self.add_impaired(way, length),
        }
    }

    /// The same of a packet that may suffer on the way.
    #[cold]
    fn add_impaired(&mut self, way: &Way, length: usize) -> Room {
        let Some(impaired) = &mut self.impaired else {
            return self.admit(way, length);
        };
        let packet = &self.bytes[self.length..][..length + icrc::LEN];
        let passage = impaired.meet(way, || {
            let mut alone = packet.to_vec();
            icrc::seal(&way.target.flow, unseen(0), &mut alone, length)
                .expect("there is room for the ICRC");
            alone
        });
        let is_due = impaired.is_due();
        let room = match passage {
            Passage::Usual => self.admit(way, length),
            Passage::None => Room::Free,
        };
        // It leaves behind those before it, and before those behind it.
        match is_due && room == Room::Free {
            true => self.flush(),
            false => room,
        }
    }

    #[inline]
    fn admit(&mut self, way: &Way, length: usize) -> Room {
        let is_same = self.way.as_ref().is_some_and(|last| last.is(way));
        if self.count == 0 {
            if !is_same {
                self.way = Some(way.clone());
            }
            self.segment = length + icrc::LEN;
            self.leaving = self.refusing.leaving(way.target.to.ip());
            return self.put(way, length);
        }
        if is_same && length + icrc::LEN <= self.segment {
            return self.put(way, length);
        }
        let way = way.clone();
        self.held = Some(Held { way, length });
        self.make_way()
    }

    /// Sends the batch, if there is one, and begins another with the packet that is held.
    fn make_way(&mut self) -> Room {
        let end = self.length;
        if self.send() == Room::Full {
            return Room::Full;
        }
        let Some(Held { way, length }) = self.held.take() else {
            return Room::Free;
        };
        self.bytes.copy_within(end..end + length, 0);
        self.admit(&way, length)
    }

    /// Makes the packet behind the batch its last one.
    fn put(&mut self, way: &Way, length: usize) -> Room {
        let whole = length + icrc::LEN;
        let unseen = unseen(identification(way, self.leaving, self.count));
        let buffer = &mut self.bytes[self.length..];
        let sealed = (self.fronts).seal(&way.target.flow, unseen, buffer, length);
        sealed.expect("the place has room for the ICRC");
        self.count += 1;
        self.length += whole;
        let is_last = whole < self.segment
            || self.count >= MOST_SEGMENTS
            || self.length + self.segment > MOST;
        match is_last {
            true => self.flush(),
            false => Room::Free,
        }
    }

    /// Sends what is here.
    #[inline]
    pub(super) fn flush(&mut self) -> Room {
        match self.count == 0 && self.impaired.is_none() {
            true => Room::Free,
            false => self.flush_all(),
        }
    }

    fn flush_all(&mut self) -> Room {
        if self.held.is_some() && self.make_way() == Room::Full {
            return Room::Full;
        }
        let room = self.send();
        if room == Room::Free && self.impaired.is_some() {
            self.send_strays();
        }
        room
    }

    /// Sends the packets that were held back and are due.
    #[cold]
    fn send_strays(&mut self) {
        let (impaired, refused) = (&mut self.impaired, &mut self.refused);
        impaired.iter_mut().for_each(|impaired| {
            impaired.release(|stray| {
                let Way { by, target } = &stray.way;
                match by.send(target.to, &stray.bytes, stray.bytes.len()) {
                    Err(e) if is_refusal(&e) => *refused += 1,
                    Err(_) => return false,
                    Ok(()) => {}
                }
                true
            });
        });
    }

    /// Sends the batch.
    fn send(&mut self) -> Room {
        let Some(Way { by, target }) = &self.way else {
            return Room::Free;
        };
        if self.count == 0 {
            return Room::Free;
        }
        if self.leaving == Leaving::Singly {
            return self.send_singly();
        }
        match by.send(target.to, &self.bytes[..self.length], self.segment) {
            Ok(()) => self.clear(),
            Err(e) if is_refusal(&e) => return self.send_refused(&e),
            Err(_) => return Room::Full,
        }
        Room::Free
    }

    /// Sends a batch that was refused as such, one by one. A lane may only have passed on what an earlier
    /// packet met (nobody listens there), so there even a single one is tried again.
    #[cold]
    fn send_refused(&mut self, refusal: &io::Error) -> Room {
        let is_batch = self.count > 1;
        match &self.way {
            Some(Way { by, target }) if is_batch || by.leads_to().is_some() => {
                if is_batch && never_cuts(refusal) {
                    self.refusing.note(target.to.ip());
                }
                self.leaving = Leaving::Singly;
                self.seal_anew(0);
                self.send_singly()
            }
            _ => {
                self.refused += 1;
                self.clear();
                Room::Free
            }
        }
    }

    /// Seals packets of the batch from the `first` on anew, for each leaves alone now, which is what its
    /// identification says. Where that is not known any more they leave beside the lane.
    fn seal_anew(&mut self, first: usize) {
        let Some(way) = self.way.take() else {
            return;
        };
        let way = match way.by.count_anew() {
            Ok(()) => way,
            Err(_) => self.leave(way),
        };
        let packets = self.bytes[..self.length].chunks_mut(self.segment);
        for (place, packet) in packets.skip(first).enumerate() {
            let length = packet.len() - icrc::LEN;
            let unseen = unseen(identification(&way, Leaving::Singly, place));
            icrc::seal(&way.target.flow, unseen, packet, length).expect("the packet had an ICRC");
        }
        self.way = Some(way);
    }

    /// The way of a lane's packets without it.
    fn leave(&mut self, way: Way) -> Way {
        let main = Way::new(self.main.clone(), way.target.to);
        self.lost.push(way.by);
        // Invariant: a lane is of the IP version of the one socket.
        main.expect("both are of one IP version")
    }

    fn send_singly(&mut self) -> Room {
        let mut done = 0;
        while done < self.count
            && let Some(Way { by, target }) = &self.way
        {
            let rest = &self.bytes[done * self.segment..self.length];
            match by.send_singly(target.to, rest, self.segment) {
                Ok(sent) => done += sent,
                Err(e) if is_refusal(&e) => {
                    self.refused += 1;
                    done += 1;
                    self.seal_anew(done);
                }
                Err(_) => {
                    self.keep_from(done);
                    return Room::Full;
                }
            }
        }
        self.clear();
        Room::Free
    }

    /// Forgets the packets before this one.
    fn keep_from(&mut self, first: usize) {
        let from = first * self.segment;
        let held = self.held.as_ref().map_or(0, |held| held.length);
        self.bytes.copy_within(from..self.length + held, 0);
        (self.count, self.length) = (self.count - first, self.length - from);
    }

    fn clear(&mut self) {
        (self.count, self.length) = (0, 0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::Write as _;
    use std::net::SocketAddr;
    use std::os::fd::{AsFd, AsRawFd};
    use std::time::{Duration, Instant};

    use super::super::inbox::Inbox;
    use super::super::lanes::Opener;
    use super::super::numbering::{Numbering, tell_by_length};
    use super::*;

    fn bound(at: &str) -> io::Result<RoceSocket> {
        RoceSocket::bind(at.parse().unwrap())
    }

    /// A socket of the loopback device.
    fn socket() -> Arc<RoceSocket> {
        Arc::new(bound("127.0.0.1:0").unwrap())
    }

    fn address(socket: &RoceSocket) -> SocketAddr {
        let name = rustix::net::getsockname(socket.as_fd()).unwrap();
        name.try_into().unwrap()
    }

    /// The way from one to another: by itself, which all peers know, or by a lane.
    fn way(from: &Arc<RoceSocket>, to: &RoceSocket) -> Way {
        Way::new(from.clone(), address(to)).unwrap()
    }

    fn lane(from: &RoceSocket, to: &RoceSocket) -> Way {
        let by = Opener::default()
            .open(address(from).ip(), address(to))
            .unwrap();
        way(&Arc::new(by), to)
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

    /// Sends three packets of 40 B, and what is in them.
    fn send_three(outbox: &mut Outbox, way: &Way) {
        for n in 1..=3 {
            outbox.place()[..40].fill(n);
            assert_eq!(outbox.add(way, 40), Room::Free);
        }
        assert_eq!(outbox.flush(), Room::Free);
        assert_eq!(outbox.refused, 0);
    }

    /// Each packet's first byte and the identification that it was sealed with, in the order of coming.
    fn came(to: &RoceSocket, way: &Way, count: usize) -> Vec<(u8, u16)> {
        let (mut came, mut inbox) = (Vec::new(), Inbox::default());
        let deadline = Instant::now() + Duration::from_secs(10);
        while came.len() < count {
            assert!(Instant::now() < deadline, "came: {came:?}");
            inbox.fill(to);
            for datagram in inbox.datagrams() {
                let found = icrc::find_identification(&way.target.flow, unseen(0), datagram.bytes);
                let (packet, identification) = found.unwrap();
                came.push((packet[0], identification));
            }
        }
        came
    }

    /// What `came` of the last packets that left by `way`, so many, in one batch or each for itself.
    fn left(way: &Way, leaving: Leaving, count: u8) -> Vec<(u8, u16)> {
        let calls = match leaving {
            Leaving::Together => 1,
            Leaving::Singly => count.into(),
        };
        let numbering = &way.by.numbering;
        let first = numbering.next().wrapping_sub(numbering.after(calls));
        let number = |place: u8| match (leaving, numbering) {
            (Leaving::Singly, Numbering::Zero) => 0,
            _ => first.wrapping_add(place.into()),
        };
        (0..count).map(|place| (place + 1, number(place))).collect()
    }

    #[test]
    fn packets_of_a_batch_that_is_refused_leave_one_by_one() {
        let (from, to) = (socket(), socket());
        for way in [way(&from, &to), lane(&from, &to)] {
            take_batches(&way.by, false);
            send_three(&mut Outbox::new(&from), &way);
            assert_eq!(came(&to, &way, 3), left(&way, Leaving::Singly, 3));
        }
    }

    #[test]
    fn no_batch_is_tried_where_one_was_refused_and_elsewhere_they_are() {
        let (from, to) = (socket(), socket());
        let elsewhere = bound("127.0.0.2:0").unwrap();
        let (here, there) = (way(&from, &to), way(&from, &elsewhere));
        let mut outbox = Outbox::new(&from);
        take_batches(&from, false);
        send_three(&mut outbox, &here);
        for _ in 0..2 {
            send_three(&mut outbox, &here);
            send_three(&mut outbox, &there);
        }
        let singly = [(1, 0), (2, 0), (3, 0)];
        assert_eq!(came(&to, &here, 9), singly.repeat(3));
        // The kernel numbers the datagrams of a batch.
        let together = [(1, 0), (2, 1), (3, 2)];
        assert_eq!(came(&elsewhere, &there, 6), together.repeat(2));
    }

    #[test]
    fn packets_by_a_lane_and_beside_it_leave_in_their_order() {
        let (from, to) = (socket(), socket());
        let (main, lane) = (way(&from, &to), lane(&from, &to));
        let mut outbox = Outbox::new(&from);
        for (n, way) in [(1, &lane), (2, &main), (3, &lane)] {
            outbox.place()[..40].fill(n);
            assert_eq!(outbox.add(way, 40), Room::Free);
        }
        assert_eq!(outbox.flush(), Room::Free);
        let next = lane.by.numbering.next();
        let numbers = [(1, &lane, next.wrapping_sub(2)), (2, &main, 0)];
        for (n, way, number) in numbers
            .into_iter()
            .chain([(3, &lane, next.wrapping_sub(1))])
        {
            assert_eq!(came(&to, way, 1), [(n, number)]);
        }
    }

    /// What the kernel numbers packets with, by the lengths of what comes.
    #[test]
    fn packets_are_sealed_with_the_identification_that_they_have() {
        let from = socket();
        let to = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        tell_by_length(&to).unwrap();
        to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let there = to.local_addr().unwrap();
        let lane = Opener::default().open(address(&from).ip(), there).unwrap();
        for by in [from.clone(), Arc::new(lane)] {
            let (way, mut outbox) = (Way::new(by, there).unwrap(), Outbox::new(&from));
            for (count, takes) in [(1, true), (3, true), (1, true), (3, false), (1, false)] {
                take_batches(&way.by, takes);
                for _ in 0..count {
                    outbox.place()[..300].fill(0);
                    outbox.add(&way, 300);
                }
                assert_eq!(outbox.flush(), Room::Free);
                // What has left lies there until something else is built.
                for packet in outbox.bytes.chunks(304).take(count) {
                    let sealed = icrc::find_identification(&way.target.flow, unseen(0), packet);
                    let lower = sealed.unwrap().1 & 0xff;
                    assert_eq!(to.recv(&mut [0; 304]).unwrap(), 1 + usize::from(lower));
                }
            }
            assert_eq!(outbox.refused, 0);
        }
    }

    #[test]
    fn a_batch_whose_lane_has_lost_count_leaves_beside_it() {
        let (from, to) = (socket(), socket());
        let (main, lane) = (way(&from, &to), lane(&from, &to));
        let mut outbox = Outbox::new(&from);
        lane.by.lose_count();
        take_batches(&lane.by, false);
        send_three(&mut outbox, &lane);
        assert_eq!(came(&to, &main, 3), left(&main, Leaving::Singly, 3));
        assert!(Arc::ptr_eq(&outbox.lost[0], &lane.by));
    }

    #[test]
    fn a_lane_outlives_that_nobody_listens_at_its_end() {
        let (from, to) = (socket(), socket());
        let (lane, there) = (lane(&from, &to), address(&to));
        drop(to);
        let mut outbox = Outbox::new(&from);
        (0..3).for_each(|_| send_three(&mut outbox, &lane));
        let to = RoceSocket::bind(there).unwrap();
        send_three(&mut outbox, &lane);
        // The last refusal comes with the first batch that somebody hears.
        assert_eq!(came(&to, &lane, 3), left(&lane, Leaving::Singly, 3));
        send_three(&mut outbox, &lane);
        assert_eq!(came(&to, &lane, 3), left(&lane, Leaving::Together, 3));
    }

    #[test]
    fn a_packet_that_no_room_was_for_leaves_behind_the_batch() {
        let (from, to) = (socket(), socket());
        let way = way(&from, &to);
        for gone in 0..2 {
            let mut outbox = Outbox::new(&from);
            outbox.refusing.note(address(&to).ip());
            for n in 1..=2 {
                outbox.place()[..40].fill(n);
                outbox.add(&way, 40);
            }
            // Too long for the batch; and the socket took only the first `gone` packets of that.
            outbox.place()[..44].fill(3);
            outbox.held = Some(Held {
                way: way.clone(),
                length: 44,
            });
            outbox.keep_from(gone);
            assert_eq!(outbox.flush(), Room::Free);
            let left = &[(1, 0), (2, 0), (3, 0)][gone..];
            assert_eq!(came(&to, &way, left.len()), left);
            assert_eq!(outbox.count, 0);
        }
    }

    #[test]
    fn packets_leave_one_by_one_over_ipv6_too() {
        let (Ok(from), Ok(to)) = (bound("[::1]:0"), bound("[::1]:0")) else {
            let mut stderr = std::io::stderr();
            return writeln!(stderr, "NOT RUN: packets at ::1: no IPv6 here").unwrap();
        };
        let from = Arc::new(from);
        for way in [way(&from, &to), lane(&from, &to)] {
            let mut outbox = Outbox::new(&from);
            outbox.refusing.note(address(&to).ip());
            send_three(&mut outbox, &way);
            assert_eq!(came(&to, &way, 3), left(&way, Leaving::Singly, 3));
        }
    }
}
