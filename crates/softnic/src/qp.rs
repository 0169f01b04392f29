//! Queue pairs: their life, their queues, and what posting does.
//!
//! Locks, in this order: `control`, `send`, `recv`, the port's list of waiting queue pairs, a
//! completion queue's state. None is shared with another process, and none is held while waiting
//! for one (except in `quiesce`, which waits for a peer's single operation, bounded).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adverb_units::Bytes;
use adverb_verbs::{
    CreateError, ModifyQpError, Operation, PostError, PostErrorCause, QpAttr, QpCaps, QpInit,
    QpState, QpType, Qpn, QueuePair, RecvRequest, SendFlags, SendRequest, WcOpcode, WcStatus,
    qp::check_transition,
};
use spin::mutex::SpinMutex;

use crate::context::{Handle, MAX_INLINE, MAX_MESSAGE, MAX_SGE, MAX_WR, SoftPd};
use crate::cq::{CqInner, RecvQueue, SoftCq};
use crate::layout::{FIRST_QP, MAX_QP, Phase, QP_INDEX_BITS, QpEntry, first_position};
use crate::peer::Peer;
use crate::port::{Port, TableEntry, lock};
use crate::quiesce;
use crate::requester::{Attempt, Connection, Retries, Waiting};
use crate::ring::{Line, Piece, RecvRing};
use crate::send_ring::{SendRing, Sent};

/// How long a peer may take to finish one operation before its queue pair is given up.
const QUIESCE_PATIENCE: Duration = Duration::from_secs(2);

/// A queue pair of the user-space NIC. Dropping it destroys it.
#[derive(Debug)]
pub struct SoftQp {
    inner: Arc<QpInner>,
    _handle: Arc<Handle>,
}

#[derive(Debug)]
pub(crate) struct QpInner {
    port: Arc<Port>,
    index: u32,
    qpn: Qpn,
    pd: u32,
    caps: QpCaps,
    state: AtomicU32,
    generation: AtomicU64,
    send_cq: Arc<CqInner>,
    recv_cq: Arc<CqInner>,
    sent: Arc<SendRing>,
    recv_queue: Arc<RecvQueue>,
    ring: Range<u64>,
    control: Mutex<()>,
    send: SpinMutex<SendQueue>,
    recv: SpinMutex<RecvProducer>,
}

#[derive(Debug, Default)]
struct SendQueue {
    /// Requests accepted in this life.
    posted: u64,
    waiting: VecDeque<Waiting>,
    connection: Option<Connection>,
}

#[derive(Debug, Default)]
struct RecvProducer {
    /// Position of the first receive of this life.
    first: u64,
    /// Receives accepted in this life.
    posted: u64,
}

impl SoftQp {
    pub(crate) fn new(pd: &SoftPd, init: &QpInit<'_, SoftCq>) -> Result<Self, CreateError> {
        let port = &pd.handle.port;
        check_caps(&init.caps)?;
        for (what, cq) in [
            ("the send completion queue", init.send_cq),
            ("the receive completion queue", init.recv_cq),
        ] {
            if !Arc::ptr_eq(&cq.inner.port, port) {
                return Err(CreateError::Foreign { what });
            }
        }
        let exhausted = CreateError::Exhausted {
            what: "queue pairs",
            limit: (MAX_QP - FIRST_QP).into(),
        };
        let index = lock(&port.qp_indices).take().ok_or(exhausted)?;
        let made = Self::build(pd, init, index);
        if made.is_err() {
            lock(&port.qp_indices).give(index);
        }
        made
    }

    fn build(pd: &SoftPd, init: &QpInit<'_, SoftCq>, index: u32) -> Result<Self, CreateError> {
        let port = &pd.handle.port;
        port.reserve_entry(TableEntry::Qp(index))
            .map_err(|e| port.no_room("make a queue pair", e))?;
        let slots = init.caps.max_recv_wr.max(1).next_power_of_two();
        let stride = RecvRing::lines_per_slot(init.caps.max_recv_sge as usize);
        let ring = port.take_ring(u64::from(slots) * stride as u64 * size_of::<Line>() as u64)?;
        let qpn =
            Qpn::new(port.slot << QP_INDEX_BITS | index).expect("slot and index have 24 bits");
        // SAFETY: the room was just taken from the port's own mapping, which `port` keeps for as
        // long as the queue pair lives.
        let view =
            unsafe { RecvRing::from_raw(port.address(ring.start).cast(), slots as usize, stride) };
        view.clear();
        let sent = Arc::new(SendRing::new(qpn, init.caps.max_send_wr));
        init.send_cq.inner.attach_sender(sent.clone());
        let inner = QpInner {
            port: port.clone(),
            index,
            qpn,
            pd: pd.number,
            caps: init.caps,
            state: AtomicU32::new(QpState::Reset as u32),
            generation: AtomicU64::new(0),
            send_cq: init.send_cq.inner.clone(),
            recv_cq: init.recv_cq.inner.clone(),
            sent,
            recv_queue: Arc::new(RecvQueue {
                ring: view,
                wr_ids: (0..slots).map(|_| AtomicU64::new(0)).collect(),
                taken: AtomicU64::new(0),
                qpn,
            }),
            ring,
            control: Mutex::new(()),
            send: SpinMutex::default(),
            recv: SpinMutex::default(),
        };
        let entry = inner.entry();
        entry.ring_offset.store(inner.ring.start, Ordering::Relaxed);
        entry.ring_slots.store(slots, Ordering::Relaxed);
        entry.ring_stride.store(stride as u32, Ordering::Relaxed);
        entry.recv_cq.store(inner.recv_cq.index, Ordering::Relaxed);
        entry.pd.store(pd.number, Ordering::Relaxed);
        inner.begin_life();
        let inner = Arc::new(inner);
        lock(&port.qps).insert(index, inner.clone());
        Ok(SoftQp {
            inner,
            _handle: pd.handle.clone(),
        })
    }
}

fn check_caps(caps: &QpCaps) -> Result<(), CreateError> {
    let ranges = [
        ("max_send_wr", caps.max_send_wr, MAX_WR),
        ("max_recv_wr", caps.max_recv_wr, MAX_WR),
        ("max_send_sge", caps.max_send_sge, MAX_SGE),
        ("max_recv_sge", caps.max_recv_sge, MAX_SGE),
        ("max_inline_data", caps.max_inline_data, MAX_INLINE),
    ];
    match ranges.into_iter().find(|(_, value, max)| value > max) {
        Some((what, value, max)) => Err(CreateError::OutOfRange {
            what,
            value: value.into(),
            min: 0,
            max: max.into(),
        }),
        None => Ok(()),
    }
}

impl Drop for SoftQp {
    fn drop(&mut self) {
        let qp = &self.inner;
        let _control = lock(&qp.control);
        qp.set_state(QpState::Reset);
        let released = qp.quiesce();
        qp.leave_queues();
        qp.send_cq.detach_sender(qp.qpn);
        lock(&qp.port.qps).remove(&qp.index);
        // A peer that still holds the ring keeps it: neither ring nor index is given again.
        if released {
            qp.port.give_ring(qp.ring.clone());
            lock(&qp.port.qp_indices).give(qp.index);
        }
    }
}

impl QpInner {
    fn entry(&self) -> &QpEntry {
        self.port.qp_entry(self.index)
    }

    fn state(&self) -> QpState {
        QpState::from_code(self.state.load(Ordering::Acquire)).unwrap_or(QpState::Err)
    }

    fn set_state(&self, state: QpState) {
        let generation = self.generation.load(Ordering::Relaxed);
        self.state.store(state as u32, Ordering::Release);
        self.entry()
            .phase
            .store(Phase::new(generation, state).0, Ordering::Release);
    }

    /// Starts a new life in RESET: peers of earlier ones find another generation.
    fn begin_life(&self) {
        let generation = Phase(self.entry().phase.load(Ordering::Relaxed)).generation() + 1;
        self.generation.store(generation, Ordering::Relaxed);
        self.set_state(QpState::Reset);
        let from_peer = &self.entry().from_peer;
        from_peer.waiting.store(0, Ordering::Relaxed);
        from_peer.requester_generation.store(0, Ordering::Relaxed);
        self.recv_queue.taken.store(0, Ordering::Relaxed);
        let first = first_position(generation);
        *self.recv.lock() = RecvProducer { first, posted: 0 };
        self.recv_cq.attach_receiver(self.recv_queue.clone(), first);
    }

    /// Drops everything that is queued, without completions.
    fn leave_queues(self: &Arc<Self>) {
        self.port.pending.lock().retain(|qp| !Arc::ptr_eq(qp, self));
        *self.send.lock() = SendQueue::default();
        self.send_cq.purge(self.qpn);
        self.recv_cq.purge(self.qpn);
    }

    /// Waits until the peer is not in the middle of an operation on this queue pair. The phase
    /// was taken back before. False where it does not end.
    fn quiesce(&self) -> bool {
        let peer = self
            .send
            .lock()
            .connection
            .as_ref()
            .map(|c| (c.peer.clone(), c.remote_index()));
        let Some((peer, remote)) = peer else {
            return true;
        };
        let Some(remote) = peer.qp_entry(remote) else {
            return true;
        };
        quiesce::barrier();
        remote
            .requester
            .busy
            .wait_idle(QUIESCE_PATIENCE, || peer.is_dead())
    }

    pub(crate) fn has_fault(&self) -> bool {
        let fault = self.entry().from_peer.fault.load(Ordering::Acquire);
        fault == self.generation.load(Ordering::Relaxed) + 1 && self.state() != QpState::Err
    }

    pub(crate) fn is_connected_to(&self, peer: &Arc<Peer>) -> bool {
        self.send
            .lock()
            .connection
            .as_ref()
            .is_some_and(|c| Arc::ptr_eq(&c.peer, peer))
    }

    /// The peer found this side's memory or requests at fault.
    pub(crate) fn fail_as_responder(&self) {
        let mut send = self.send.lock();
        self.fail(&mut send);
    }

    /// The peer is dead: what waits for it has exceeded its retries; the rest is flushed.
    pub(crate) fn fail_for_dead_peer(&self) {
        let mut send = self.send.lock();
        if let Some(oldest) = send.waiting.pop_front() {
            self.complete_send(oldest.count, &oldest.request(), WcStatus::RetryExcErr);
        }
        self.fail(&mut send);
        drop(send);
        self.recv_cq.raise_anyway();
    }

    /// To the error state: flushes both queues. Does nothing in RESET and ERR.
    fn fail(&self, send: &mut SendQueue) {
        if matches!(self.state(), QpState::Reset | QpState::Err) {
            return;
        }
        // Receives posted meanwhile wait at the lock: they find the error state and are flushed
        // one by one, behind those that were posted before.
        let recv = self.recv.lock();
        self.set_state(QpState::Err);
        for waiting in send.waiting.drain(..) {
            self.complete_send(waiting.count, &waiting.request(), WcStatus::WrFlushErr);
        }
        // A peer that is stopped in the middle of an operation may still complete one receive
        // after it was flushed; the ring is not used again before it has let go (`reset`).
        if let Some(connection) = &send.connection
            && let Some(remote) = connection.peer.qp_entry(connection.remote_index())
        {
            quiesce::barrier();
            remote
                .requester
                .busy
                .wait_idle(QUIESCE_PATIENCE, || connection.peer.is_dead());
        }
        self.recv_cq
            .flush_receives(&self.recv_queue, recv.first + recv.posted);
    }

    fn reset(self: &Arc<Self>) -> Result<(), ModifyQpError> {
        self.set_state(QpState::Reset);
        if !self.quiesce() {
            let peer = self
                .send
                .lock()
                .connection
                .as_ref()
                .map(|c| c.peer.pid.as_raw_nonzero().get());
            let peer = peer.unwrap_or_default();
            let reason =
                format!("process {peer} stopped in the middle of an operation on it; end it");
            return Err(ModifyQpError::Busy { reason });
        }
        self.leave_queues();
        self.begin_life();
        Ok(())
    }

    fn apply(self: &Arc<Self>, to: QpState, attr: &QpAttr) -> Result<(), ModifyQpError> {
        let entry = self.entry();
        if let Some(access) = attr.access {
            entry.access.store(access.bits(), Ordering::Relaxed);
        }
        if let Some(timer) = attr.min_rnr_timer {
            entry
                .min_rnr_timer
                .store(timer.code().into(), Ordering::Relaxed);
        }
        let mut send = self.send.lock();
        match to {
            QpState::Rtr if attr.dest_qpn.is_some() => self.connect(&mut send, attr)?,
            _ => {
                if let Some(connection) = send.connection.as_mut() {
                    connection.sq_psn = attr.sq_psn.or(connection.sq_psn);
                    connection.retries = Retries::merged(connection.retries, attr);
                }
            }
        }
        // The engine may have found the peer dead meanwhile.
        if self.state() != QpState::Err {
            self.set_state(to);
        }
        Ok(())
    }

    fn connect(self: &Arc<Self>, send: &mut SendQueue, attr: &QpAttr) -> Result<(), ModifyQpError> {
        // Both are required by the transition table.
        let (Some(dest), Some(address)) = (attr.dest_qpn, attr.address) else {
            return Ok(());
        };
        let unreachable = |reason| ModifyQpError::Unreachable {
            peer: format!("{} QP {dest}", address.dgid),
            reason,
        };
        if address.dgid != self.port.gid {
            let reason = format!(
                "the local port reaches only {}; other hosts need the UDP port, which this version does not have",
                self.port.gid
            );
            return Err(unreachable(reason));
        }
        let peer = self
            .port
            .peer_of(dest)
            .map_err(|e| unreachable(e.to_string()))?;
        let generation = self.generation.load(Ordering::Relaxed);
        let own = (self.qpn, generation, self.pd);
        let connection = Connection::new(&self.port, own, peer, dest)
            .ok_or_else(|| unreachable("there is no such queue pair".into()))?;
        let entry = self.entry();
        entry.dest_qpn.store(dest.get(), Ordering::Relaxed);
        entry
            .dest_epoch
            .store(connection.peer.epoch, Ordering::Relaxed);
        entry.rq_psn.store(
            attr.rq_psn.map_or(0, adverb_verbs::Psn::get),
            Ordering::Relaxed,
        );
        // The engine marks a peer dead before it looks for connections, under this lock, and looks
        // once: who connects after that has to see the mark.
        if connection.peer.is_dead() {
            return Err(unreachable("its process has ended".into()));
        }
        send.connection = Some(connection);
        Ok(())
    }

    /// Before sleeping: the peer is to wake this side's engine when it posts a receive.
    pub(crate) fn ask_for_wake(&self) {
        if let Some(connection) = &self.send.lock().connection {
            connection
                .remote()
                .from_peer
                .waiting
                .store(1, Ordering::SeqCst);
        }
    }

    /// Tries what waits, oldest first. False when nothing waits any more.
    pub(crate) fn drive(&self) -> bool {
        let Some(mut send) = self.send.try_lock() else {
            return true;
        };
        let is_drained = self.state() == QpState::Sqd;
        let SendQueue {
            waiting,
            connection,
            ..
        } = &mut *send;
        let Some(connection) = connection else {
            return false;
        };
        let mut failed = false;
        while let Some(oldest) = waiting.front_mut() {
            if is_drained && !oldest.has_begun {
                return true;
            }
            oldest.has_begun = true;
            let attempt = connection.attempt(self.entry(), &oldest.request());
            let status = match attempt {
                Attempt::Done(status) => status,
                not_yet => match oldest.give_up(not_yet, connection) {
                    Some(status) => status,
                    None => return true,
                },
            };
            self.complete_send(oldest.count, &oldest.request(), status);
            waiting.pop_front();
            if !status.is_success() {
                failed = true;
                break;
            }
        }
        if failed {
            self.fail(&mut send);
        }
        false
    }

    /// Ends a send request: a completion if it was asked for or failed.
    #[inline]
    fn complete_send(&self, count: u64, request: &SendRequest<'_>, status: WcStatus) {
        if status.is_success() && !request.flags.contains(SendFlags::SIGNALED) {
            return;
        }
        self.sent.push(Sent {
            wr_id: request.wr_id.0,
            status,
            opcode: completion_opcode(request.operation),
            byte_len: request.length() as u32,
            count,
        });
        self.send_cq.added(status);
    }

    #[inline]
    fn check_send(&self, posted: u64, request: &SendRequest<'_>) -> Result<(), PostErrorCause> {
        let in_use = posted - self.sent.retired();
        if in_use >= self.caps.max_send_wr.into() {
            return Err(PostErrorCause::QueueFull {
                queue: "send",
                depth: self.caps.max_send_wr,
            });
        }
        let (given, max) = (request.sges.len(), self.caps.max_send_sge);
        if given > max as usize {
            return Err(PostErrorCause::TooManySges { given, max });
        }
        let length = Bytes::new(request.length());
        if request.flags.contains(SendFlags::INLINE) {
            let max = Bytes::new(self.caps.max_inline_data.into());
            if matches!(request.operation, Operation::RdmaRead(_)) {
                return Err(PostErrorCause::InlineRead);
            }
            if length > max {
                return Err(PostErrorCause::InlineTooLong { given: length, max });
            }
        }
        if length > MAX_MESSAGE {
            return Err(PostErrorCause::MessageTooLong {
                given: length,
                max: MAX_MESSAGE,
            });
        }
        Ok(())
    }

    /// Accepts one send request: carries it out now if nothing is before it.
    #[inline]
    fn accept(
        self: &Arc<Self>,
        send: &mut SendQueue,
        request: &SendRequest<'_>,
    ) -> Result<(), PostErrorCause> {
        let state = self.state.load(Ordering::Relaxed);
        if state != QpState::Rts as u32 {
            return self.accept_outside_rts(send, request);
        }
        self.check_send(send.posted, request)?;
        send.posted += 1;
        if send.waiting.is_empty()
            && let Some(connection) = &mut send.connection
        {
            let mut attempt = connection.attempt(self.entry(), request);
            if attempt == Attempt::ReceiverNotReady {
                attempt = connection.attempt_again(self.entry(), request);
            }
            if let Attempt::Done(status) = attempt {
                self.complete_send(send.posted, request, status);
                if !status.is_success() {
                    self.fail(send);
                }
                return Ok(());
            }
        }
        self.put_off(send, request);
        Ok(())
    }

    #[cold]
    fn put_off(self: &Arc<Self>, send: &mut SendQueue, request: &SendRequest<'_>) {
        let is_first = send.waiting.is_empty();
        let mut waiting = Waiting::new(&self.port, request, send.posted);
        // In RTS the first one comes here after an attempt.
        waiting.has_begun = is_first && self.state() == QpState::Rts;
        send.waiting.push_back(waiting);
        if is_first {
            self.port.add_pending(self);
        }
    }

    #[cold]
    fn accept_outside_rts(
        self: &Arc<Self>,
        send: &mut SendQueue,
        request: &SendRequest<'_>,
    ) -> Result<(), PostErrorCause> {
        match self.state() {
            QpState::Err => {
                self.check_send(send.posted, request)?;
                send.posted += 1;
                self.complete_send(send.posted, request, WcStatus::WrFlushErr);
                Ok(())
            }
            QpState::Sqd => {
                self.check_send(send.posted, request)?;
                send.posted += 1;
                self.put_off(send, request);
                Ok(())
            }
            state => Err(PostErrorCause::State {
                state,
                needed: QpState::Rts,
            }),
        }
    }

    #[inline]
    fn accept_receive(
        &self,
        recv: &mut RecvProducer,
        request: &RecvRequest<'_>,
    ) -> Result<(), PostErrorCause> {
        let taken = self.recv_queue.taken.load(Ordering::Acquire);
        if recv.posted - taken >= self.caps.max_recv_wr.into() {
            return Err(PostErrorCause::QueueFull {
                queue: "receive",
                depth: self.caps.max_recv_wr,
            });
        }
        let (given, max) = (request.sges.len(), self.caps.max_recv_sge);
        if given > max as usize {
            return Err(PostErrorCause::TooManySges { given, max });
        }
        let position = recv.first + recv.posted;
        let state = self.state.load(Ordering::Relaxed);
        if state == QpState::Err as u32 {
            recv.posted += 1;
            self.recv_cq
                .push_flushed_receive(&self.recv_queue, request.wr_id);
            return Ok(());
        }
        if state == QpState::Reset as u32 {
            return Err(PostErrorCause::State {
                state: QpState::Reset,
                needed: QpState::Init,
            });
        }
        let slot = (position & (self.recv_queue.wr_ids.len() as u64 - 1)) as usize;
        self.recv_queue.wr_ids[slot].store(request.wr_id.0, Ordering::Relaxed);
        let pieces = request.sges.iter();
        self.recv_queue.ring.post(
            position,
            pieces.map(|sge| Piece {
                addr: sge.addr(),
                length: sge.length(),
                lkey: sge.lkey().0,
            }),
        );
        recv.posted += 1;
        Ok(())
    }

    /// Wakes the peer's engine if it sleeps until a receive is posted.
    #[inline]
    fn wake_waiting_peer(&self) {
        let waiting = &self.entry().from_peer.waiting;
        if waiting.load(Ordering::Relaxed) != 0 {
            waiting.store(0, Ordering::Relaxed);
            if let Some(connection) = &self.send.lock().connection {
                connection.peer.wake();
            }
        }
    }
}

fn completion_opcode(operation: Operation) -> WcOpcode {
    match operation {
        Operation::RdmaWrite(_) | Operation::RdmaWriteWithImm(..) => WcOpcode::RdmaWrite,
        Operation::RdmaRead(_) => WcOpcode::RdmaRead,
        _ => WcOpcode::Send,
    }
}

impl QueuePair for SoftQp {
    fn qpn(&self) -> Qpn {
        self.inner.qpn
    }

    fn caps(&self) -> QpCaps {
        self.inner.caps
    }

    fn state(&self) -> QpState {
        self.inner.state()
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), ModifyQpError> {
        let qp = &self.inner;
        let _control = lock(&qp.control);
        let to = check_transition(QpType::Rc, qp.state(), attr)?;
        check_ranges(attr)?;
        match to {
            QpState::Reset => qp.reset(),
            QpState::Err => {
                let mut send = qp.send.lock();
                match qp.state() {
                    QpState::Reset => qp.set_state(QpState::Err),
                    _ => qp.fail(&mut send),
                }
                Ok(())
            }
            to => qp.apply(to, attr),
        }
    }

    #[inline]
    fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
        let mut send = self.inner.send.lock();
        for (index, request) in requests.iter().enumerate() {
            self.inner
                .accept(&mut send, request)
                .map_err(|cause| PostError { index, cause })?;
        }
        Ok(())
    }

    #[inline]
    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
        let mut recv = self.inner.recv.lock();
        for (index, request) in requests.iter().enumerate() {
            self.inner
                .accept_receive(&mut recv, request)
                .map_err(|cause| PostError { index, cause })?;
        }
        drop(recv);
        self.inner.wake_waiting_peer();
        Ok(())
    }
}

fn check_ranges(attr: &QpAttr) -> Result<(), ModifyQpError> {
    let port = attr.port.map(|p| p.0).or(attr.address.map(|a| a.port.0));
    if let Some(value) = port.filter(|port| *port != 1) {
        return Err(ModifyQpError::AttributeRange {
            attribute: "port",
            value: value.into(),
            max: 1,
        });
    }
    let depths = [
        ("max_rd_atomic", attr.max_rd_atomic),
        ("max_dest_rd_atomic", attr.max_dest_rd_atomic),
    ];
    match depths
        .into_iter()
        .find(|(_, depth)| depth.is_some_and(|d| d > 16))
    {
        Some((attribute, depth)) => Err(ModifyQpError::AttributeRange {
            attribute,
            value: depth.unwrap_or(0).into(),
            max: 16,
        }),
        None => Ok(()),
    }
}
