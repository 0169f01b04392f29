//! The states of a queue pair: what each changes in shared memory, and how a queue pair fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_verbs::{
    AsyncEvent, Gid, LinkLayer, ModifyQpError, PacketMarking, PathMtu, Psn, QpAttr, QpState,
    QpType, Qpn, RetryParams, WcStatus,
};

use super::{Path, QpInner, RecvProducer, SendQueue};
use crate::port::PortQp;
use crate::requester::{Connection, Requester};
use crate::shm::datagram_ring::Addressee;
use crate::shm::layout::{Phase, first_position};
use crate::shm::notify::Urgency;
use crate::shm::peer::PeerError;
use crate::shm::quiesce;
use crate::srq::{self, SrqInner};
use crate::udp::Endpoint;

impl QpInner {
    pub(super) fn set_state(&self, state: QpState) {
        let generation = self.generation.load(Ordering::Relaxed);
        self.state.store(state as u32, Ordering::Release);
        self.entry().phase.store(
            Phase::new(generation, self.service, state).0,
            Ordering::Release,
        );
    }

    /// Starts a new generation in RESET. Peers of an earlier generation notice that it has changed.
    pub(super) fn begin_generation(&self) {
        let generation = Phase(self.entry().phase.load(Ordering::Relaxed)).generation() + 1;
        self.generation.store(generation, Ordering::Relaxed);
        self.set_state(QpState::Reset);
        let from_peer = &self.entry().from_peer;
        from_peer.waiting.store(0, Ordering::Relaxed);
        from_peer.requester_generation.store(0, Ordering::Relaxed);
        self.recv_queue.begin_generation();
        let first = match &self.recv_queue.datagrams {
            Some(datagrams) => datagrams.begin_generation(),
            None => first_position(generation),
        };
        *self.recv.lock() = RecvProducer { first, posted: 0 };
        match &self.srq {
            None if !self.service.has_receive_queue() => {}
            None => self.recv_cq.attach_receiver(self.recv_queue.clone(), first),
            Some(srq) => {
                let addressee = Addressee::new(self.index, generation);
                srq.join(addressee, self.qpn, self.recv_cq.index);
                self.recv_cq.attach_shared(srq);
            }
        }
    }

    /// Discards everything that is queued, without completions.
    pub(super) fn leave_queues(self: &Arc<Self>, peer: srq::PeerActivity) {
        let own: Arc<dyn PortQp> = self.clone();
        let mut pending = self.port.pending.lock();
        pending.retain(|qp| !Arc::ptr_eq(qp, &own));
        drop(pending);
        let left = std::mem::take(&mut *self.send.lock());
        *self.peer.lock() = None;
        if left.path.is_udp() {
            self.disconnect();
        }
        self.send_cq.purge(self.qpn);
        self.recv_cq.purge(self.qpn);
        if let Some(srq) = &self.srq {
            srq.leave(self.index, peer);
            self.recv_cq.detach_shared(srq);
        }
        for srq in self.xrc_queues() {
            srq.leave(self.index, peer);
        }
        if let Some(datagrams) = &self.recv_queue.datagrams {
            let recv = self.recv.lock();
            let taken = self.recv_queue.taken();
            datagrams
                .mailbox
                .discard(recv.first + taken..recv.first + recv.posted);
        }
    }

    /// Waits until the peer is not in the middle of an operation on this queue pair, whose phase was changed before.
    /// Returns false if the operation does not end.
    pub(super) fn quiesce(&self) -> bool {
        let connected = self.connected_peer();
        quiesce::barrier();
        connected.is_none_or(|(peer, index)| peer.wait_idle(index, quiesce::TIMEOUT))
    }

    /// Moves the queue pair to the error state, and flushes both queues. Does nothing in RESET and ERR.
    pub(super) fn fail(&self, send: &mut SendQueue) {
        if matches!(self.state(), QpState::Reset | QpState::Err) {
            return;
        }
        if send.path.is_udp() {
            return self.fail_over_udp(send);
        }
        // A thread that posts a receive now waits for this lock. It then finds the error state and flushes the
        // receive after those that were posted before.
        let recv = self.recv.lock();
        self.set_state(QpState::Err);
        for waiting in send.waiting.drain(..) {
            self.end_send(waiting.count, &waiting.request(), WcStatus::WrFlushErr);
        }
        // A peer that is stopped in the middle of an operation may still complete one receive after it was
        // flushed. The ring is not reused before that operation has ended (`reset`).
        let is_idle = send.path.shared_memory().is_none_or(|connection| {
            quiesce::barrier();
            let peer = &connection.peer;
            peer.wait_idle(connection.remote_index(), quiesce::TIMEOUT)
        });
        self.flush_receives(&recv, srq::PeerActivity::from_idle(is_idle));
    }

    /// Flushes the receives of this queue pair: the receives that it took from a shared receive queue, or its own queue.
    pub(super) fn flush_receives(&self, recv: &RecvProducer, peer: srq::PeerActivity) {
        for srq in self.xrc_queues() {
            if srq.flush(self.index, peer)
                && let Some(cq) = srq.xrc_cq()
            {
                cq.added(Urgency::Solicited);
            }
        }
        let Some(srq) = &self.srq else {
            let end = recv.first + recv.posted;
            return self.recv_cq.flush_receives(&self.recv_queue, end);
        };
        if srq.flush(self.index, peer) {
            self.recv_cq.added(None, Urgency::Solicited);
        }
        self.report_last_wqe();
    }

    /// Returns the shared receive queues of the XRC domain of a receive queue pair.
    pub(super) fn xrc_queues(&self) -> Vec<Arc<SrqInner>> {
        let target = self.xrc.as_ref();
        target.map_or_else(Vec::new, |target| target.domain.queues())
    }

    /// After the queue pair has failed: stops it from taking requests from its shared receive queue.
    pub(super) fn report_last_wqe(&self) {
        if self.srq.is_some() {
            self.port.report(AsyncEvent::LastWqeReached(self.qpn));
        }
    }

    /// Moves the queue pair to RESET. This fails if a peer is stopped in the middle of an operation on it.
    pub(super) fn reset(self: &Arc<Self>, from: QpState) -> Result<(), ModifyQpError> {
        self.set_state(QpState::Reset);
        if !self.quiesce() {
            let send = self.send.lock();
            self.set_state(from);
            let connection = send.path.shared_memory();
            let peer = connection.map_or(0, |c| c.peer.pid.as_raw_nonzero().get());
            let reason =
                format!("process {peer} stopped in the middle of an operation on it; end it");
            return Err(ModifyQpError::Busy { reason });
        }
        self.leave_queues(srq::PeerActivity::Idle);
        self.begin_generation();
        Ok(())
    }

    /// Applies a Modify QP other than to RESET and ERR. On an error nothing is changed.
    pub(super) fn apply(
        self: &Arc<Self>,
        from: QpState,
        attr: &QpAttr,
    ) -> Result<(), ModifyQpError> {
        let mut send = self.send.lock();
        let path = match attr.state {
            Some(QpState::Rtr) => Some(self.path_to(attr)?),
            _ => None,
        };
        let present = path.as_ref().unwrap_or(&send.path);
        let dest_epoch = present.shared_memory().map_or(0, |c| c.peer.epoch);
        let commit = || self.commit(from, attr, dest_epoch);
        if present.is_udp() {
            let endpoint: Arc<dyn Endpoint> = self.clone();
            let modified = (self.udp()).modify(&*self.port, &endpoint, attr, commit);
            modified.map_err(|e| unreachable(attr, e.to_string()))?;
        } else {
            if let Some(path) = &path {
                // Before the peer can see RTR: from then on it may operate on this queue pair, and whoever deregisters
                // memory finds the peers to wait for here. This cannot be refused any more.
                let peer = path.shared_memory();
                *self.peer.lock() = peer.map(|c| (c.peer.clone(), c.remote_index()));
            }
            commit();
        }
        if let Some(path) = path {
            send.path = path;
        }
        if let Path::SharedMemory(connection) = &mut send.path {
            connection.sq_psn = attr.sq_psn.or(connection.sq_psn);
            connection.retry = RetryParams::merged(connection.retry, attr);
            connection.max_rd_atomic = attr.max_rd_atomic.unwrap_or(connection.max_rd_atomic);
        }
        Ok(())
    }

    /// Stores the attributes that peers read, and the state last. Cannot fail.
    fn commit(&self, from: QpState, attr: &QpAttr, dest_epoch: u64) {
        let entry = self.entry();
        let attributes = [
            (&entry.access, attr.access.map(|access| access.bits())),
            (
                &entry.min_rnr_timer,
                attr.min_rnr_timer.map(|timer| timer.code().into()),
            ),
            (
                &entry.max_dest_rd_atomic,
                attr.max_dest_rd_atomic.map(u32::from),
            ),
            (&entry.qkey, attr.qkey),
            (&entry.dest_qpn, attr.dest_qpn.map(Qpn::get)),
            (&entry.rq_psn, attr.rq_psn.map(Psn::get)),
        ];
        for (place, value) in attributes {
            if let Some(value) = value {
                place.store(value, Ordering::Relaxed);
            }
        }
        if attr.dest_qpn.is_some() {
            entry.dest_epoch.store(dest_epoch, Ordering::Relaxed);
        }
        // The queue pair may have failed since `from` was read, because its peer died or a request failed.
        if let Some(to) = attr.state
            && self.state() == from
        {
            self.set_state(to);
        }
    }

    /// Returns the path to the peer of a queue pair that `attr` moves to RTR.
    fn path_to(&self, attr: &QpAttr) -> Result<Path, ModifyQpError> {
        let (Some(dest), Some(address)) = (attr.dest_qpn, attr.address) else {
            // UD; the transition table requires both attributes of RC and UC.
            let has_udp = self.port.udp.is_some();
            return Ok(if has_udp {
                Path::Udp
            } else {
                Path::Unconnected
            });
        };
        if address.dgid != self.port.gid || self.port.uses_udp_for_all() {
            return self.path_over_udp(attr);
        }
        let peer = self.port.peer_of(dest);
        let has_udp = self.port.udp.is_some();
        let peer = match peer {
            // The peer may belong to another user or container: it is reached at the UDP port of its slot.
            Err(e) if has_udp && e.is_unshared() => return self.path_over_udp(attr),
            peer => peer,
        };
        address.check_marking(LinkLayer::SharedMemory, PacketMarking::None)?;
        let peer = match peer {
            Ok(peer) => peer,
            // UC expects no answers, so a missing peer is not an error.
            Err(PeerError::NotThere { .. } | PeerError::Ended { .. })
                if self.service == QpType::Uc =>
            {
                return Ok(Path::Unconnected);
            }
            Err(e) => return Err(unreachable(attr, e.to_string())),
        };
        let absent = match Connection::new(self.as_requester(), peer, dest) {
            // The engine marks a peer as dead and then looks for its connections once, each under the lock of
            // `send`. So a queue pair that connects later sees the mark here.
            Some(connection) if connection.peer.is_dead() && self.service.is_reliable() => {
                "its process has ended"
            }
            Some(connection) => {
                connection.open_channel();
                return Ok(Path::SharedMemory(connection));
            }
            None => "the queue pair does not exist",
        };
        if has_udp {
            // As on a network, the requests fail, not the transition: nobody acknowledges them.
            return self.path_over_udp(attr);
        }
        Err(unreachable(attr, absent.into()))
    }

    /// Returns the path over UDP, if there is a UDP port and it supports the path MTU.
    fn path_over_udp(&self, attr: &QpAttr) -> Result<Path, ModifyQpError> {
        let Some(udp) = &self.port.udp else {
            let here = self.port.gid;
            return Err(unreachable(
                attr,
                format!(
                    "the local port reaches only {here}; other addresses are reached by the UDP port: open the device as soft@ADDR, ADDR an address of this host"
                ),
            ));
        };
        if let Some(address) = &attr.address {
            address.check_marking(LinkLayer::Ethernet, PacketMarking::TrafficClass)?;
        }
        match attr.path_mtu {
            Some(mtu) if mtu > udp.mtu => Err(ModifyQpError::AttributeRange {
                attribute: "path_mtu",
                value: mtu.bytes().get(),
                min: PathMtu::B256.bytes().get(),
                max: udp.mtu.bytes().get(),
            }),
            _ => Ok(Path::Udp),
        }
    }

    fn as_requester(&self) -> Requester {
        Requester {
            port: self.port.clone(),
            service: self.service,
            qpn: self.qpn,
            generation: self.generation.load(Ordering::Relaxed),
            pd: self.pd,
        }
    }
}

/// Returns the error that the peer named by `attr` cannot be reached.
fn unreachable(attr: &QpAttr, reason: String) -> ModifyQpError {
    let gid = attr
        .address
        .map_or_else(Gid::default, |address| address.dgid);
    let qpn = attr.dest_qpn.unwrap_or_default();
    ModifyQpError::Unreachable {
        peer: format!("{gid} QP {qpn}"),
        reason,
    }
}
