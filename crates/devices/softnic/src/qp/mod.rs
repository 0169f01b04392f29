//! Queue pairs: states, queues and posting.
//!
//! Locks, in this order: `control`, `send`, `recv`, the port's list of waiting queue pairs, a completion
//! queue's state, the port's windows, the port's regions. None is shared with another process, and none is held while waiting for
//! another process, except in `quiesce`, which waits a limited time for one operation of a peer.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use adverb_verbs::{
    CreateError, Gid, Lid, McastError, ModifyQpError, PostError, PostErrorCause, QpAttr, QpCaps,
    QpInit, QpState, QpType, Qpn, QueuePair, RecvRequest, SendRequest, rules::AttrLimits,
    transition::check_transition,
};
use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::cq::{CqInner, SoftCq};
use crate::datagrams::{Datagrams, Mailbox};
use crate::domain::{Handle, SoftPd};
use crate::idle;
use crate::port::{Port, PortQp as _, TableEntry};
use crate::recv_queue::RecvQueue;
use crate::requester::{Connection, DestinationCache, WaitingRequest};
use crate::shm::layout::{FIRST_QP, MAX_QP, QpEntry, qpn_of};
use crate::shm::null_space::{receives_of, sends_of};
use crate::shm::peer::Peer;
use crate::shm::ring::{Line, RecvRing};
use crate::shm::send_ring::SendRing;
use crate::shm::sync::lock;
use crate::srq::{self, SoftSrq, SrqInner, XrcTarget};
use crate::xrc::SoftXrcd;

mod managed;
mod multicast;
mod post;
mod route;
mod state;
mod udp;
mod unreliable;

pub use route::Route;

/// Maximum number of outstanding READs and atomics (`max_qp_rd_atom`). This device completes each before it begins
/// the next, so the number only determines whether they are allowed.
pub(crate) const MAX_RD_ATOM: u8 = 16;

const ATTR_LIMITS: AttrLimits = AttrLimits {
    ports: 1,
    max_rd_atomic: MAX_RD_ATOM,
    max_dest_rd_atomic: MAX_RD_ATOM,
};

/// A queue pair of the user-space NIC. Dropping the last clone destroys it.
#[derive(Clone, Debug)]
pub struct SoftQp {
    inner: Arc<QpInner>,
    _owner: Arc<Owner>,
    _handle: Arc<Handle>,
}

/// Destroys the queue pair when it is dropped.
#[derive(Debug)]
struct Owner(Arc<QpInner>);

#[derive(Debug)]
pub(crate) struct QpInner {
    port: Arc<Port>,
    index: u32,
    qpn: Qpn,
    pd: u32,
    service: QpType,
    caps: QpCaps,
    state: AtomicU32,
    generation: AtomicU64,
    /// The last generation whose first request from the peer was reported, plus one.
    established: AtomicU64,
    send_cq: Arc<CqInner>,
    recv_cq: Arc<CqInner>,
    sent: Arc<SendRing>,
    recv_queue: Arc<RecvQueue>,
    /// Its shared receive queue, if it has one; `recv_queue` is empty then.
    srq: Option<Arc<SrqInner>>,
    /// XRC receive queue pairs.
    xrc: Option<XrcTarget>,
    ring: Range<u64>,
    control: Mutex<()>,
    /// Its peer within shared memory, by its port and its index there. No other lock is taken while this is locked.
    peer: SpinMutex<Option<(Arc<Peer>, u32)>>,
    send: SpinMutex<SendQueue>,
    recv: SpinMutex<RecvProducer>,
}

#[derive(Debug, Default)]
struct SendQueue {
    /// Number of requests accepted since RESET.
    posted: u64,
    waiting: VecDeque<WaitingRequest>,
    /// The peer died while no request waited: the next one exceeds its retries, as if it had tried.
    lost_peer: bool,
    /// UD: `Udp` if there is a UDP port.
    path: Path,
    /// UD.
    datagram_sends: DatagramSends,
}

/// How a UD queue pair sends messages.
#[derive(Debug, Default)]
struct DatagramSends {
    /// Over shared memory.
    destinations: DestinationCache,
    /// Over UDP: the driver has packets that it has to be told to send.
    needs_doorbell: bool,
}

/// How a connected queue pair reaches its peer.
#[derive(Debug, Default)]
#[expect(
    clippy::large_enum_variant,
    reason = "one a queue pair, and an indirection would be on the data path"
)]
enum Path {
    /// It does not: it is not connected, or (UC) its peer does not exist.
    #[default]
    Unconnected,
    /// Over shared memory.
    SharedMemory(Connection),
    /// Over UDP: the UDP port's driver has the connection.
    Udp,
}

impl Path {
    fn shared_memory(&self) -> Option<&Connection> {
        match self {
            Path::SharedMemory(connection) => Some(connection),
            Path::Unconnected | Path::Udp => None,
        }
    }

    fn is_udp(&self) -> bool {
        matches!(self, Path::Udp)
    }
}

#[derive(Debug, Default)]
struct RecvProducer {
    /// Position of the first receive since RESET.
    first: u64,
    /// Number of receives accepted since RESET.
    posted: u64,
}

impl SoftQp {
    pub(crate) fn new(
        pd: &SoftPd,
        init: &QpInit<'_, SoftCq>,
        srq: Option<&SoftSrq>,
    ) -> Result<Self, CreateError> {
        Self::make(pd, init, (srq, None))
    }

    /// Creates a receive queue pair of an XRC domain.
    pub(crate) fn of_xrcd(xrcd: &SoftXrcd) -> Result<Self, CreateError> {
        let init = QpInit::new(QpType::XrcRecv, &xrcd.cq, QpCaps::default());
        let target = XrcTarget::new(xrcd.inner.clone());
        Self::make(&xrcd.pd, &init, (None, Some(target)))
    }

    fn make(
        pd: &SoftPd,
        init: &QpInit<'_, SoftCq>,
        (srq, xrc): (Option<&SoftSrq>, Option<XrcTarget>),
    ) -> Result<Self, CreateError> {
        let port = &pd.handle.port;
        for (what, cq) in [
            ("the send completion queue", init.send_cq),
            ("the receive completion queue", init.recv_cq),
        ] {
            if !Arc::ptr_eq(&cq.inner.port, port) {
                return Err(CreateError::Foreign { what });
            }
        }
        let srq = srq.map(|srq| &srq.inner);
        if srq.is_some_and(|srq| !Arc::ptr_eq(&srq.port, port)) {
            return Err(CreateError::Foreign {
                what: "the shared receive queue",
            });
        }
        let exhausted = CreateError::Exhausted {
            what: "queue pairs",
            limit: (MAX_QP - FIRST_QP).into(),
        };
        let index = lock(&port.qp_indices).take().ok_or(exhausted)?;
        let made = Self::build(pd, init, (srq.cloned(), xrc), index);
        if made.is_err() {
            lock(&port.qp_indices).give(index);
        }
        made
    }

    fn build(
        pd: &SoftPd,
        init: &QpInit<'_, SoftCq>,
        (srq, xrc): (Option<Arc<SrqInner>>, Option<XrcTarget>),
        index: u32,
    ) -> Result<Self, CreateError> {
        let port = &pd.handle.port;
        port.check_user();
        port.reserve_entry(TableEntry::Qp(index))
            .map_err(|e| port.no_room("make a queue pair", e))?;
        let datagrams = take_datagrams(pd, init, srq.as_deref(), index)?;
        let (ring, lines) = lay_out_ring(port, &init.caps)?;
        let qpn = qpn_of(port.slot, index);
        let sent = Arc::new(SendRing::new(qpn, init.caps.max_send_wr));
        init.send_cq.inner.attach_sender(sent.clone());
        let inner = QpInner {
            port: port.clone(),
            index,
            qpn,
            pd: pd.number,
            service: init.qp_type,
            caps: init.caps,
            state: AtomicU32::new(QpState::Reset as u32),
            generation: AtomicU64::new(0),
            established: AtomicU64::new(0),
            send_cq: init.send_cq.inner.clone(),
            recv_cq: init.recv_cq.inner.clone(),
            sent,
            recv_queue: Arc::new(RecvQueue::new(qpn, ring, datagrams)),
            srq,
            xrc,
            ring: lines,
            control: Mutex::new(()),
            peer: SpinMutex::default(),
            send: SpinMutex::default(),
            recv: SpinMutex::default(),
        };
        inner.announce_receives();
        inner.begin_generation();
        let inner = Arc::new(inner);
        lock(&port.qps).insert(index, inner.clone());
        Ok(SoftQp {
            _owner: Arc::new(Owner(inner.clone())),
            inner,
            _handle: pd.handle.clone(),
        })
    }
}

/// Returns the number of slots of a queue pair's receive ring.
fn receive_slots(caps: &QpCaps) -> usize {
    caps.max_recv_wr.max(1).next_power_of_two() as usize
}

/// Allocates the datagram ring of a UD queue pair, unless it has a shared receive queue.
fn take_datagrams(
    pd: &SoftPd,
    init: &QpInit<'_, SoftCq>,
    srq: Option<&SrqInner>,
    index: u32,
) -> Result<Option<Datagrams>, CreateError> {
    match (init.qp_type, srq) {
        (QpType::Ud, None) => {
            let slots = receive_slots(&init.caps);
            let mailbox = Mailbox::new(&pd.handle.port, pd.number, slots)?;
            Ok(Some(Datagrams::new(index, mailbox)))
        }
        (QpType::Ud, Some(srq)) => {
            srq.open_mailbox()?;
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// Allocates an empty receive ring; returns it with its range in the port file.
fn lay_out_ring(
    port: &Port,
    caps: &QpCaps,
) -> Result<(RecvRing<'static>, Range<u64>), CreateError> {
    let slots = receive_slots(caps);
    let stride = RecvRing::lines_per_slot(caps.max_recv_sge as usize);
    let place = port.take_ring((slots * stride * size_of::<Line>()) as u64)?;
    // SAFETY: the range was just allocated in the port's own mapping, which the queue pair keeps as long as it
    // lives.
    let ring = unsafe { RecvRing::from_raw(port.address(place.start).cast(), slots, stride) };
    ring.clear();
    Ok((ring, place))
}

impl Drop for Owner {
    fn drop(&mut self) {
        let qp = &self.0;
        if qp.port.is_inherited() {
            return;
        }
        let _control = lock(&qp.control);
        qp.set_state(QpState::Reset);
        let released = qp.quiesce();
        if !released && let Some(operation) = qp.connected_peer() {
            qp.port.note_unended(operation);
        }
        qp.leave_groups();
        qp.port.unbind_windows_for(qp.qpn);
        qp.leave_queues(srq::PeerActivity::from_idle(released));
        qp.port.forget(|event| event.qpn() == Some(qp.qpn));
        qp.send_cq.detach_sender(qp.qpn);
        lock(&qp.port.qps).remove(&qp.index);
        // If a peer may still write to the ring, neither the ring nor the index is reused.
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

    /// Writes the location of the receives to the table, for requesters.
    fn announce_receives(&self) {
        let (offset, slots) = match (&self.srq, &self.recv_queue.datagrams) {
            (Some(srq), _) => (srq.index.into(), 0),
            (None, Some(datagrams)) => (datagrams.mailbox.offset(), receive_slots(&self.caps)),
            (None, None) => (self.ring.start, receive_slots(&self.caps)),
        };
        let stride = RecvRing::lines_per_slot(self.caps.max_recv_sge as usize);
        let entry = self.entry();
        entry.ring_offset.store(offset, Ordering::Relaxed);
        entry.ring_slots.store(slots as u32, Ordering::Relaxed);
        entry.ring_stride.store(stride as u32, Ordering::Relaxed);
        entry.recv_cq.store(self.recv_cq.index, Ordering::Relaxed);
        entry.pd.store(self.pd, Ordering::Relaxed);
    }

    fn state(&self) -> QpState {
        QpState::from_code(self.state.load(Ordering::Acquire)).unwrap_or(QpState::Err)
    }
}

impl SoftQp {
    /// Whether it is a receive queue pair of an XRC domain.
    pub fn is_of(&self, xrcd: &SoftXrcd) -> bool {
        let target = self.inner.xrc.as_ref();
        target.is_some_and(|target| Arc::ptr_eq(&target.domain, &xrcd.inner))
    }

    /// Whether it is in SQD, and the request that had begun before is not complete (`sq_draining`).
    pub fn is_draining(&self) -> bool {
        let qp = &*self.inner;
        let send = qp.send.lock();
        if qp.state() != QpState::Sqd {
            return false;
        }
        if send.path.is_udp() && qp.service != QpType::Ud {
            return qp.udp().is_draining(qp.qpn);
        }
        let oldest = send.waiting.front();
        oldest.is_some_and(|oldest| oldest.has_begun)
    }

    /// Whether it is attached to a multicast group.
    pub fn is_in_group(&self) -> bool {
        self.inner.is_in_group()
    }

    /// Posts all requests, or none if one of them is invalid or the queue has too little room
    /// (`ibv_wr_complete`).
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`].
    #[inline]
    pub fn post_send_all(&self, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
        let send = self.inner.send.lock();
        if requests.len() > 1 {
            self.inner.check_all(&send, requests)?;
        }
        self.post(send, requests)
    }

    #[inline]
    fn post(
        &self,
        send: SpinMutexGuard<'_, SendQueue>,
        requests: &[SendRequest<'_>],
    ) -> Result<(), PostError> {
        let null = &self.inner.port.null_regions;
        if null.exist() {
            let replaced = null.replace_in_sends(requests);
            return self.post_requests(send, &sends_of(requests, &replaced));
        }
        self.post_requests(send, requests)
    }

    #[inline]
    fn post_requests(
        &self,
        mut send: SpinMutexGuard<'_, SendQueue>,
        requests: &[SendRequest<'_>],
    ) -> Result<(), PostError> {
        idle::note_progress();
        if let [request] = requests
            && self.inner.sends_over_udp(&send)
            && !request.operation.is_local()
        {
            let posted = self.inner.post_alone(&mut send, request);
            return posted.map_err(|cause| PostError { index: 0, cause });
        }
        let mut posted = Ok(());
        for (index, request) in requests.iter().enumerate() {
            if let Err(cause) = self.inner.accept(&mut send, request) {
                posted = Err(PostError { index, cause });
                break;
            }
        }
        let needs_doorbell = send.path.is_udp()
            && (self.inner.service != QpType::Ud
                || std::mem::take(&mut send.datagram_sends.needs_doorbell));
        drop(send);
        if needs_doorbell {
            self.inner.doorbell();
        }
        posted
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
        // A program may have polled the completion of a failed receive before a thread has moved the state.
        if self.inner.reported_fault().is_some() {
            self.inner.take_reports();
        }
        if let Some(udp) = &self.inner.port.udp {
            udp.end_failed();
        }
        self.inner.state()
    }

    fn modify(&self, attr: &QpAttr) -> Result<(), ModifyQpError> {
        let qp = &self.inner;
        let _control = lock(&qp.control);
        let from = qp.state();
        let to = check_transition(qp.service, from, attr)?;
        ATTR_LIMITS.check(attr)?;
        match to {
            QpState::Reset => qp.reset(from),
            QpState::Err => {
                let mut send = qp.send.lock();
                match qp.state() {
                    QpState::Reset => {
                        qp.set_state(QpState::Err);
                        qp.report_last_wqe();
                    }
                    _ => qp.fail(&mut send),
                }
                Ok(())
            }
            _ => qp.apply(from, attr),
        }
    }

    fn attach_mcast(&self, gid: Gid, _lid: Lid) -> Result<(), McastError> {
        self.inner.attach_mcast(gid)
    }

    fn detach_mcast(&self, gid: Gid, _lid: Lid) -> Result<(), McastError> {
        self.inner.detach_mcast(gid)
    }

    #[inline]
    fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), PostError> {
        self.post(self.inner.send.lock(), requests)
    }

    #[inline]
    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
        if self.inner.srq.is_some() && !requests.is_empty() {
            let cause = PostErrorCause::HasSharedReceiveQueue;
            return Err(PostError { index: 0, cause });
        }
        if !self.inner.service.has_receive_queue() {
            let cause = PostErrorCause::Operation {
                qp_type: self.inner.service,
                operation: "receives",
            };
            return Err(PostError { index: 0, cause });
        }
        let null = &self.inner.port.null_regions;
        if null.exist() {
            let replaced = null.replace_in_receives(requests);
            return self.post_receives(&receives_of(requests, &replaced));
        }
        self.post_receives(requests)
    }
}

impl SoftQp {
    #[inline]
    fn post_receives(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
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
