//! The requester: carries a queue pair's send requests out, on the CPU of whoever posts or polls.
//!
//! An operation runs between `Busy::enter` and `Busy::leave`. Inside it the peer's phase is
//! looked at once; what the peer takes back later it takes back after waiting for the operation's
//! end (`quiesce`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use adverb_verbs::{
    AccessFlags, Operation, Psn, QpType, Qpn, RetryParams, RnrTimer, SendFlags, SendRequest,
    WcStatus,
};

use crate::port::Port;
use crate::shm::layout::{CqEntry, Duties, Phase, QpEntry, qp_index};
use crate::shm::notify::Urgency;
use crate::shm::peer::Peer;
use crate::shm::ring::{Arrival, Piece, RecvRing};

mod atomics;
mod datagrams;
mod one_sided;
mod receives;
mod regions;
mod source;
mod waiting;

pub(crate) use datagrams::{Sender, Sent, Ways};
use receives::{Receives, SharedReceives};
use regions::RegionCache;
pub(crate) use source::Source;
pub(crate) use waiting::Waiting;
use waiting::{rnr_patience, unreachable_patience};

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

/// The queue pair whose requests are carried out.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) port: Arc<Port>,
    pub(crate) service: QpType,
    pub(crate) qpn: Qpn,
    pub(crate) generation: u64,
    pub(crate) pd: u32,
}

/// The way of an RC or UC queue pair to its peer's.
#[derive(Debug)]
pub(crate) struct Connection {
    own: Requester,
    pub(crate) peer: Arc<Peer>,
    remote: *const QpEntry,
    remote_qpn: Qpn,
    /// First packet sent: the peer must expect it.
    pub(crate) sq_psn: Option<Psn>,
    pub(crate) retry: Option<RetryParams>,
    /// READs and atomics that this side may have in flight; 0: none at all.
    pub(crate) max_rd_atomic: u8,
    attached: Option<Attached>,
    cache: RegionCache,
}

// SAFETY: `remote` points into the mapping that `peer` keeps; all access is by atomics.
unsafe impl Send for Connection {}

impl Drop for Connection {
    /// Leaves a UC queue pair's next connection the place in the peer's receive queue.
    fn drop(&mut self) {
        if let Some(attached) = self.attached.as_ref()
            && self.own.service == QpType::Uc
            && attached.shared.is_none()
        {
            let next = &self.remote().from_peer.next;
            next.store(attached.next, Ordering::Relaxed);
        }
    }
}

/// What was read of the peer's queue pair, valid while its phase is the same.
#[derive(Debug)]
struct Attached {
    phase: Phase,
    ring: RecvRing<'static>,
    /// Position of the next receive to consume; with a shared receive queue of the one that was
    /// taken from it.
    next: u64,
    /// Where receives are taken from, if not out of `ring` in turn.
    shared: Option<SharedReceives>,
    recv_cq: u32,
    cq: *const CqEntry,
    pd: u32,
    /// Protection domain of the receives' memory.
    recv_pd: u32,
}

impl Attached {
    /// Whether a receive is there, which another may take first if the queue is shared.
    #[inline]
    fn has_receive(&self) -> bool {
        match &self.shared {
            None => self.ring.is_posted(self.next),
            Some(shared) => shared.queue.has_posted(),
        }
    }

    /// Makes the next receive the one at `next`; it is to be completed then. False where there is
    /// none.
    #[inline]
    fn take_receive(&mut self) -> bool {
        let Some(shared) = &self.shared else {
            return self.ring.is_posted(self.next);
        };
        let taken = shared.take();
        if let Some(taken) = taken {
            self.next = taken;
        }
        taken.is_some()
    }

    /// Completes the receive at `next`.
    #[inline]
    fn complete(&mut self, arrival: Arrival) {
        self.ring.complete(self.next, arrival);
        if self.shared.is_none() {
            self.next += 1;
            self.ring.prefetch(self.next);
        }
    }
}

impl Connection {
    /// A connection of `own` to `remote_qpn` of `peer`; none where that index is beyond the peer's
    /// table.
    pub(crate) fn new(own: Requester, peer: Arc<Peer>, remote_qpn: Qpn) -> Option<Self> {
        let remote = std::ptr::from_ref(peer.qp_entry(qp_index(remote_qpn))?);
        Some(Connection {
            own,
            peer,
            remote,
            remote_qpn,
            sq_psn: None,
            retry: None,
            max_rd_atomic: 0,
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
        qp_index(self.remote_qpn)
    }

    fn patience(&self, attempt: Attempt) -> Option<Duration> {
        let retry = self.retry?;
        match attempt {
            Attempt::ReceiverNotReady => {
                let code = self.remote().min_rnr_timer.load(Ordering::Relaxed);
                rnr_patience(retry, RnrTimer::new((code & 31) as u8)?)
            }
            _ => unreachable_patience(retry),
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

    /// The same off the path of connections in RTS, which is kept small.
    #[inline(never)]
    pub(crate) fn attempt_apart(&mut self, own: &QpEntry, request: &SendRequest<'_>) -> Attempt {
        self.attempt(own, request)
    }

    /// After a first attempt found no receive posted: looks a little longer, as the time on the
    /// wire would give the receiver, before the request is put off (which costs more than this).
    #[cold]
    pub(crate) fn attempt_again(&mut self, own: &QpEntry, request: &SendRequest<'_>) -> Attempt {
        for _ in 0..LOOKS {
            std::hint::spin_loop();
            if self.attached.as_ref().is_some_and(Attached::has_receive) {
                return self.attempt_apart(own, request);
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
        let Some(source) = Source::check(&self.own.port, self.own.pd, request) else {
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
            Operation::FetchAdd(at, _) | Operation::CompareSwap(at, _) => {
                Attempt::Done(self.atomic(request, at))
            }
            _ => Attempt::Done(WcStatus::LocQpOpErr),
        }
    }

    /// Reads what belongs to the peer's present phase. False where it does not receive from us.
    #[cold]
    fn attach(&mut self, phase: Phase) -> bool {
        let remote = self.remote();
        let is_ours = phase.receives(self.own.service)
            && remote.dest_qpn.load(Ordering::Relaxed) == self.own.qpn.get()
            && remote.dest_epoch.load(Ordering::Relaxed) == self.own.port.epoch;
        if !is_ours || self.peer.is_dead() {
            return false;
        }
        let Some(next) = self.next_position(phase) else {
            return false;
        };
        let recv_cq = remote.recv_cq.load(Ordering::Relaxed);
        let receives = Receives::of(&self.peer, remote, self.remote_index());
        let (Some(receives), Some(cq)) = (receives, self.peer.cq_entry(recv_cq)) else {
            return false;
        };
        self.attached = Some(Attached {
            phase,
            ring: receives.ring,
            next,
            shared: receives.shared,
            recv_cq,
            cq,
            pd: remote.pd.load(Ordering::Relaxed),
            recv_pd: receives.pd,
        });
        true
    }

    /// The peer is to wake this side's engine when it posts a receive.
    pub(crate) fn ask_for_wake(&self) {
        let from_peer = &self.remote().from_peer;
        from_peer.waiting.store(1, Ordering::SeqCst);
        let attached = self.attached.as_ref();
        if let Some(shared) = attached.and_then(|attached| attached.shared) {
            shared.queue.ask_for_wake();
        }
    }

    /// Position of the peer's next receive; none where it does not expect our packets.
    fn next_position(&self, phase: Phase) -> Option<u64> {
        let old = self.attached.as_ref();
        let is_same_life = old.is_some_and(|old| old.phase.generation() == phase.generation());
        match old {
            _ if self.own.service == QpType::Rc && !self.continues_sequence() => None,
            Some(old) if is_same_life => Some(old.next),
            // A later life of the peer's queue pair does not expect our present packets.
            Some(_) if self.own.service == QpType::Rc => None,
            // UC takes up any sequence at the begin of a message (IBTA vol. 1, 9.8.2.2): where
            // the last connection of this queue pair ended, if the life was the same.
            _ => {
                let first = phase.first_position();
                let left = self.remote().from_peer.next.load(Ordering::Relaxed);
                let is_of_this_life = left.checked_sub(first).is_some_and(|n| n >> 44 == 0);
                Some(if is_of_this_life { left } else { first })
            }
        }
    }

    /// RC: whether the peer expects this life's packets: it was told our first one, and no other
    /// life of this queue pair has sent any since the peer connected.
    fn continues_sequence(&self) -> bool {
        let rq_psn = self.remote().rq_psn.load(Ordering::Relaxed);
        if self.sq_psn.is_none_or(|psn| psn.get() != rq_psn) {
            return false;
        }
        let (own, sender) = (
            self.own.generation + 1,
            &self.remote().from_peer.requester_generation,
        );
        match sender.load(Ordering::Relaxed) {
            0 => sender.store(own, Ordering::Relaxed),
            generation => return generation == own,
        }
        true
    }

    fn attached(&mut self) -> &mut Attached {
        // Invariant: `attempt_inside` attached before any operation.
        self.attached.as_mut().expect("attached before operating")
    }

    fn send(&mut self, source: Source<'_>, imm: Option<u32>, flags: SendFlags) -> Attempt {
        let length = source.left;
        let attached = self.attached();
        if !attached.take_receive() {
            return Attempt::ReceiverNotReady;
        }
        let (ring, position) = (attached.ring, attached.next);
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
        let pd = self.attached().recv_pd;
        let range = (piece.addr, u64::from(piece.length));
        self.cache
            .find(&self.peer, piece.lkey, pd, AccessFlags::LOCAL_WRITE, range)
    }

    /// Completes the peer's current receive and tells it.
    #[inline]
    fn arrive(&mut self, arrival: Arrival, flags: SendFlags) {
        let attached = self.attached();
        attached.complete(arrival);
        // SAFETY: the entry lies in the mapping that `self.peer` keeps, a struct of atomics.
        let cq = (unsafe { &*attached.cq }, attached.recv_cq);
        let is_error = arrival.status != 0;
        let flags = if is_error {
            SendFlags::SOLICITED
        } else {
            flags
        };
        let has_own_ring = attached.shared.is_none();
        notify(
            &self.peer,
            cq,
            has_own_ring.then(|| self.remote_index()),
            flags,
        );
    }

    /// The responder refuses a request: an RC queue pair fails, UC drops the message without a word
    /// (IBTA vol. 1, 9.9.3, class D).
    #[cold]
    fn refuse(&mut self, status: WcStatus) -> WcStatus {
        match self.own.service {
            QpType::Rc => self.fail_responder(status),
            _ => status,
        }
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

/// After a completion was added to a queue (its entry and index) of `peer`: marks its queue pair (the index
/// of one with receives of its own) and raises the event that it is waited for with.
#[inline]
fn notify(peer: &Peer, cq: (&CqEntry, u32), marked: Option<u32>, flags: SendFlags) {
    let duties = Duties::of(cq.0);
    if duties.any() {
        fulfil(peer, duties, cq, marked, flags);
    }
}

fn fulfil(
    peer: &Peer,
    duties: Duties,
    (cq, index): (&CqEntry, u32),
    marked: Option<u32>,
    flags: SendFlags,
) {
    duties.mark(cq, marked);
    let urgency = if flags.contains(SendFlags::SOLICITED) {
        Urgency::Solicited
    } else {
        Urgency::Usual
    };
    if let Some(channel) = duties.channel()
        && cq.arming.armed.must_raise(urgency)
    {
        // A channel that cannot be written to belongs to a peer that is ending.
        let _ = peer.raise(channel, index);
    }
}
