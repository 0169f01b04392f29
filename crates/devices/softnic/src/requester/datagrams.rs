//! Sends datagrams to the receive queue of any UD queue pair of this user on this host.
//!
//! A datagram is dropped silently if there is no such queue pair, it does not receive, the Q_Key differs, or no
//! receive is posted (IBTA vol. 1, 9.8.3.1, 10.2.5).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_transport::sent_qkey;
use adverb_verbs::{Operation, QpType, Qpn, SendFlags, SendRequest, WcStatus};

use super::{Source, notify};
use crate::datagrams::CELL_LINES;
use crate::port::Port;
use crate::shm::datagram_ring::{Addressee, Cell, DatagramRing, GrhSource, Holder, Message};
use crate::shm::layout::{CqEntry, Phase, QP_INDEX_BITS, QpEntry, qp_index};
use crate::shm::peer::Peer;
use crate::shm::ring::Line;

/// Number of destinations that a queue pair caches.
const CACHE_SLOTS: usize = 64;

/// The queue pair that sends.
#[derive(Debug)]
pub(crate) struct Sender<'a> {
    pub(crate) port: &'a Port,
    pub(crate) qpn: Qpn,
    pub(crate) pd: u32,
    pub(crate) qkey: u32,
}

/// The most recent destinations.
#[derive(Debug, Default)]
pub(crate) struct DestinationCache {
    /// Empty before the first message.
    slots: Vec<Option<CachedDestination>>,
}

/// A destination queue pair.
#[derive(Debug)]
struct CachedDestination {
    qpn: Qpn,
    peer: Arc<Peer>,
    remote: *const QpEntry,
    receiver: Option<CachedReceiver>,
}

// SAFETY: `remote` and the pointers of `receiver` point into the mapping that `peer` keeps. Words are accessed by
// atomics, and payload only in cells that this sender holds.
unsafe impl Send for CachedDestination {}

/// State read from the queue pair, valid while its phase is the same.
#[derive(Debug)]
struct CachedReceiver {
    phase: Phase,
    ring: DatagramRing<'static>,
    /// No receive before this position is posted.
    next: u64,
    recv_cq: u32,
    cq: *const CqEntry,
    /// The ring belongs to the queue pair, not to a shared receive queue.
    has_own_ring: bool,
}

/// A datagram to send.
struct OutgoingDatagram<'a> {
    message: Message,
    source: Source<'a>,
    qkey: u32,
    flags: SendFlags,
}

/// The outcome of sending a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// It was sent, or a local error occurred, which the status reports.
    Done(WcStatus),
    /// No process that shares memory has the queue pair; another process may have it.
    NoSharedMemory,
}

impl DestinationCache {
    /// Sends a datagram of `own`.
    #[inline]
    pub(crate) fn send(&mut self, own: &Sender<'_>, request: &SendRequest<'_>) -> SendOutcome {
        match self.try_send(own, request) {
            Ok(sent) => sent,
            Err(status) => SendOutcome::Done(status),
        }
    }

    #[inline]
    fn try_send(
        &mut self,
        own: &Sender<'_>,
        request: &SendRequest<'_>,
    ) -> Result<SendOutcome, WcStatus> {
        let to = request.to.ok_or(WcStatus::LocQpOpErr)?;
        if to.ah.name() != u64::from(own.pd) {
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
            grh: GrhSource::Local,
        };
        let datagram = OutgoingDatagram {
            message,
            source,
            qkey: sent_qkey(to.qkey, own.qkey),
            flags: request.flags,
        };
        match self.destination(own, to.qpn) {
            None => return Ok(SendOutcome::NoSharedMemory),
            Some(destination) if destination.receiver.is_some() => destination.send(own, datagram),
            Some(_) => {}
        }
        Ok(SendOutcome::Done(WcStatus::Success))
    }

    /// Returns the destination for a queue pair, with its receiver if it receives. `None` if no process that shares
    /// memory can have it.
    #[inline]
    fn destination(&mut self, own: &Sender<'_>, qpn: Qpn) -> Option<&mut CachedDestination> {
        if self.slots.is_empty() {
            self.slots.resize_with(CACHE_SLOTS, || None);
        }
        let number = qpn.get() ^ (qpn.get() >> QP_INDEX_BITS);
        let slot = &mut self.slots[number as usize % CACHE_SLOTS];
        if !slot
            .as_ref()
            .is_some_and(|destination| destination.is_for(qpn))
        {
            let known = slot
                .take()
                .filter(|destination| destination.qpn == qpn && destination.is_open());
            *slot = known.or_else(|| CachedDestination::find(own, qpn));
            slot.as_mut()?.attach(own);
        }
        slot.as_mut()
    }
}

impl CachedDestination {
    #[cold]
    fn find(own: &Sender<'_>, qpn: Qpn) -> Option<Self> {
        let peer = own.port.peer_of(qpn).ok()?;
        let remote = std::ptr::from_ref(peer.qp_entry(qp_index(qpn))?);
        Some(CachedDestination {
            qpn,
            peer,
            remote,
            receiver: None,
        })
    }

    fn remote(&self) -> &QpEntry {
        // SAFETY: it points into the mapping that `peer` keeps, to a struct of atomics.
        unsafe { &*self.remote }
    }

    fn phase(&self) -> Phase {
        Phase(self.remote().phase.load(Ordering::Acquire))
    }

    /// Whether its queue pair is `qpn`, in the same phase as when it was attached.
    #[inline]
    fn is_for(&self, qpn: Qpn) -> bool {
        let receiver = self.receiver.as_ref();
        self.qpn == qpn
            && !self.peer.is_dead()
            && receiver.is_some_and(|receiver| receiver.phase == self.phase())
    }

    /// Whether the port is open. If not, its slot may have another owner.
    fn is_open(&self) -> bool {
        self.peer.is_usable()
    }

    #[inline]
    fn send(&mut self, own: &Sender<'_>, mut datagram: OutgoingDatagram<'_>) {
        if self.remote().qkey.load(Ordering::Relaxed) != datagram.qkey {
            return;
        }
        if let Some((position, receiver)) = self.put(own, &mut datagram) {
            receiver.next = position + 1;
            // SAFETY: the entry is in the mapping that the peer keeps, and consists of atomics.
            let cq = unsafe { &*receiver.cq };
            let recv_cq = receiver.recv_cq;
            let marked = receiver.has_own_ring.then(|| qp_index(self.qpn));
            notify(&self.peer, (cq, recv_cq), marked, datagram.flags);
        }
    }

    /// Completes the oldest posted receive with the datagram. Returns its position, or `None` if none is posted.
    #[inline]
    fn put(
        &mut self,
        own: &Sender<'_>,
        datagram: &mut OutgoingDatagram<'_>,
    ) -> Option<(u64, &mut CachedReceiver)> {
        let remote = self.remote;
        let receiver = self.receiver.as_mut()?;
        let (ring, phase) = (receiver.ring, receiver.phase);
        // SAFETY: it points into the mapping that `peer` keeps, to a struct of atomics.
        let is_same_generation = || unsafe { &*remote }.phase.load(Ordering::Acquire) == phase.0;
        let mut position = ring.posted_from(receiver.next, is_same_generation)?;
        let cell = ring.claim(position, Holder::new(own.port.slot, own.port.epoch))?;
        let addressee = Addressee::new(qp_index(self.qpn), phase.generation());
        fill(own.port, ring, (cell, addressee), datagram);
        while !ring.publish(position, cell) {
            let Some(next) = ring.posted_from(position, is_same_generation) else {
                ring.free(cell);
                return None;
            };
            position = next;
        }
        Some((position, receiver))
    }

    /// Reads the state of the queue pair's current phase, if it receives.
    #[cold]
    fn attach(&mut self, own: &Sender<'_>) {
        self.receiver = self.receiver_of(self.phase());
        if self.receiver.is_some() {
            // Before this side claims a cell: if it dies, the peer has to reclaim the cell.
            self.peer.announce(own.port.slot, own.port.epoch);
        }
    }

    fn receiver_of(&self, phase: Phase) -> Option<CachedReceiver> {
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
        // SAFETY: the lines are in the peer's mapping (checked by `address`), which `self.peer` keeps for
        // longer than `receiver` lives.
        let ring = unsafe { DatagramRing::from_raw(lines.cast(), slots, CELL_LINES) };
        let receiver = CachedReceiver {
            phase,
            next: ring.first(),
            ring,
            recv_cq,
            cq: self.peer.cq_entry(recv_cq)?,
            has_own_ring: remote.ring_slots.load(Ordering::Relaxed) != 0,
        };
        // If the phase is still the same, everything read belongs to it.
        (self.phase() == phase).then_some(receiver)
    }

    /// Returns offset and number of slots of the queue pair's ring, or of its shared receive queue's ring.
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

/// Copies the datagram into the claimed cell, addressed to one generation of a queue pair.
#[inline]
fn fill(
    port: &Port,
    ring: DatagramRing<'_>,
    (cell, to): (Cell, Addressee),
    datagram: &mut OutgoingDatagram<'_>,
) {
    let length = datagram.source.left;
    debug_assert!(length as usize <= ring.room());
    ring.describe(cell, datagram.message, to);
    datagram.source.copy_to(port, ring.payload(cell), length);
}
