//! Packets on their way to the socket: those to one peer that follow each other leave together.

use adverb_verbs::Impairment;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use adverb_transport::{PACKET_SPACE, PacketBuffer};
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

    /// The socket that all peers know.
    pub(super) fn main(&self) -> &RoceSocket {
        &self.main
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
            self.leaving = self.refusing.leaving(way.target.to.to.ip());
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
                    self.refusing.note(target.to.to.ip());
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
mod tests;
