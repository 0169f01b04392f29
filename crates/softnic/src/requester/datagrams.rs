//! Sending datagrams: into the receive queue of any UD queue pair of this user on this host.
//!
//! What does not arrive is dropped without a word: there is no such queue pair, it does not
//! receive, the queue key is another, no receive is posted (IBTA vol. 1, 9.8.3.1, 10.2.5).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_verbs::{Operation, QpType, Qpn, SendFlags, SendRequest, WcStatus};

use super::{Source, notify};
use crate::datagrams::CELL_LINES;
use crate::port::Port;
use crate::shm::datagram_ring::{Addressee, Cell, DatagramRing, Front, Holder, Message};
use crate::shm::layout::{CqEntry, Phase, QP_INDEX_BITS, QpEntry, qp_index};
use crate::shm::peer::Peer;
use crate::shm::ring::Line;

/// Ways that a queue pair remembers.
const CACHE_SLOTS: usize = 64;
/// A queue key with this bit stands for the sender's own (IBTA vol. 1, 3.5.3).
const OWN_QKEY: u32 = 1 << 31;

/// The queue pair that sends.
#[derive(Debug)]
pub(crate) struct Sender<'a> {
    pub(crate) port: &'a Port,
    pub(crate) qpn: Qpn,
    pub(crate) pd: u32,
    pub(crate) qkey: u32,
}

/// The queue pairs that were sent to last.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// Empty before the first message.
    slots: Vec<Option<Way>>,
}

/// The way to one queue pair.
#[derive(Debug)]
struct Way {
    qpn: Qpn,
    peer: Arc<Peer>,
    remote: *const QpEntry,
    inlet: Option<Inlet>,
}

// SAFETY: `remote` and what `inlet` points to lie in the mapping that `peer` keeps; all access is
// by atomics, and to payload of cells that are held.
unsafe impl Send for Way {}

/// What was read of the queue pair, valid while its phase is the same.
#[derive(Debug)]
struct Inlet {
    phase: Phase,
    ring: DatagramRing<'static>,
    /// No receive before this position is posted.
    next: u64,
    recv_cq: u32,
    cq: *const CqEntry,
    /// It is not that of a shared receive queue.
    has_own_ring: bool,
}

/// A datagram on its way.
struct Datagram<'a> {
    message: Message,
    source: Source<'a>,
    qkey: u32,
    flags: SendFlags,
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It left; a status other than success tells of a fault of this side.
    Here(WcStatus),
    /// Its queue pair is none of those that share memory: it may be a stranger's.
    ToStranger,
}

impl Ways {
    /// Sends a datagram of `own`.
    #[inline]
    pub(crate) fn send(&mut self, own: &Sender<'_>, request: &SendRequest<'_>) -> Sent {
        match self.try_send(own, request) {
            Ok(sent) => sent,
            Err(status) => Sent::Here(status),
        }
    }

    #[inline]
    fn try_send(&mut self, own: &Sender<'_>, request: &SendRequest<'_>) -> Result<Sent, WcStatus> {
        let to = request.to.ok_or(WcStatus::LocQpOpErr)?;
        if to.ah.name() != own.pd.into() {
            return Err(WcStatus::LocQpOpErr);
        }
        let source = Source::check(own.port, own.pd, request).ok_or(WcStatus::LocProtErr)?;
        let imm = match request.operation {
            Operation::Send => None,
            Operation::SendWithImm(imm) => Some(imm.0),
            _ => return Err(WcStatus::LocQpOpErr),
        };
        let message = Message {
            length: source.left as u32,
            source: own.qpn.get(),
            imm,
            front: Front::OfHost,
        };
        let is_own = to.qkey & OWN_QKEY != 0;
        let datagram = Datagram {
            message,
            source,
            qkey: if is_own { own.qkey } else { to.qkey },
            flags: request.flags,
        };
        match self.way_to(own, to.qpn) {
            None => return Ok(Sent::ToStranger),
            Some(way) if way.inlet.is_some() => way.send(own, datagram),
            Some(_) => {}
        }
        Ok(Sent::Here(WcStatus::Success))
    }

    /// The way to a queue pair, which has an inlet where it receives; none where nobody with whom
    /// memory is shared can have it.
    #[inline]
    fn way_to(&mut self, own: &Sender<'_>, qpn: Qpn) -> Option<&mut Way> {
        if self.slots.is_empty() {
            self.slots.resize_with(CACHE_SLOTS, || None);
        }
        let number = qpn.get() ^ (qpn.get() >> QP_INDEX_BITS);
        let slot = &mut self.slots[number as usize % CACHE_SLOTS];
        if !slot.as_ref().is_some_and(|way| way.leads_to(qpn)) {
            let known = slot.take().filter(|way| way.qpn == qpn && way.is_there());
            *slot = known.or_else(|| Way::find(own, qpn));
            slot.as_mut()?.attach(own);
        }
        slot.as_mut()
    }
}

impl Way {
    #[cold]
    fn find(own: &Sender<'_>, qpn: Qpn) -> Option<Self> {
        let peer = own.port.peer_of(qpn).ok()?;
        let remote = std::ptr::from_ref(peer.qp_entry(qp_index(qpn))?);
        Some(Way {
            qpn,
            peer,
            remote,
            inlet: None,
        })
    }

    fn remote(&self) -> &QpEntry {
        // SAFETY: points into the mapping that `peer` keeps, a struct of atomics.
        unsafe { &*self.remote }
    }

    fn phase(&self) -> Phase {
        Phase(self.remote().phase.load(Ordering::Acquire))
    }

    /// Whether its queue pair is `qpn`, in the phase that was attached to.
    #[inline]
    fn leads_to(&self, qpn: Qpn) -> bool {
        let inlet = self.inlet.as_ref();
        self.qpn == qpn
            && !self.peer.is_dead()
            && inlet.is_some_and(|inlet| inlet.phase == self.phase())
    }

    /// Whether the port is there. If not, its slot may have another owner by now.
    fn is_there(&self) -> bool {
        !self.peer.is_dead() && !self.peer.has_left()
    }

    #[inline]
    fn send(&mut self, own: &Sender<'_>, mut datagram: Datagram<'_>) {
        if self.remote().qkey.load(Ordering::Relaxed) != datagram.qkey {
            return;
        }
        if let Some((position, inlet)) = self.put(own, &mut datagram) {
            inlet.next = position + 1;
            // SAFETY: the entry lies in the mapping that the peer keeps, a struct of atomics.
            let cq = unsafe { &*inlet.cq };
            let recv_cq = inlet.recv_cq;
            let marked = inlet.has_own_ring.then(|| qp_index(self.qpn));
            notify(&self.peer, (cq, recv_cq), marked, datagram.flags);
        }
    }

    /// Gives the datagram to the oldest posted receive, if there is one; returns its position.
    #[inline]
    fn put(&mut self, own: &Sender<'_>, datagram: &mut Datagram<'_>) -> Option<(u64, &mut Inlet)> {
        let remote = self.remote;
        let inlet = self.inlet.as_mut()?;
        let (ring, phase) = (inlet.ring, inlet.phase);
        // SAFETY: as in `remote`.
        let is_same_life = || unsafe { &*remote }.phase.load(Ordering::Acquire) == phase.0;
        let mut position = ring.posted_from(inlet.next, is_same_life)?;
        let cell = ring.claim(position, Holder::new(own.port.slot, own.port.epoch))?;
        let life = Addressee::new(qp_index(self.qpn), phase.generation());
        fill(ring, (cell, life), datagram);
        while !ring.publish(position, cell) {
            let Some(next) = ring.posted_from(position, is_same_life) else {
                ring.free(cell);
                return None;
            };
            position = next;
        }
        Some((position, inlet))
    }

    /// Reads what belongs to the queue pair's present phase, if it receives.
    #[cold]
    fn attach(&mut self, own: &Sender<'_>) {
        self.inlet = self.inlet_of(self.phase());
        if self.inlet.is_some() {
            // Before this side holds anything of the peer's, which is to learn of its death.
            self.peer.announce(own.port.slot, own.port.epoch);
        }
    }

    fn inlet_of(&self, phase: Phase) -> Option<Inlet> {
        if !phase.receives(QpType::Ud) {
            return None;
        }
        let remote = self.remote();
        let recv_cq = remote.recv_cq.load(Ordering::Relaxed);
        let (offset, slots) = self.mailbox()?;
        if !slots.is_power_of_two() {
            return None;
        }
        let length = DatagramRing::lines(slots, CELL_LINES) * size_of::<Line>();
        let lines = self.peer.address(offset, length as u64)?;
        // SAFETY: the lines lie in the peer's mapping (checked by `address`), which `self.peer`
        // keeps for longer than `inlet` lives.
        let ring = unsafe { DatagramRing::from_raw(lines.cast(), slots, CELL_LINES) };
        let inlet = Inlet {
            phase,
            next: ring.first(),
            ring,
            recv_cq,
            cq: self.peer.cq_entry(recv_cq)?,
            has_own_ring: remote.ring_slots.load(Ordering::Relaxed) != 0,
        };
        // All that was read belongs to this phase, if it is still the same.
        (self.phase() == phase).then_some(inlet)
    }

    /// Where the queue pair's ring lies, its own or that of its shared receive queue, and of how many
    /// slots.
    fn mailbox(&self) -> Option<(u64, usize)> {
        let remote = self.remote();
        let slots = remote.ring_slots.load(Ordering::Relaxed);
        let offset = remote.ring_offset.load(Ordering::Relaxed);
        if slots != 0 {
            return Some((offset, slots as usize));
        }
        let shared = self.peer.srq_entry(offset)?;
        let slots = shared.mailbox_slots.load(Ordering::Acquire);
        Some((shared.mailbox.load(Ordering::Relaxed), slots as usize))
    }
}

/// Copies the datagram into the claimed cell, for one life of a queue pair.
#[inline]
fn fill(ring: DatagramRing<'_>, (cell, to): (Cell, Addressee), datagram: &mut Datagram<'_>) {
    let length = datagram.source.left;
    debug_assert!(length as usize <= ring.room());
    ring.describe(cell, datagram.message, to);
    datagram.source.copy_to(ring.payload(cell), length);
}
