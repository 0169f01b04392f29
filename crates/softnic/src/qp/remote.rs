//! Queue pairs that are connected over UDP: what differs from those whose peer is in shared memory.
//!
//! Completions of sends are produced under the driver's lock while the queue pair is neither in the
//! error state nor in SQE, and under the queue pair's `send` lock in these.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_verbs::{
    AccessFlags, AckTimeout, Gid, ModifyQpError, PostErrorCause, QpAttr, QpState, QpType, Qpn,
    SendRequest, WcStatus,
};

use super::{Path, QpInner, SendQueue};
use crate::datagram_ring::{Addressee, FRONT, Message};
use crate::notify::Urgency;
use crate::ring::{Arrival, RecvRing};
use crate::send_ring::Sent;
use crate::srq::{self, OwnReceives};
use crate::udp::{Beginning, Patience, Peer, Sending, Udp, ip_of, socket_of};

impl QpInner {
    // --- what the driver asks for

    pub(crate) fn qpn(&self) -> Qpn {
        self.qpn
    }

    pub(crate) fn service(&self) -> QpType {
        self.service
    }

    pub(crate) fn domain(&self) -> u32 {
        self.pd
    }

    pub(crate) fn send_depth(&self) -> usize {
        self.caps.max_send_wr as usize
    }

    /// What the peer may do.
    pub(crate) fn peer_access(&self) -> AccessFlags {
        AccessFlags::from_bits_retain(self.entry().access.load(Ordering::Relaxed))
    }

    /// The protection domain of its receives' memory.
    pub(crate) fn receive_domain(&self) -> u32 {
        self.srq.as_ref().map_or(self.pd, |srq| srq.domain())
    }

    /// Its shared receive queue, for this port's own NIC to take from.
    pub(crate) fn shared_receives(&self) -> Option<OwnReceives> {
        let srq = self.srq.clone()?;
        Some(OwnReceives::new(srq, self.index))
    }

    pub(crate) fn receive_ring(&self) -> RecvRing<'static> {
        self.recv_queue.ring
    }

    /// UD: what senders to it have to know.
    pub(crate) fn queue_key(&self) -> u32 {
        self.entry().qkey.load(Ordering::Relaxed)
    }

    /// UD: gives a message to the oldest posted receive, at `from` or later, or to the shared receive
    /// queue; its position. None where no receive is posted. The driver's lock is held.
    pub(crate) fn put_datagram(
        &self,
        from: u64,
        message: Message,
        parts: (&[u8; FRONT], &[u8]),
        urgency: Urgency,
    ) -> Option<u64> {
        let life = Addressee::new(self.index, self.generation.load(Ordering::Relaxed));
        let position = match &self.srq {
            Some(srq) => srq.put_datagram(from, (message, life), parts)?,
            None => {
                let datagrams = self.recv_queue.datagrams.as_ref()?;
                datagrams.mailbox.put(from, (message, life), parts)?
            }
        };
        self.recv_cq.arrived(urgency);
        Some(position)
    }

    /// Position of the first receive of this life.
    pub(crate) fn first_receive(&self) -> u64 {
        self.recv.lock().first
    }

    /// Adds the completion of a send. The driver's lock is held.
    pub(crate) fn push_sent(&self, sent: Sent) {
        self.sent.push(sent);
        self.send_cq.added(sent.status);
    }

    /// Completes the receive at `position`. The driver's lock is held.
    pub(crate) fn complete_receive(&self, position: u64, arrival: Arrival, urgency: Urgency) {
        match &self.srq {
            None => self.recv_queue.ring.complete(position, arrival),
            Some(srq) => srq.requests.ring.complete(position, arrival),
        }
        self.recv_cq.arrived(urgency);
    }

    /// To the error state, after the driver handed on its last completion. Its lock is held.
    pub(crate) fn end_in_error(&self) {
        if matches!(self.state(), QpState::Reset | QpState::Err) {
            return;
        }
        let recv = self.recv.lock();
        self.set_state(QpState::Err);
        self.flush_receives(&recv, srq::Peer::Idle);
    }

    /// To SQE, after the driver handed on its last completion of a send. Its lock is held.
    pub(crate) fn stop_sending(&self) {
        if matches!(self.state(), QpState::Rts | QpState::Sqd) {
            self.set_state(QpState::Sqe);
        }
    }

    // --- what the queue pair asks of the driver

    fn udp(&self) -> &Udp {
        // Invariant: only a port with a UDP port connects remotely.
        self.port.udp.as_ref().expect("connected over UDP")
    }

    /// Sends what was posted.
    #[cold]
    pub(super) fn ring(&self) {
        self.udp().ring(&self.port);
    }

    pub(super) fn disconnect(&self) {
        self.udp().disconnect(&self.port, self.qpn);
    }

    /// Has a UD queue pair get what comes over UDP, if there is a UDP port.
    pub(super) fn attach_remotely(self: &Arc<Self>, send: &mut SendQueue) {
        if let Some(udp) = &self.port.udp {
            udp.attach(&self.port, self);
            send.path = Path::Remote;
            self.port.wake.wake(); // the engine is to watch the socket
        }
    }

    /// Sends a datagram over UDP; how the request ended, or none where it has to wait.
    #[cold]
    pub(super) fn send_afar(&self, request: &SendRequest<'_>) -> Option<WcStatus> {
        match &self.port.udp {
            Some(udp) => udp.send_datagram(&self.port, self, request),
            // A handle of another context's.
            None => Some(WcStatus::LocQpOpErr),
        }
    }

    /// Gives a request that was accepted to the transport.
    #[cold]
    pub(super) fn post_remotely(&self, send: &mut SendQueue, request: &SendRequest<'_>) {
        self.hand_over(send.posted, request);
    }

    /// A list's only request in RTS with nothing before it: given to the transport and sent with one
    /// look at the driver.
    #[cold]
    pub(super) fn post_alone(
        &self,
        send: &mut SendQueue,
        request: &SendRequest<'_>,
    ) -> Result<(), PostErrorCause> {
        self.count_send(send, request)?;
        let sent = (self.udp()).post_and_ring(&self.port, self.qpn, (send.posted, request));
        if let Err(status) = sent {
            self.refuse(send.posted, request, status);
            self.ring();
        }
        Ok(())
    }

    fn hand_over(&self, count: u64, request: &SendRequest<'_>) {
        let udp = self.udp();
        if let Err(status) = udp.post(&self.port, self.qpn, (count, request)) {
            self.refuse(count, request, status);
        }
    }

    /// Ends a request that the transport did not take.
    fn refuse(&self, count: u64, request: &SendRequest<'_>, status: WcStatus) {
        if self.state() != QpState::Sqe {
            self.udp().enter_error(self.qpn);
        }
        self.end_send(count, request, status);
    }

    /// Hands over what waited for RTS. False when nothing waits any more.
    pub(super) fn drive_remote(&self, send: &mut SendQueue) -> bool {
        match self.state() {
            QpState::Rts => {
                for waiting in send.waiting.drain(..) {
                    self.hand_over(waiting.count, &waiting.request());
                }
                self.ring();
            }
            QpState::Err | QpState::Sqe => self.flush_waiting(send),
            _ => {}
        }
        !send.waiting.is_empty()
    }

    /// Ends what waits; in ERR or SQE.
    pub(super) fn flush_waiting(&self, send: &mut SendQueue) {
        for waiting in send.waiting.drain(..) {
            self.end_send(waiting.count, &waiting.request(), WcStatus::WrFlushErr);
        }
    }

    /// To the error state.
    pub(super) fn fail_remotely(&self, send: &mut SendQueue) {
        self.udp().enter_error(self.qpn);
        self.flush_waiting(send);
    }

    /// Connects over UDP.
    pub(super) fn connect_remotely(
        self: &Arc<Self>,
        send: &mut SendQueue,
        attr: &QpAttr,
        (dest, gid): (Qpn, Gid),
    ) -> Result<(), ModifyQpError> {
        let unreachable = |reason| ModifyQpError::Unreachable {
            peer: format!("{gid} QP {dest}"),
            reason,
        };
        let here = self.port.gid;
        let Some(udp) = &self.port.udp else {
            return Err(unreachable(format!(
                "the local port reaches only {here}; other addresses are reached by the UDP port: open the device as soft@ADDR, ADDR an address of this host"
            )));
        };
        let path_mtu = attr.path_mtu.unwrap_or(udp.mtu);
        if path_mtu > udp.mtu {
            return Err(ModifyQpError::AttributeRange {
                attribute: "path_mtu",
                value: path_mtu.bytes().get(),
                max: udp.mtu.bytes().get(),
            });
        }
        let missing = || unreachable("RTR lacks an attribute".to_owned());
        let peer = Peer {
            socket: socket_of(ip_of(gid), dest),
            qpn: dest,
            path_mtu,
            first_psn: attr.rq_psn.ok_or_else(missing)?,
            max_reads: attr.max_dest_rd_atomic.unwrap_or(0),
            rnr_timer: match self.service {
                QpType::Uc => Peer::NO_RNR_TIMER,
                _ => attr.min_rnr_timer.ok_or_else(missing)?,
            },
        };
        // No process of this host may take it for a peer of its own.
        self.listen_to(dest, None, attr);
        udp.connect(&self.port, self, &peer)
            .ok_or_else(|| unreachable(format!("it is not of the same IP version as {here}")))?;
        send.path = Path::Remote;
        self.port.wake.wake(); // the engine is to watch the socket
        Ok(())
    }

    /// Applies what a modify after RTR brings.
    pub(super) fn apply_remotely(
        &self,
        (from, to): (QpState, QpState),
        attr: &QpAttr,
    ) -> Result<(), ModifyQpError> {
        let udp = self.udp();
        if let Some(sending) = sending_of(attr) {
            udp.start_sending(self.qpn, &sending);
        }
        if from == QpState::Sqe {
            udp.resume(self.qpn);
        }
        let patience = Patience {
            timeout: attr.timeout.map(in_software),
            retries: attr.retry_cnt,
            rnr_retries: attr.rnr_retry,
        };
        udp.set_patience(self.qpn, &patience);
        let beginning = match to {
            QpState::Sqd => Beginning::Held,
            _ => Beginning::Allowed,
        };
        udp.set_beginning(self.qpn, beginning);
        if let Some(timer) = attr.min_rnr_timer {
            udp.set_rnr_timer(self.qpn, timer);
        }
        udp.while_still(|| {
            if self.state() == from {
                self.set_state(to);
            }
        });
        // What was held back may go.
        self.ring();
        Ok(())
    }
}

/// How a queue pair sends, if `attr` takes it to RTS for the first time.
fn sending_of(attr: &QpAttr) -> Option<Sending> {
    let unreliable = Sending {
        first_psn: attr.sq_psn?,
        ..Sending::NONE
    };
    let (Some(timeout), Some(retries), Some(rnr_retries)) =
        (attr.timeout, attr.retry_cnt, attr.rnr_retry)
    else {
        return Some(unreliable);
    };
    Some(Sending {
        timeout: in_software(timeout),
        retries,
        rnr_retries,
        max_reads: attr.max_rd_atomic.unwrap_or(0),
        ..unreliable
    })
}

/// Four times the timeout, which is what may pass before it counts (IBTA vol. 1, 9.7.6.1.3). Who
/// answers is a thread: with many that run it waits for a core as long as each of them has one, some
/// milliseconds, and may do so more than once for an answer. Nothing else is to delay it: packets are
/// taken by whoever polls or sleeps at the socket, and by the engine two of its ticks after the last
/// poll, also from a process that posts without end (`a_side_that_posts_and_never_polls_serves_its_peer`).
fn in_software(timeout: AckTimeout) -> AckTimeout {
    match timeout.code() {
        0 => timeout, // for ever
        code => AckTimeout::new(code.saturating_add(2).min(31)).unwrap_or(timeout),
    }
}
