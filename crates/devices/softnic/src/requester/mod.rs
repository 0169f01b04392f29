//! The requester: carries out a queue pair's send requests on the CPU of the thread that posts or polls.
//!
//! An operation runs between `Busy::enter` and `Busy::leave`. Inside it, the peer's phase is read once. If the
//! peer changes the phase later, it waits for the end of the operation before it reuses memory (`quiesce`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use adverb_verbs::{
    AccessFlags, Operation, Psn, QpState, QpType, Qpn, RetryParams, Rkey, RnrTimer, SendFlags,
    SendRequest, Srqn, WcStatus,
};
use rustix::process::geteuid;

use crate::port::Port;
use crate::shm::layout::{
    CqEntry, Duties, Fault, FaultKind, Phase, QpEntry, XrcQueue, qp_index, srq_index,
};
use crate::shm::notify::Urgency;
use crate::shm::peer::{NoAccess, Peer, Reached};
use crate::shm::process::CopyFailure;
use crate::shm::ring::{Arrival, Extra, Piece, RecvRing};

mod atomics;
mod datagrams;
mod one_sided;
mod receives;
mod regions;
mod source;
mod waiting;

pub(crate) use datagrams::{DestinationCache, SendOutcome, Sender};
use receives::{Receives, SharedReceives};
use regions::RegionCache;
pub(crate) use source::Source;
pub(crate) use waiting::WaitingRequest;
use waiting::{rnr_timeout, unreachable_timeout};

/// Number of looks at a receive ring before a request has to wait: about half a microsecond.
const LOOKS: u32 = 32;

/// The outcome of an attempt to carry out a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// It was carried out, or has failed.
    Done(WcStatus),
    /// The peer has no receive posted.
    ReceiverNotReady,
    /// The peer's queue pair does not receive now.
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

/// The connection of an RC, UC or XRC queue pair.
#[derive(Debug)]
pub(crate) struct Connection {
    own: Requester,
    pub(crate) peer: Arc<Peer>,
    remote: *const QpEntry,
    remote_qpn: Qpn,
    /// PSN of the first packet; it must be the one that the peer expects.
    pub(crate) sq_psn: Option<Psn>,
    pub(crate) retry: Option<RetryParams>,
    /// Maximum number of READs and atomics in flight; 0: none are allowed.
    pub(crate) max_rd_atomic: u8,
    attached: Option<Attached>,
    cache: RegionCache,
}

// SAFETY: `remote` points into the mapping that `peer` keeps, and all access is by atomics.
unsafe impl Send for Connection {}

impl Drop for Connection {
    /// UC: stores the position in the peer's receive queue for the queue pair's next connection.
    fn drop(&mut self) {
        if let Some(attached) = self.attached.as_ref()
            && self.own.service == QpType::Uc
            && attached.shared.is_none()
            && !self.own.port.is_inherited()
        {
            let next = &self.remote().from_peer.next;
            next.store(attached.next, Ordering::Relaxed);
        }
    }
}

/// State read from the peer's queue pair, valid while its phase is the same.
#[derive(Debug)]
struct Attached {
    phase: Phase,
    ring: RecvRing<'static>,
    /// Position of the next receive to consume; with a shared receive queue, of the one that was taken.
    next: u64,
    /// The shared receive queue, if the peer has one; otherwise receives are consumed from `ring` in order.
    shared: Option<SharedReceives>,
    recv_cq: u32,
    cq: *const CqEntry,
    pd: u32,
    /// Protection domain of the receives' memory.
    recv_pd: u32,
    /// XRC: the shared receive queue to which the other members belong.
    selected: Option<(Srqn, XrcQueue)>,
}

impl Attached {
    /// Whether a receive is posted. If the queue is shared, another requester may take it first.
    #[inline]
    fn has_receive(&self) -> bool {
        match &self.shared {
            None => self.ring.is_posted(self.next),
            Some(shared) => shared.queue.has_posted(),
        }
    }

    /// Takes the next receive; its position is `next` then, and it has to be completed. Returns false if none
    /// is posted.
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
            // Not the next slot: its owner polls it, and would take the line back at once.
            self.ring.prefetch(self.next + 1);
        }
    }
}

impl Connection {
    /// Makes a connection of `own` to `remote_qpn` of `peer`. `None` if the index exceeds the peer's table.
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

    /// Opens the channel of the peer's completion queue, if it has one and this process may change its user before the first
    /// event: it could not open the channel then.
    pub(crate) fn open_channel(&self) {
        if !geteuid().is_root() {
            return;
        }
        let cq = self.remote().recv_cq.load(Ordering::Relaxed);
        let duties = self.peer.cq_entry(cq).map(Duties::of);
        if let Some(channel) = duties.and_then(Duties::channel) {
            drop(self.peer.open_channel(channel));
        }
    }

    pub(crate) fn remote(&self) -> &QpEntry {
        // SAFETY: it points into the mapping that `peer` keeps, to a struct of atomics.
        unsafe { &*self.remote }
    }

    /// Returns the index of the peer's queue pair in its table.
    pub(crate) fn remote_index(&self) -> u32 {
        qp_index(self.remote_qpn)
    }

    fn timeout(&self, attempt: Attempt) -> Option<Duration> {
        let retry = self.retry?;
        match attempt {
            Attempt::ReceiverNotReady => {
                let code = self.remote().min_rnr_timer.load(Ordering::Relaxed);
                rnr_timeout(retry, RnrTimer::new((code & 31) as u8)?)
            }
            _ => unreachable_timeout(retry),
        }
    }

    /// Carries out `request`, if the peer is ready.
    #[inline]
    pub(crate) fn attempt(&mut self, own: &QpEntry, request: &SendRequest<'_>) -> Attempt {
        own.requester.busy.enter();
        let attempt = self.attempt_inside(request);
        own.requester.busy.leave();
        attempt
    }

    /// The same, outlined to keep the path of connections in RTS small.
    #[inline(never)]
    pub(crate) fn attempt_apart(&mut self, own: &QpEntry, request: &SendRequest<'_>) -> Attempt {
        self.attempt(own, request)
    }

    /// After an attempt found no receive posted: tries a little longer, about the time that a packet would be
    /// on the wire, because it costs more to let the request wait.
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
        if self.own.service == QpType::XrcSend && !self.select(request.remote_srqn) {
            return Attempt::Done(self.fail_responder(WcStatus::RemInvReqErr));
        }
        let Some(source) = Source::check(&self.own.port, self.own.pd, request) else {
            return Attempt::Done(WcStatus::LocProtErr);
        };
        match request.operation {
            Operation::Send => self.send(source, Extra::None, request.flags),
            Operation::SendWithImm(imm) => self.send(source, Extra::Imm(imm.0), request.flags),
            Operation::SendWithInvalidate(rkey) => {
                self.send(source, Extra::Invalidated(rkey.0), request.flags)
            }
            Operation::RdmaWrite(to) => self.write(source, to),
            Operation::RdmaWriteWithImm(to, imm) => {
                self.write_with_imm(source, to, imm.0, request.flags)
            }
            Operation::RdmaRead(from) => self.read(request.sges, from),
            Operation::FetchAdd(at, _) | Operation::CompareSwap(at, _) => self.atomic(request, at),
            _ => Attempt::Done(WcStatus::LocQpOpErr),
        }
    }

    /// Reads the state of the peer's current phase. Returns false if the peer does not receive from this queue pair.
    #[cold]
    fn attach(&mut self, phase: Phase) -> bool {
        let remote = self.remote();
        let is_ours = phase.receives(self.own.service)
            && remote.dest_qpn.load(Ordering::Relaxed) == self.own.qpn.get()
            && remote.dest_epoch.load(Ordering::Relaxed) == self.own.port.epoch;
        // UC: this side has moved the generation to the error state, and its owner may not have done so yet. RC stops itself.
        let fault = Fault(remote.from_peer.fault.load(Ordering::Relaxed));
        if !is_ours
            || self.peer.is_dead()
            || self.peer.has_ended()
            || fault.is_of(phase.generation())
        {
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
            selected: None,
        });
        if phase.state() == Some(QpState::Rtr) {
            self.report_established(phase);
        }
        true
    }

    /// XRC: selects the peer's shared receive queue that a request names: its receives, its completion queue, and the
    /// memory of its protection domain. Returns false if the peer's XRC domain has no such queue.
    #[inline(never)] // keeps the path of RC and UC small
    fn select(&mut self, srqn: Srqn) -> bool {
        let domain = self.remote().pd.load(Ordering::Relaxed);
        let Some(index) = srq_index(self.peer.slot, srqn) else {
            return false;
        };
        let Some(entry) = self.peer.srq_entry(index.into()) else {
            return false;
        };
        let queue = XrcQueue(entry.xrc.load(Ordering::Acquire));
        let selected = Some((srqn, queue));
        if self
            .attached
            .as_ref()
            .is_some_and(|a| a.selected == selected)
        {
            return true;
        }
        let recv_cq = entry.recv_cq.load(Ordering::Relaxed);
        let receives = Receives::shared(&self.peer, index.into(), self.remote_index());
        let (Some(receives), Some(cq)) = (receives, self.peer.cq_entry(recv_cq)) else {
            return false;
        };
        let cq = std::ptr::from_ref(cq);
        if !queue.is_in(domain) {
            return false;
        }
        let attached = self.attached();
        *attached = Attached {
            ring: receives.ring,
            shared: receives.shared,
            recv_cq,
            cq,
            pd: receives.pd,
            recv_pd: receives.pd,
            selected,
            ..*attached
        };
        true
    }

    /// After the peer's death: makes later requests find it unreachable.
    pub(crate) fn detach(&mut self) {
        self.attached = None;
    }

    /// Makes the peer, which may wait for it before it moves to RTS, raise an event (IBTA vol. 1, 11.6.3.3).
    fn report_established(&self, phase: Phase) {
        let word = &self.remote().from_peer.established;
        word.store(phase.generation() + 1, Ordering::Release);
        self.peer.wake();
    }

    /// Asks the peer to wake this side's engine when it posts a receive.
    pub(crate) fn ask_for_wake(&self) {
        let from_peer = &self.remote().from_peer;
        from_peer.waiting.store(1, Ordering::SeqCst);
        let attached = self.attached.as_ref();
        if let Some(shared) = attached.and_then(|attached| attached.shared) {
            shared.queue.ask_for_wake();
        }
    }

    /// Returns the position of the peer's next receive. `None` if the peer does not expect this side's packets.
    fn next_position(&self, phase: Phase) -> Option<u64> {
        let old = self.attached.as_ref();
        let is_same_generation =
            old.is_some_and(|old| old.phase.generation() == phase.generation());
        match old {
            _ if self.own.service.is_reliable() && !self.continues_sequence() => None,
            Some(old) if is_same_generation => Some(old.next),
            // After a RESET the peer's queue pair does not expect the packets of this connection.
            Some(_) if self.own.service.is_reliable() => None,
            // UC accepts any PSN at the beginning of a message (IBTA vol. 1, 9.8.2.2): continue where the queue
            // pair's last connection ended, if the peer was not reset since.
            _ => {
                let first = phase.first_position();
                let left = self.remote().from_peer.next.load(Ordering::Relaxed);
                let is_of_this_generation = left.checked_sub(first).is_some_and(|n| n >> 44 == 0);
                Some(if is_of_this_generation { left } else { first })
            }
        }
    }

    /// RC: whether the peer expects this side's packets: it has this side's first PSN, and no other generation
    /// of this queue pair has sent packets since the peer connected.
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

    fn send(&mut self, source: Source<'_>, extra: Extra, flags: SendFlags) -> Attempt {
        let length = source.left;
        let attached = self.attached();
        if !attached.take_receive() {
            return Attempt::ReceiverNotReady;
        }
        let (ring, position) = (attached.ring, attached.next);
        if length > ring.capacity(position) {
            self.fail_receive(WcStatus::LocLenErr, flags);
            return Attempt::Done(WcStatus::RemInvReqErr);
        }
        if let Err(failure) = self.scatter(source, ring, position) {
            return self.scatter_failed(failure, flags);
        }
        if let Extra::Invalidated(rkey) = extra
            && !self.invalidate(Rkey(rkey))
        {
            return self.scatter_failed(CopyFailure::Remote, flags);
        }
        self.arrive(
            Arrival {
                byte_len: length as u32,
                status: 0,
                extra,
                is_write: false,
            },
            flags,
        );
        Attempt::Done(WcStatus::Success)
    }

    /// Invalidates a key of the peer. Returns false if its queue pair does not have this key.
    #[cold]
    fn invalidate(&mut self, rkey: Rkey) -> bool {
        let pd = self.attached().pd;
        let entry = self.peer.mr_entry(rkey.0);
        entry.invalidate(rkey, (self.remote_qpn, pd))
    }

    /// Ends a SEND whose payload was not copied into the receive, or whose key was not invalidated.
    #[cold]
    fn scatter_failed(&mut self, failure: CopyFailure, flags: SendFlags) -> Attempt {
        match failure {
            CopyFailure::Gone => return Attempt::Unreachable,
            CopyFailure::NoResources => return Attempt::Done(WcStatus::LocQpOpErr),
            _ => {}
        }
        self.fail_receive(WcStatus::LocProtErr, flags);
        Attempt::Done(match failure {
            CopyFailure::Local => WcStatus::LocProtErr,
            CopyFailure::TimedOut => WcStatus::RetryExcErr,
            _ => WcStatus::RemOpErr,
        })
    }

    /// Copies the payload into the receive's scatter elements. Fails if one of them must not be written.
    #[inline]
    fn scatter(
        &mut self,
        mut source: Source<'_>,
        ring: RecvRing<'_>,
        position: u64,
    ) -> Result<(), CopyFailure> {
        for piece in ring.pieces(position).filter(|piece| piece.length != 0) {
            if source.left == 0 {
                break;
            }
            let target = self.receive_piece(piece).map_err(|e| match e {
                NoAccess::Refused => CopyFailure::Remote,
                NoAccess::NoResources => CopyFailure::NoResources,
            })?;
            let length = u64::from(piece.length).min(source.left);
            self.put(&mut source, target, length)?;
        }
        Ok(())
    }

    #[inline]
    fn receive_piece(&mut self, piece: Piece) -> Result<Reached, NoAccess> {
        let pd = self.attached().recv_pd;
        let range = (piece.addr, u64::from(piece.length));
        self.cache
            .find(&self.peer, piece.lkey, pd, AccessFlags::LOCAL_WRITE, range)
    }

    /// Completes the peer's current receive and notifies its completion queue.
    #[inline]
    fn arrive(&mut self, arrival: Arrival, flags: SendFlags) {
        let attached = self.attached();
        attached.complete(arrival);
        // SAFETY: the entry is in the mapping that `self.peer` keeps, and consists of atomics.
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

    /// Handles a request that the responder refuses: an RC or XRC queue pair fails, UC drops the message silently
    /// (IBTA vol. 1, 9.9.3, class D).
    #[cold]
    fn refuse(&mut self, status: WcStatus) -> WcStatus {
        match self.own.service.is_reliable() {
            true => self.fail_responder(status),
            false => status,
        }
    }

    /// Moves the responder's queue pair to the error state, as if it had sent a fatal NAK, and makes its owner raise an
    /// event (IBTA vol. 1, 9.9.3, class C). The requester reports `status`.
    #[cold]
    fn fail_responder(&mut self, status: WcStatus) -> WcStatus {
        self.report_fault(match status {
            WcStatus::RemAccessErr => FaultKind::Access,
            _ => FaultKind::Request,
        });
        status
    }

    /// Completes the peer's current receive with an error, and moves its queue pair to the error state (class B). The
    /// fault comes first, so that a program that has polled the completion finds this state.
    #[cold]
    fn fail_receive(&mut self, status: WcStatus, flags: SendFlags) {
        self.report_fault(FaultKind::Receive);
        self.arrive(Arrival::failed(status), flags);
        // The owner may take a while to change the phase. The next message of UC has to attach again, which is refused.
        self.attached().phase = Phase::NONE;
    }

    fn report_fault(&mut self, kind: FaultKind) {
        let fault = Fault::new(self.attached().phase.generation(), kind);
        let word = &self.remote().from_peer.fault;
        word.store(fault.0, Ordering::Release);
        self.peer.wake();
    }
}

/// After a completion was added to a queue (given by entry and index) of `peer`: marks its queue pair (given by
/// its index if it has its own receives), and raises an event if the queue is armed.
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
        && peer.raise(channel, index).is_err()
    {
        // The peer is closing the channel, or this process has no descriptor left to open it.
        cq.arming.armed.owe();
        peer.wake();
    }
}
