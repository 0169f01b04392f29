//! A queue pair's life: its states, what they change in shared memory, and how it fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use adverb_verbs::{ModifyQpError, QpAttr, QpState, WcStatus};

use super::{QpInner, RecvProducer, SendQueue};
use crate::layout::{Phase, first_position};
use crate::peer::Peer;
use crate::quiesce;
use crate::requester::{Connection, Retries};

/// How long a peer may take to finish one operation before its queue pair is given up.
const QUIESCE_PATIENCE: Duration = Duration::from_secs(2);

impl QpInner {
    pub(super) fn set_state(&self, state: QpState) {
        let generation = self.generation.load(Ordering::Relaxed);
        self.state.store(state as u32, Ordering::Release);
        self.entry()
            .phase
            .store(Phase::new(generation, state).0, Ordering::Release);
    }

    /// Starts a new life in RESET: peers of earlier ones find another generation.
    pub(super) fn begin_life(&self) {
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
    pub(super) fn leave_queues(self: &Arc<Self>) {
        self.port.pending.lock().retain(|qp| !Arc::ptr_eq(qp, self));
        *self.send.lock() = SendQueue::default();
        self.send_cq.purge(self.qpn);
        self.recv_cq.purge(self.qpn);
    }

    /// Waits until the peer is not in the middle of an operation on this queue pair. The phase
    /// was taken back before. False where it does not end.
    pub(super) fn quiesce(&self) -> bool {
        quiesce::barrier();
        self.wait_for_peer()
    }

    /// After [`quiesce::barrier`]: waits until the operation that the peer may be in the middle of
    /// has ended. False where it does not end.
    pub(crate) fn wait_for_peer(&self) -> bool {
        let peer = self
            .send
            .lock()
            .connection
            .as_ref()
            .map(|c| (c.peer.clone(), c.remote_index()));
        peer.is_none_or(|(peer, remote)| peer.wait_idle(remote, QUIESCE_PATIENCE))
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
    pub(super) fn fail(&self, send: &mut SendQueue) {
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
        if let Some(connection) = &send.connection {
            quiesce::barrier();
            let peer = &connection.peer;
            peer.wait_idle(connection.remote_index(), QUIESCE_PATIENCE);
        }
        self.recv_cq
            .flush_receives(&self.recv_queue, recv.first + recv.posted);
    }

    pub(super) fn reset(self: &Arc<Self>) -> Result<(), ModifyQpError> {
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

    pub(super) fn apply(self: &Arc<Self>, to: QpState, attr: &QpAttr) -> Result<(), ModifyQpError> {
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

    pub(super) fn connect(
        self: &Arc<Self>,
        send: &mut SendQueue,
        attr: &QpAttr,
    ) -> Result<(), ModifyQpError> {
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
}
