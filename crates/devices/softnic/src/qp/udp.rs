//! Queue pairs that are connected over UDP.
//!
//! Completions of send requests are produced under the driver's lock, but in the error state and in SQE under
//! the queue pair's `send` lock.

use std::sync::atomic::Ordering;

use adverb_transport::{ReceiveQueue, ResponderFault};
use adverb_verbs::{
    AccessFlags, AsyncEvent, PostErrorCause, QpState, QpType, Qpn, SendRequest, Srqn, WcStatus,
};

use super::{QpInner, SendQueue};
use crate::shm::datagram_ring::{Addressee, GRH_LEN, Message};
use crate::shm::notify::Urgency;
use crate::shm::ring::{Arrival, RecvRing};
use crate::shm::send_ring::Sent;
use crate::srq::{self, OwnReceives};
use crate::udp::{Endpoint, Udp};

impl Endpoint for QpInner {
    fn qpn(&self) -> Qpn {
        self.qpn
    }

    fn service(&self) -> QpType {
        self.service
    }

    fn domain(&self) -> u32 {
        self.pd
    }

    fn send_depth(&self) -> usize {
        self.caps.max_send_wr as usize
    }

    fn peer_access(&self) -> AccessFlags {
        AccessFlags::from_bits_retain(self.entry().access.load(Ordering::Relaxed))
    }

    fn receive_domain(&self) -> u32 {
        self.srq.as_ref().map_or(self.pd, |srq| srq.domain())
    }

    fn shared_receives(&self) -> Option<ReceiveQueue> {
        if let Some(target) = &self.xrc {
            return Some(ReceiveQueue::shared(target.receives(self.index)));
        }
        let srq = self.srq.clone()?;
        Some(ReceiveQueue::shared(OwnReceives::new(srq, self.index)))
    }

    fn domain_of_queue(&self, srqn: Srqn) -> Option<u32> {
        let srq = self.xrc.as_ref()?.domain.queue(srqn)?;
        Some(srq.domain())
    }

    fn receive_ring(&self) -> RecvRing<'static> {
        self.recv_queue.ring
    }

    fn queue_key(&self) -> u32 {
        self.entry().qkey.load(Ordering::Relaxed)
    }

    fn put_datagram(
        &self,
        from: u64,
        message: Message,
        parts: (&[u8; GRH_LEN], &[u8]),
        urgency: Urgency,
    ) -> Option<u64> {
        let addressee = Addressee::new(self.index, self.generation.load(Ordering::Relaxed));
        let position = match &self.srq {
            Some(srq) => srq.put_datagram(from, (message, addressee), parts)?,
            None => {
                let datagrams = self.recv_queue.datagrams.as_ref()?;
                datagrams.mailbox.put(from, (message, addressee), parts)?
            }
        };
        self.arrived(urgency);
        Some(position)
    }

    fn first_receive(&self) -> u64 {
        self.recv.lock().first
    }

    fn push_sent(&self, sent: Sent) {
        self.sent.push(sent);
        self.send_cq
            .added(Some(self.index), Urgency::of(sent.status));
    }

    fn complete_receive(&self, position: u64, arrival: Arrival, urgency: Urgency) {
        if let Some(target) = &self.xrc {
            if let Some(srq) = target.completes() {
                srq.requests.ring.complete(position, arrival);
                srq.xrc_cq().inspect(|cq| cq.added(urgency));
            }
            return;
        }
        match &self.srq {
            None => self.recv_queue.ring.complete(position, arrival),
            Some(srq) => srq.requests.ring.complete(position, arrival),
        }
        self.arrived(urgency);
    }

    fn report_established(&self) {
        if self.state() == QpState::Rtr {
            self.port
                .report(AsyncEvent::CommunicationEstablished(self.qpn));
        }
    }

    fn report_fault(&self, fault: ResponderFault) {
        self.port.report(match fault {
            ResponderFault::Access => AsyncEvent::QpAccessError(self.qpn),
            ResponderFault::Request => AsyncEvent::QpRequestError(self.qpn),
        });
    }

    fn end_in_error(&self) {
        if matches!(self.state(), QpState::Reset | QpState::Err) {
            return;
        }
        let recv = self.recv.lock();
        self.set_state(QpState::Err);
        self.flush_receives(&recv, srq::PeerActivity::Idle);
    }

    fn stop_sending(&self) {
        if matches!(self.state(), QpState::Rts | QpState::Sqd) {
            self.set_state(QpState::Sqe);
        }
    }
}

impl QpInner {
    /// Notifies the completion queue after the UDP port has completed a receive.
    fn arrived(&self, urgency: Urgency) {
        let has_own_ring = self.srq.is_none();
        self.recv_cq
            .added(has_own_ring.then_some(self.index), urgency);
    }

    // --- what the queue pair asks of the driver

    pub(super) fn udp(&self) -> &Udp {
        // Invariant: a queue pair is connected over UDP only if there is a UDP port.
        self.port.udp.as_ref().expect("connected over UDP")
    }

    /// Sends what was posted.
    #[cold]
    pub(super) fn doorbell(&self) {
        self.udp().doorbell(&*self.port);
    }

    pub(super) fn disconnect(&self) {
        self.udp().disconnect(&*self.port, self.qpn);
    }

    /// Sends a datagram over UDP. Returns the request's status, or `None` if it has to wait.
    #[cold]
    pub(super) fn send_over_udp(&self, request: &SendRequest<'_>) -> Option<WcStatus> {
        match &self.port.udp {
            Some(udp) => udp.send_datagram(&*self.port, self, request),
            // The address handle belongs to another context.
            None => Some(WcStatus::LocQpOpErr),
        }
    }

    /// Passes an accepted request to the transport.
    #[cold]
    pub(super) fn post_over_udp(&self, send: &mut SendQueue, request: &SendRequest<'_>) {
        self.hand_over(send.posted, request);
    }

    /// Posts and sends a single request in RTS, when no other waits, with the driver locked only once.
    #[cold]
    pub(super) fn post_alone(
        &self,
        send: &mut SendQueue,
        request: &SendRequest<'_>,
    ) -> Result<(), PostErrorCause> {
        self.count_send(send, request)?;
        let sent = (self.udp()).post_and_doorbell(&*self.port, self.qpn, (send.posted, request));
        if let Err(status) = sent {
            self.refuse(send.posted, request, status);
        }
        Ok(())
    }

    fn hand_over(&self, count: u64, request: &SendRequest<'_>) {
        let udp = self.udp();
        if let Err(status) = udp.post(&*self.port, self.qpn, (count, request)) {
            self.refuse(count, request, status);
        }
    }

    /// Ends a request that the transport refused.
    fn refuse(&self, count: u64, request: &SendRequest<'_>, status: WcStatus) {
        if self.state() != QpState::Sqe {
            self.udp().enter_error(&*self.port, self.qpn);
        }
        self.end_send(count, request, status);
    }

    /// Passes requests that waited for RTS to the transport. Returns whether some still wait.
    pub(super) fn drive_over_udp(&self, send: &mut SendQueue) -> bool {
        match self.state() {
            QpState::Rts => {
                self.hand_over_waiting(send);
                self.doorbell();
            }
            QpState::Err | QpState::Sqe => self.flush_waiting(send),
            _ => {}
        }
        !send.waiting.is_empty()
    }

    /// Passes the waiting requests to the transport. One that concerns only keys of this side is carried out when those
    /// before it are complete.
    fn hand_over_waiting(&self, send: &mut SendQueue) {
        while let Some(oldest) = send.waiting.front() {
            let (count, is_local) = (oldest.count, oldest.operation.is_local());
            if is_local && self.has_unfinished_sends(send) {
                return;
            }
            let Some(oldest) = send.waiting.pop_front() else {
                return;
            };
            if !is_local {
                self.hand_over(count, &oldest.request());
            } else if !self.end_local(count, &oldest.request()).is_success() {
                return self.fail_as_requester(send);
            }
        }
    }

    /// Whether an earlier request is in flight. Within shared memory each is complete when it was carried out.
    pub(super) fn has_unfinished_sends(&self, send: &SendQueue) -> bool {
        send.path.is_udp() && self.udp().has_unfinished_sends(self.qpn)
    }

    /// Flushes waiting requests, in ERR or SQE.
    pub(super) fn flush_waiting(&self, send: &mut SendQueue) {
        for waiting in send.waiting.drain(..) {
            self.end_send(waiting.count, &waiting.request(), WcStatus::WrFlushErr);
        }
    }

    /// Moves the queue pair to the error state.
    pub(super) fn fail_over_udp(&self, send: &mut SendQueue) {
        self.udp().enter_error(&*self.port, self.qpn);
        self.flush_waiting(send);
    }
}
