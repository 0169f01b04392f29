//! The transmit batch: consecutive packets to one peer are sent by one system call (GSO).
//!
//! The kernel cuts a batch into packets of one length; only the last packet may be shorter. So a longer packet begins
//! another batch, and a shorter one ends the batch. The IP identification of a packet, which its ICRC covers, is its
//! index in the batch. If the kernel refuses a batch (an interface that does not compute checksums cannot segment it),
//! the packets are sent one by one, with identification 0 and therefore with other ICRCs.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use adverb_impair::{FaultInjector, Route, Verdict};
use adverb_transport::{PACKET_SPACE, PacketBuffer};
use adverb_verbs::Impairment;
use adverb_wire::icrc;

use super::packet::{Target, around, unseen};
use super::socket::{MAX_SEGMENTS, RoceSocket, is_refusal, refuses_gso};

/// Maximum length of a batch in bytes: an IP packet without its headers.
const MOST: usize = (1 << 16) - 256;

impl Route for Target {
    fn around(&self) -> usize {
        around(self.to.to)
    }
}

/// Whether the socket takes packets: back-pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// The send buffer has room.
    Free,
    /// The send buffer is full; the batch has to be sent before others.
    Full,
}

/// Whether the kernel segments a batch (generic segmentation offload).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gso {
    /// It does: the IP identification counts the packets of the batch.
    On,
    /// Each packet is sent alone.
    Off,
}

/// Peers to which the kernel refuses GSO, which only a failed send reveals.
#[derive(Debug, Default)]
struct NoGso(Vec<IpAddr>);

impl NoGso {
    /// With more peers the list is cleared and learned again.
    const MOST: usize = 64;

    fn note(&mut self, peer: IpAddr) {
        if self.0.len() == Self::MOST {
            self.0.clear();
        }
        self.0.push(peer);
    }

    #[inline]
    fn gso_to(&self, peer: IpAddr) -> Gso {
        match self.0.contains(&peer) {
            true => Gso::Off,
            false => Gso::On,
        }
    }
}

/// A packet that does not fit into the batch, while the socket takes no more: the first one of the next batch.
#[derive(Clone, Debug)]
struct Overflow {
    target: Target,
    /// Length without the ICRC.
    length: usize,
}

/// One batch: packets of one length (the last may be shorter) to one peer.
#[derive(Debug)]
pub(super) struct TxBatch {
    socket: Arc<RoceSocket>,
    bytes: Vec<u8>,
    /// Destination of this batch, else of the previous one.
    target: Option<Target>,
    gso: Gso,
    /// Length of each packet except the last.
    segment: usize,
    count: usize,
    length: usize,
    /// Stored in `bytes` after the batch.
    overflow: Option<Overflow>,
    no_gso: NoGso,
    impaired: Option<Box<FaultInjector<Target>>>,
    /// Packets that the kernel refused: no route, no permission, too long.
    pub(super) refused: u64,
}

impl TxBatch {
    /// Makes an empty batch, which is sent through `socket`.
    pub(super) fn new(socket: &Arc<RoceSocket>) -> Self {
        TxBatch {
            socket: socket.clone(),
            bytes: vec![0; MOST + PACKET_SPACE],
            target: None,
            gso: Gso::On,
            segment: 0,
            count: 0,
            length: 0,
            overflow: None,
            no_gso: NoGso::default(),
            impaired: None,
            refused: 0,
        }
    }

    /// Returns the main socket.
    pub(super) fn socket(&self) -> &RoceSocket {
        &self.socket
    }

    /// Injects faults into all further packets.
    pub(super) fn impair(&mut self, how: Impairment) {
        self.impaired = Some(Box::new(FaultInjector::random(how)));
    }

    pub(super) fn impaired(&self) -> Option<&FaultInjector<Target>> {
        self.impaired.as_deref()
    }

    /// Returns the buffer in which to build the next packet, with room for its ICRC.
    pub(super) fn place(&mut self) -> &mut PacketBuffer {
        let place = self.bytes[self.length..].first_chunk_mut();
        place.expect("a batch leaves room for a packet")
    }

    /// Whether consecutive packets to `peer` are sent by one system call.
    #[inline]
    pub(super) fn joins(&self, peer: IpAddr) -> bool {
        self.no_gso.gso_to(peer) == Gso::On
    }

    /// Adds the packet of `length` bytes that was built at [`TxBatch::place`]. If the result is `Full`, the
    /// packet is kept, and the next one may be built only after [`TxBatch::flush`] has returned `Free`.
    pub(super) fn add(&mut self, target: &Target, length: usize) -> Room {
        match self.impaired {
            None => self.admit(target, length),
            Some(_) => self.add_impaired(target, length),
        }
    }

    /// The same, with fault injection.
    #[cold]
    fn add_impaired(&mut self, target: &Target, length: usize) -> Room {
        let Some(impaired) = &mut self.impaired else {
            return self.admit(target, length);
        };
        let packet = &self.bytes[self.length..][..length + icrc::LEN];
        let verdict = impaired.judge(target, || {
            let mut alone = packet.to_vec();
            icrc::seal(&target.flow, unseen(0), &mut alone, length)
                .expect("there is room for the ICRC");
            alone
        });
        let is_due = impaired.is_due();
        let room = match verdict {
            Verdict::Pass => self.admit(target, length),
            Verdict::Drop => Room::Free,
        };
        // A delayed packet that is due is sent between its predecessors and its successors.
        match is_due && room == Room::Free {
            true => self.flush(),
            false => room,
        }
    }

    #[inline]
    fn admit(&mut self, target: &Target, length: usize) -> Room {
        if self.count == 0 {
            self.target = Some(*target);
            self.segment = length + icrc::LEN;
            self.gso = self.no_gso.gso_to(target.to.to.ip());
            return self.put(target, length);
        }
        let is_same = self.target.is_some_and(|last| last.to == target.to);
        if is_same && length + icrc::LEN <= self.segment {
            return self.put(target, length);
        }
        let target = *target;
        self.overflow = Some(Overflow { target, length });
        self.start_next()
    }

    /// Sends the batch and starts the next one with the overflow packet, if there is one.
    fn start_next(&mut self) -> Room {
        let end = self.length;
        if self.send() == Room::Full {
            return Room::Full;
        }
        let Some(Overflow { target, length }) = self.overflow.take() else {
            return Room::Free;
        };
        self.bytes.copy_within(end..end + length, 0);
        self.admit(&target, length)
    }

    /// Appends the packet that follows the batch in the buffer to the batch.
    fn put(&mut self, target: &Target, length: usize) -> Room {
        let whole = length + icrc::LEN;
        let identification = match self.gso {
            Gso::On => self.count as u16,
            Gso::Off => 0,
        };
        let buffer = &mut self.bytes[self.length..];
        let sealed = icrc::seal(&target.flow, unseen(identification), buffer, length);
        sealed.expect("the place has room for the ICRC");
        self.count += 1;
        self.length += whole;
        let is_last =
            whole < self.segment || self.count >= MAX_SEGMENTS || self.length + self.segment > MOST;
        match is_last {
            true => self.flush(),
            false => Room::Free,
        }
    }

    /// Sends everything that was added.
    #[inline]
    pub(super) fn flush(&mut self) -> Room {
        match self.count == 0 && self.impaired.is_none() {
            true => Room::Free,
            false => self.flush_all(),
        }
    }

    fn flush_all(&mut self) -> Room {
        if self.overflow.is_some() && self.start_next() == Room::Full {
            return Room::Full;
        }
        let room = self.send();
        if room == Room::Free && self.impaired.is_some() {
            self.send_delayed();
        }
        room
    }

    /// Sends the delayed packets that are due.
    #[cold]
    fn send_delayed(&mut self) {
        let Some(impaired) = &mut self.impaired else {
            return;
        };
        impaired.release(|route, bytes| {
            match self.socket.send(route.to, bytes, bytes.len()) {
                Err(e) if is_refusal(&e) => self.refused += 1,
                Err(_) => return false,
                Ok(()) => {}
            }
            true
        });
    }

    /// Sends the batch.
    fn send(&mut self) -> Room {
        let Some(target) = self.target.filter(|_| self.count != 0) else {
            return Room::Free;
        };
        if self.gso == Gso::Off {
            return self.send_unbatched(&target);
        }
        let batch = &self.bytes[..self.length];
        match self.socket.send(target.to, batch, self.segment) {
            Err(e) if !is_refusal(&e) => return Room::Full,
            Err(e) if self.count > 1 => return self.send_refused(&target, &e),
            Err(_) => self.refused += 1,
            Ok(()) => {}
        }
        self.clear();
        Room::Free
    }

    /// Sends the packets of a refused batch one by one. Each gets another ICRC, because the identification of a packet that
    /// is sent alone is 0.
    #[cold]
    fn send_refused(&mut self, target: &Target, refusal: &io::Error) -> Room {
        if refuses_gso(refusal) {
            self.no_gso.note(target.to.to.ip());
        }
        self.gso = Gso::Off;
        for packet in self.bytes[..self.length].chunks_mut(self.segment) {
            let length = packet.len() - icrc::LEN;
            icrc::seal(&target.flow, unseen(0), packet, length).expect("the packet had an ICRC");
        }
        self.send_unbatched(target)
    }

    fn send_unbatched(&mut self, target: &Target) -> Room {
        let mut done = 0;
        while done < self.count {
            let rest = &self.bytes[done * self.segment..self.length];
            match (self.socket).send_unbatched(target.to, rest, self.segment) {
                Ok(sent) => done += sent,
                Err(e) if is_refusal(&e) => {
                    self.refused += 1;
                    done += 1;
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

    /// Removes the packets before index `first`.
    fn keep_from(&mut self, first: usize) {
        let from = first * self.segment;
        let overflow = self.overflow.as_ref().map_or(0, |overflow| overflow.length);
        self.bytes.copy_within(from..self.length + overflow, 0);
        (self.count, self.length) = (self.count - first, self.length - from);
    }

    fn clear(&mut self) {
        (self.count, self.length) = (0, 0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
