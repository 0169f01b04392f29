//! The transmit batch: consecutive packets to one peer are sent by one system call (GSO).

use adverb_verbs::Impairment;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use adverb_transport::{PACKET_SPACE, PacketBuffer};
use adverb_wire::icrc;
use adverb_wire::ipv4::{Fragmentation, Unseen};

use super::faults::{FaultInjector, Verdict};
use super::peer_sockets::Route;
use super::socket::{MAX_SEGMENTS, RoceSocket, is_refusal, refuses_gso};

/// Maximum length of a batch in bytes: an IP packet without its headers.
const MOST: usize = (1 << 16) - 256;

/// Returns the fields of the IP header that the ICRC covers and a socket does not see.
pub(super) fn unseen(identification: u16) -> Unseen {
    Unseen {
        identification,
        fragmentation: Fragmentation::Forbidden,
    }
}

/// Whether the socket takes packets: back-pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It does.
    Free,
    /// Its send buffer is full; the batch has to be sent before others.
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

/// Peers whose route refuses GSO, which only a failed send reveals.
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

/// Returns the identification of the packet at index `place` of the next batch.
fn identification(route: &Route, gso: Gso, place: usize) -> u16 {
    let ip_id = &route.socket.ip_id;
    let farther = match gso {
        Gso::On => place as u16,
        Gso::Off => ip_id.after(place),
    };
    ip_id.next().wrapping_add(farther)
}

/// A packet that does not fit into the batch, while the socket takes no more: the first one of the next batch.
#[derive(Clone, Debug)]
struct Held {
    route: Route,
    /// Length without the ICRC.
    length: usize,
}

/// One batch: packets of one length (the last may be shorter) to one peer.
#[derive(Debug)]
pub(super) struct TxBatch {
    main: Arc<RoceSocket>,
    bytes: Vec<u8>,
    /// Route of this batch, else of the previous one: the next one usually has the same.
    route: Option<Route>,
    gso: Gso,
    /// Length of each packet except the last.
    segment: usize,
    count: usize,
    length: usize,
    /// Stored in `bytes` after the batch.
    held: Option<Held>,
    no_gso: NoGso,
    impaired: Option<Box<FaultInjector<Route>>>,
    fronts: icrc::Fronts,
    /// Connected sockets whose next identification is unknown: they must not be used any more.
    pub(super) lost: Vec<Arc<RoceSocket>>,
    /// Packets that the kernel refused: no route, no permission, too long.
    pub(super) refused: u64,
}

impl TxBatch {
    /// Makes an empty batch; packets without a connected socket are sent through `main`.
    pub(super) fn new(main: &Arc<RoceSocket>) -> Self {
        TxBatch {
            main: main.clone(),
            bytes: vec![0; MOST + PACKET_SPACE],
            route: None,
            gso: Gso::On,
            segment: 0,
            count: 0,
            length: 0,
            held: None,
            no_gso: NoGso::default(),
            impaired: None,
            fronts: icrc::Fronts::default(),
            lost: Vec::new(),
            refused: 0,
        }
    }

    /// Returns the socket that receives from all peers.
    pub(super) fn main(&self) -> &RoceSocket {
        &self.main
    }

    /// Injects faults into all further packets.
    pub(super) fn impair(&mut self, how: Impairment) {
        self.impaired = Some(Box::new(FaultInjector::random(how)));
    }

    pub(super) fn impaired(&self) -> Option<&FaultInjector<Route>> {
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
    pub(super) fn add(&mut self, route: &Route, length: usize) -> Room {
        match self.impaired {
            None => self.admit(route, length),
            Some(_) => self.add_impaired(route, length),
        }
    }

    /// The same, with fault injection.
    #[cold]
    fn add_impaired(&mut self, route: &Route, length: usize) -> Room {
        let Some(impaired) = &mut self.impaired else {
            return self.admit(route, length);
        };
        let packet = &self.bytes[self.length..][..length + icrc::LEN];
        let verdict = impaired.judge(route, || {
            let mut alone = packet.to_vec();
            icrc::seal(&route.target.flow, unseen(0), &mut alone, length)
                .expect("there is room for the ICRC");
            alone
        });
        let is_due = impaired.is_due();
        let room = match verdict {
            Verdict::Pass => self.admit(route, length),
            Verdict::Drop => Room::Free,
        };
        // A delayed packet that is due is sent between its predecessors and its successors.
        match is_due && room == Room::Free {
            true => self.flush(),
            false => room,
        }
    }

    #[inline]
    fn admit(&mut self, route: &Route, length: usize) -> Room {
        let is_same = self.route.as_ref().is_some_and(|last| last.is(route));
        if self.count == 0 {
            if !is_same {
                self.route = Some(route.clone());
            }
            self.segment = length + icrc::LEN;
            self.gso = self.no_gso.gso_to(route.target.to.to.ip());
            return self.put(route, length);
        }
        if is_same && length + icrc::LEN <= self.segment {
            return self.put(route, length);
        }
        let route = route.clone();
        self.held = Some(Held { route, length });
        self.start_next()
    }

    /// Sends the batch and starts the next one with the held packet, if there is one.
    fn start_next(&mut self) -> Room {
        let end = self.length;
        if self.send() == Room::Full {
            return Room::Full;
        }
        let Some(Held { route, length }) = self.held.take() else {
            return Room::Free;
        };
        self.bytes.copy_within(end..end + length, 0);
        self.admit(&route, length)
    }

    /// Appends the packet that follows the batch in the buffer to the batch.
    fn put(&mut self, route: &Route, length: usize) -> Room {
        let whole = length + icrc::LEN;
        let unseen = unseen(identification(route, self.gso, self.count));
        let buffer = &mut self.bytes[self.length..];
        let sealed = (self.fronts).seal(&route.target.flow, unseen, buffer, length);
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
        if self.held.is_some() && self.start_next() == Room::Full {
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
        let (impaired, refused) = (&mut self.impaired, &mut self.refused);
        impaired.iter_mut().for_each(|impaired| {
            impaired.release(|delayed| {
                let Route { socket, target } = &delayed.route;
                match socket.send(target.to, &delayed.bytes, delayed.bytes.len()) {
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
        let Some(Route { socket, target }) = &self.route else {
            return Room::Free;
        };
        if self.count == 0 {
            return Room::Free;
        }
        if self.gso == Gso::Off {
            return self.send_unbatched();
        }
        match socket.send(target.to, &self.bytes[..self.length], self.segment) {
            Ok(()) => self.clear(),
            Err(e) if is_refusal(&e) => return self.send_refused(&e),
            Err(_) => return Room::Full,
        }
        Room::Free
    }

    /// Sends the packets of a refused batch one by one. A connected socket may have reported the failure of an
    /// earlier packet (nobody listening at the peer), so there even a single packet is tried again.
    #[cold]
    fn send_refused(&mut self, refusal: &io::Error) -> Room {
        let is_batch = self.count > 1;
        match &self.route {
            Some(Route { socket, target }) if is_batch || socket.peer().is_some() => {
                if is_batch && refuses_gso(refusal) {
                    self.no_gso.note(target.to.to.ip());
                }
                self.gso = Gso::Off;
                self.reseal(0);
                self.send_unbatched()
            }
            _ => {
                self.refused += 1;
                self.clear();
                Room::Free
            }
        }
    }

    /// Computes the ICRCs from the packet at index `first` on again: each packet is sent alone now and gets
    /// another identification. If that is unknown, the packets are sent through the main socket.
    fn reseal(&mut self, first: usize) {
        let Some(route) = self.route.take() else {
            return;
        };
        let route = match route.socket.relearn_ip_id() {
            Ok(()) => route,
            Err(_) => self.leave(route),
        };
        let packets = self.bytes[..self.length].chunks_mut(self.segment);
        for (place, packet) in packets.skip(first).enumerate() {
            let length = packet.len() - icrc::LEN;
            let unseen = unseen(identification(&route, Gso::Off, place));
            icrc::seal(&route.target.flow, unseen, packet, length).expect("the packet had an ICRC");
        }
        self.route = Some(route);
    }

    /// Replaces the route through a connected socket by one through the main socket.
    fn leave(&mut self, route: Route) -> Route {
        let main = Route::new(self.main.clone(), route.target.to);
        self.lost.push(route.socket);
        // Invariant: all sockets of a port have one IP version.
        main.expect("both are of one IP version")
    }

    fn send_unbatched(&mut self) -> Room {
        let mut done = 0;
        while done < self.count
            && let Some(Route { socket, target }) = &self.route
        {
            let rest = &self.bytes[done * self.segment..self.length];
            match socket.send_unbatched(target.to, rest, self.segment) {
                Ok(sent) => done += sent,
                Err(e) if is_refusal(&e) => {
                    self.refused += 1;
                    done += 1;
                    self.reseal(done);
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
