//! The requester: carries a queue pair's send requests out, on the CPU of whoever posts or polls.
//!
//! An operation runs between `Busy::enter` and `Busy::leave`. Inside it the peer's phase is
//! looked at once; what the peer takes back later it takes back after waiting for the operation's
//! end (`quiesce`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use adverb_verbs::{
    AccessFlags, AckTimeout, Operation, Psn, QpAttr, Qpn, RemoteAddress, RetryCount, RnrTimer,
    SendFlags, SendRequest, Sge, WcStatus, WrId,
};

use crate::copy::place;
use crate::layout::{CqEntry, Phase, QP_INDEX_BITS, QpEntry};
use crate::memory::{LocalRegion, check_local};
use crate::notify::Urgency;
use crate::peer::{Peer, PeerRegion};
use crate::port::{Port, lock};
use crate::ring::{Arrival, Line, Piece, RecvRing};

/// Looks at a receive ring before a request is put off: about half a microsecond.
const LOOKS: u32 = 32;

/// What became of an attempt to carry a request out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Carried out, or refused for good.
    Done(WcStatus),
    /// The peer has no receive posted.
    ReceiverNotReady,
    /// The peer's queue pair does not receive (yet, or any more).
    Unreachable,
}

/// What RTR and RTS set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retries {
    pub(crate) timeout: AckTimeout,
    pub(crate) retry_cnt: RetryCount,
    pub(crate) rnr_retry: RetryCount,
}

impl Retries {
    /// The timers and counters of `attr`, and of `old` where it has none.
    pub(crate) fn merged(old: Option<Self>, attr: &QpAttr) -> Option<Self> {
        Some(Retries {
            timeout: attr.timeout.or(old.map(|old| old.timeout))?,
            retry_cnt: attr.retry_cnt.or(old.map(|old| old.retry_cnt))?,
            rnr_retry: attr.rnr_retry.or(old.map(|old| old.rnr_retry))?,
        })
    }

    /// How long an unreachable peer is tried: timeout × (retries + 1); none for ever.
    fn unreachable_patience(self) -> Option<Duration> {
        let timeout = self.timeout.span()?;
        Some((timeout * u64::from(self.retry_cnt.get() + 1)).into())
    }

    /// How long a receiver that is not ready is tried; none for ever.
    fn rnr_patience(self, timer: RnrTimer) -> Option<Duration> {
        Some((timer.span() * u64::from(self.rnr_retry.as_rnr()?)).into())
    }
}

/// The way to the peer's queue pair.
#[derive(Debug)]
pub(crate) struct Connection {
    port: Arc<Port>,
    pub(crate) peer: Arc<Peer>,
    remote: *const QpEntry,
    remote_qpn: Qpn,
    own_qpn: Qpn,
    own_generation: u64,
    own_pd: u32,
    /// First packet sent: the peer must expect it.
    pub(crate) sq_psn: Option<Psn>,
    pub(crate) retries: Option<Retries>,
    attached: Option<Attached>,
    cache: RegionCache,
}

// SAFETY: `remote` points into the mapping that `peer` keeps; all access is by atomics.
unsafe impl Send for Connection {}

/// What was read of the peer's queue pair, valid while its phase is the same.
#[derive(Debug)]
struct Attached {
    phase: Phase,
    ring: RecvRing<'static>,
    /// Position of the next receive to consume.
    next: u64,
    recv_cq: u32,
    cq: *const CqEntry,
    pd: u32,
}

/// A request as the engine may have to repeat it: with copies of what the caller lent.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) wr_id: WrId,
    pub(crate) flags: SendFlags,
    pub(crate) count: u64,
    pub(crate) operation: Operation,
    /// It was attempted: it goes on in SQD, unlike those behind it.
    pub(crate) has_begun: bool,
    sges: Vec<Sge<'static>>,
    /// Inline payload, which `sges` then points to.
    _inline: Vec<u8>,
    /// Keeps the memory that `sges` points to.
    _regions: Vec<Arc<LocalRegion>>,
    reason: Attempt,
    deadline: Option<Instant>,
}

impl Waiting {
    /// Copies `request`, whose attempt ended in `reason` (none: it waits behind others).
    pub(crate) fn new(port: &Port, request: &SendRequest<'_>, count: u64) -> Self {
        let is_inline = request.flags.contains(SendFlags::INLINE);
        let inline = if is_inline {
            gather_inline(request.sges)
        } else {
            Vec::new()
        };
        let mut sges = Vec::with_capacity(request.sges.len());
        let mut regions = Vec::new();
        if is_inline {
            let addr = inline.as_ptr().expose_provenance() as u64;
            // SAFETY: the vector's heap memory stays where it is while self holds it.
            sges.push(unsafe { Sge::from_raw(addr, inline.len() as u32, request_key(request)) });
        } else {
            let known = lock(&port.regions);
            for sge in request.sges {
                regions.extend(
                    known
                        .get(&(sge.lkey().0 & (crate::layout::MAX_MR - 1)))
                        .cloned(),
                );
                // SAFETY: not used inline, so any value is safe: the key is checked when used.
                sges.push(unsafe { Sge::from_raw(sge.addr(), sge.length(), sge.lkey()) });
            }
        }
        Waiting {
            wr_id: request.wr_id,
            flags: request.flags,
            count,
            operation: request.operation,
            has_begun: false,
            sges,
            _inline: inline,
            _regions: regions,
            reason: Attempt::Done(WcStatus::Success),
            deadline: None,
        }
    }

    pub(crate) fn request(&self) -> SendRequest<'_> {
        SendRequest::new(self.wr_id, self.operation, &self.sges).with_flags(self.flags)
    }

    /// After a failed attempt: the status to give up with, if patience is at its end.
    pub(crate) fn give_up(
        &mut self,
        attempt: Attempt,
        connection: &Connection,
    ) -> Option<WcStatus> {
        if connection.peer.is_dead() {
            return Some(WcStatus::RetryExcErr);
        }
        let now = Instant::now();
        if attempt != self.reason {
            self.reason = attempt;
            self.deadline = connection.patience(attempt).map(|patience| now + patience);
        }
        let status = match attempt {
            Attempt::ReceiverNotReady => WcStatus::RnrRetryExcErr,
            _ => WcStatus::RetryExcErr,
        };
        self.deadline
            .is_some_and(|deadline| now >= deadline)
            .then_some(status)
    }
}

fn request_key(request: &SendRequest<'_>) -> adverb_verbs::Lkey {
    request.sges.first().map(Sge::lkey).unwrap_or_default()
}

fn gather_inline(sges: &[Sge<'_>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(sges.iter().map(|sge| sge.length() as usize).sum());
    for sge in sges {
        let source = std::ptr::with_exposed_provenance::<u8>(sge.addr() as usize);
        // SAFETY: an inline piece is readable while it lives (`Sge::from_raw`, `MemoryRegion::sge`).
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(source, sge.length() as usize)
        });
    }
    bytes
}

impl Connection {
    /// A connection of queue pair `own_qpn` to `remote_qpn` of `peer`; none where that index is
    /// beyond the peer's table.
    pub(crate) fn new(
        port: &Arc<Port>,
        own: (Qpn, u64, u32),
        peer: Arc<Peer>,
        remote_qpn: Qpn,
    ) -> Option<Self> {
        let remote =
            std::ptr::from_ref(peer.qp_entry(remote_qpn.get() & ((1 << QP_INDEX_BITS) - 1))?);
        let (own_qpn, own_generation, own_pd) = own;
        Some(Connection {
            port: port.clone(),
            peer,
            remote,
            remote_qpn,
            own_qpn,
            own_generation,
            own_pd,
            sq_psn: None,
            retries: None,
            attached: None,
            cache: RegionCache::default(),
        })
    }

    pub(crate) fn remote(&self) -> &QpEntry {
        // SAFETY: points into the mapping that `peer` keeps, a struct of atomics.
        unsafe { &*self.remote }
    }

    /// Index of the peer's queue pair in its table.
    pub(crate) fn remote_index(&self) -> u32 {
        self.remote_qpn.get() & ((1 << QP_INDEX_BITS) - 1)
    }

    fn patience(&self, attempt: Attempt) -> Option<Duration> {
        let retries = self.retries?;
        match attempt {
            Attempt::ReceiverNotReady => {
                let code = self.remote().min_rnr_timer.load(Ordering::Relaxed);
                retries.rnr_patience(RnrTimer::new((code & 31) as u8)?)
            }
            _ => retries.unreachable_patience(),
        }
    }

    /// Carries `request` out, if the peer is ready.
    #[inline]
    pub(crate) fn attempt(&mut self, own: &QpEntry, request: &SendRequest<'_>) -> Attempt {
        own.requester.busy.enter();
        let attempt = self.attempt_inside(request);
        own.requester.busy.leave();
        attempt
    }

    /// After a first attempt found no receive posted: looks a little longer, as the time on the
    /// wire would give the receiver, before the request is put off (which costs more than this).
    #[cold]
    pub(crate) fn attempt_again(&mut self, own: &QpEntry, request: &SendRequest<'_>) -> Attempt {
        for _ in 0..LOOKS {
            std::hint::spin_loop();
            if self
                .attached
                .as_ref()
                .is_some_and(|a| a.ring.is_posted(a.next))
            {
                return self.attempt(own, request);
            }
        }
        Attempt::ReceiverNotReady
    }

    #[inline]
    fn attempt_inside(&mut self, request: &SendRequest<'_>) -> Attempt {
        let phase = Phase(self.remote().phase.load(Ordering::Acquire));
        let is_attached = self.attached.as_ref().is_some_and(|a| a.phase == phase);
        if !is_attached && !self.attach(phase) {
            return Attempt::Unreachable;
        }
        let Some(source) = self.source(request) else {
            return Attempt::Done(WcStatus::LocProtErr);
        };
        match request.operation {
            Operation::Send => self.send(source, None, request.flags),
            Operation::SendWithImm(imm) => self.send(source, Some(imm.0), request.flags),
            Operation::RdmaWrite(to) => Attempt::Done(self.write(source, to)),
            Operation::RdmaWriteWithImm(to, imm) => {
                self.write_with_imm(source, to, imm.0, request.flags)
            }
            Operation::RdmaRead(from) => Attempt::Done(self.read(request.sges, from)),
            _ => Attempt::Done(WcStatus::LocQpOpErr),
        }
    }

    /// Reads what belongs to the peer's present phase. False where it does not receive from us.
    #[cold]
    fn attach(&mut self, phase: Phase) -> bool {
        let remote = self.remote();
        let is_ours = phase.receives()
            && remote.dest_qpn.load(Ordering::Relaxed) == self.own_qpn.get()
            && remote.dest_epoch.load(Ordering::Relaxed) == self.port.epoch
            && self
                .sq_psn
                .is_some_and(|psn| remote.rq_psn.load(Ordering::Relaxed) == psn.get());
        if !is_ours || self.peer.is_dead() {
            return false;
        }
        if !self.continues_sequence() {
            return false;
        }
        let next = match &self.attached {
            Some(old) if old.phase.generation() == phase.generation() => old.next,
            // A later life of the peer's queue pair does not expect our present packets.
            Some(_) => return false,
            None => phase.first_position(),
        };
        let slots = remote.ring_slots.load(Ordering::Relaxed);
        let stride = remote.ring_stride.load(Ordering::Relaxed);
        let bytes = u64::from(slots) * u64::from(stride) * size_of::<Line>() as u64;
        let recv_cq = remote.recv_cq.load(Ordering::Relaxed);
        let lines = self
            .peer
            .address(remote.ring_offset.load(Ordering::Relaxed), bytes);
        let (Some(lines), Some(cq)) = (lines, self.peer.cq_entry(recv_cq)) else {
            return false;
        };
        if !slots.is_power_of_two() || stride == 0 {
            return false;
        }
        // SAFETY: the lines lie in the peer's mapping (checked by `address`), which `self.peer`
        // keeps for longer than `attached` lives.
        let ring = unsafe { RecvRing::from_raw(lines.cast(), slots as usize, stride as usize) };
        self.attached = Some(Attached {
            phase,
            ring,
            next,
            recv_cq,
            cq,
            pd: remote.pd.load(Ordering::Relaxed),
        });
        true
    }

    /// Whether the peer expects this life's packets: no other life of this queue pair has sent any
    /// since the peer connected.
    fn continues_sequence(&self) -> bool {
        let (own, sender) = (
            self.own_generation + 1,
            &self.remote().from_peer.requester_generation,
        );
        match sender.load(Ordering::Relaxed) {
            0 => sender.store(own, Ordering::Relaxed),
            generation => return generation == own,
        }
        true
    }

    /// The request's local memory, checked; none where a piece must not be used.
    #[inline]
    fn source<'a>(&self, request: &'a SendRequest<'_>) -> Option<Source<'a>> {
        if !request.flags.contains(SendFlags::INLINE) {
            let need = match request.operation {
                Operation::RdmaRead(_) => AccessFlags::LOCAL_WRITE,
                _ => AccessFlags::empty(),
            };
            for sge in request.sges.iter().filter(|sge| sge.length() != 0) {
                check_local(&self.port, self.own_pd, sge, need)?;
            }
        }
        Some(Source {
            sges: request.sges,
            index: 0,
            offset: 0,
            left: request.length(),
        })
    }

    fn attached(&mut self) -> &mut Attached {
        // Invariant: `attempt_inside` attached before any operation.
        self.attached.as_mut().expect("attached before operating")
    }

    #[inline]
    fn send(&mut self, source: Source<'_>, imm: Option<u32>, flags: SendFlags) -> Attempt {
        let length = source.left;
        let attached = self.attached();
        let (ring, position) = (attached.ring, attached.next);
        if !ring.is_posted(position) {
            return Attempt::ReceiverNotReady;
        }
        if length > ring.capacity(position) {
            self.arrive(
                Arrival {
                    status: WcStatus::LocLenErr.code() as u8,
                    ..Arrival::default()
                },
                flags,
            );
            return Attempt::Done(self.fail_responder(WcStatus::RemInvReqErr));
        }
        if self.scatter(source, ring, position).is_none() {
            self.arrive(
                Arrival {
                    status: WcStatus::LocProtErr.code() as u8,
                    ..Arrival::default()
                },
                flags,
            );
            return Attempt::Done(self.fail_responder(WcStatus::RemOpErr));
        }
        self.arrive(
            Arrival {
                byte_len: length as u32,
                status: 0,
                imm,
                is_write: false,
            },
            flags,
        );
        Attempt::Done(WcStatus::Success)
    }

    /// Copies the payload into the receive's pieces; none where one must not be written.
    #[inline]
    fn scatter(&mut self, mut source: Source<'_>, ring: RecvRing<'_>, position: u64) -> Option<()> {
        for piece in ring.pieces(position).filter(|piece| piece.length != 0) {
            if source.left == 0 {
                break;
            }
            let target = self.receive_piece(piece)?;
            source.copy_to(target, u64::from(piece.length).min(source.left));
        }
        Some(())
    }

    #[inline]
    fn receive_piece(&mut self, piece: Piece) -> Option<*mut u8> {
        let pd = self.attached().pd;
        let range = (piece.addr, u64::from(piece.length));
        self.cache
            .find(&self.peer, piece.lkey, pd, AccessFlags::LOCAL_WRITE, range)
    }

    /// Completes the peer's current receive and tells it.
    #[inline]
    fn arrive(&mut self, arrival: Arrival, flags: SendFlags) {
        let attached = self.attached();
        attached.ring.complete(attached.next, arrival);
        attached.next += 1;
        attached.ring.prefetch(attached.next);
        // SAFETY: the entry lies in the mapping that `self.peer` keeps, a struct of atomics.
        let cq = unsafe { &*attached.cq };
        let channel = cq.channel.load(Ordering::Relaxed);
        if channel != 0 {
            let is_urgent = flags.contains(SendFlags::SOLICITED) || arrival.status != 0;
            let urgency = if is_urgent {
                Urgency::Solicited
            } else {
                Urgency::Usual
            };
            if cq.arming.armed.must_raise(urgency) {
                let recv_cq = attached.recv_cq;
                // A channel that cannot be written to belongs to a peer that is ending.
                let _ = self.peer.raise(channel - 1, recv_cq);
            }
        }
    }

    #[inline]
    fn write(&mut self, mut source: Source<'_>, to: RemoteAddress) -> WcStatus {
        if source.left == 0 {
            return WcStatus::Success;
        }
        match self.target(to, source.left, AccessFlags::REMOTE_WRITE) {
            Some(target) => {
                source.copy_to(target, source.left);
                WcStatus::Success
            }
            None => self.fail_responder(WcStatus::RemAccessErr),
        }
    }

    fn write_with_imm(
        &mut self,
        source: Source<'_>,
        to: RemoteAddress,
        imm: u32,
        flags: SendFlags,
    ) -> Attempt {
        let length = source.left;
        let attached = self.attached();
        if !attached.ring.is_posted(attached.next) {
            return Attempt::ReceiverNotReady;
        }
        let status = self.write(source, to);
        if status.is_success() {
            let byte_len = length as u32;
            self.arrive(
                Arrival {
                    byte_len,
                    status: 0,
                    imm: Some(imm),
                    is_write: true,
                },
                flags,
            );
        }
        Attempt::Done(status)
    }

    fn read(&mut self, into: &[Sge<'_>], from: RemoteAddress) -> WcStatus {
        let length = into.iter().map(|sge| u64::from(sge.length())).sum();
        if length == 0 {
            return WcStatus::Success;
        }
        let Some(mut source) = self.target(from, length, AccessFlags::REMOTE_READ) else {
            return self.fail_responder(WcStatus::RemAccessErr);
        };
        for sge in into {
            let target = std::ptr::with_exposed_provenance_mut(sge.addr() as usize);
            // SAFETY: `source` checked the target's key and range, `target` the peer's.
            unsafe {
                place(target, source, sge.length() as usize);
                source = source.add(sge.length() as usize);
            }
        }
        WcStatus::Success
    }

    /// `length` bytes of the peer's memory, if its queue pair and region allow `need`.
    #[inline]
    fn target(&mut self, at: RemoteAddress, length: u64, need: AccessFlags) -> Option<*mut u8> {
        // Read each time: the peer may change it in RTS. It shares the phase's cache line.
        let access = self.remote().access.load(Ordering::Relaxed);
        if !AccessFlags::from_bits_retain(access).contains(need) {
            return None;
        }
        let pd = self.attached().pd;
        self.cache
            .find(&self.peer, at.rkey.0, pd, need, (at.addr, length))
    }

    /// The responder's queue pair goes to the error state: it sent a fatal NAK (IBTA vol. 1,
    /// 9.9.3, class B and C). Its owner is told; `status` is what the requester reports.
    #[cold]
    fn fail_responder(&mut self, status: WcStatus) -> WcStatus {
        let generation = self.attached().phase.generation();
        self.remote()
            .from_peer
            .fault
            .store(generation + 1, Ordering::Release);
        self.peer.wake();
        status
    }
}

/// The local side of a SEND or WRITE: checked pieces, and how far they are copied.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    sges: &'a [Sge<'a>],
    index: usize,
    offset: u32,
    left: u64,
}

impl Source<'_> {
    /// Copies the next `length` (at most `left`) bytes to `target`, which the caller checked.
    #[inline]
    fn copy_to(&mut self, mut target: *mut u8, length: u64) {
        let mut wanted = length;
        while wanted > 0 {
            let sge = &self.sges[self.index];
            let count = u64::from(sge.length() - self.offset).min(wanted);
            let from = std::ptr::with_exposed_provenance::<u8>(sge.addr() as usize);
            // SAFETY: the piece was checked by `Connection::source` (or is inline, hence readable);
            // the target has `length` bytes.
            unsafe {
                place(target, from.add(self.offset as usize), count as usize);
                target = target.add(count as usize);
            }
            self.offset += count as u32;
            if self.offset == sge.length() {
                self.index += 1;
                self.offset = 0;
            }
            wanted -= count;
        }
        self.left -= length;
    }
}

const CACHE_SLOTS: usize = 32;

/// The regions of the peer that were used last, by key.
#[derive(Debug, Default)]
struct RegionCache {
    slots: [Option<(u32, Arc<PeerRegion>)>; CACHE_SLOTS],
}

impl RegionCache {
    /// Address of a range of the peer's memory, if `key` names a region of domain `pd` that holds
    /// it and allows `need`.
    #[inline]
    fn find(
        &mut self,
        peer: &Peer,
        key: u32,
        pd: u32,
        need: AccessFlags,
        (addr, length): (u64, u64),
    ) -> Option<*mut u8> {
        let slot = &mut self.slots[key as usize % CACHE_SLOTS];
        if slot.as_ref().is_none_or(|(cached, _)| *cached != key) {
            *slot = Some((key, peer.region(key)?));
        }
        let (_, region) = slot.as_ref()?;
        // Deregistered meanwhile? A key's region never changes while the key is there.
        if peer.mr_entry(key).key.load(Ordering::Acquire) != key {
            *slot = None;
            return None;
        }
        let offset = addr.wrapping_sub(region.addr);
        let fits = offset <= region.length && length <= region.length - offset;
        let allowed =
            region.pd == pd && AccessFlags::from_bits_retain(region.access).contains(need);
        (fits && allowed).then(|| region.mapping.base().wrapping_add(offset as usize))
    }
}
