//! A queue pair that is connected over UDP: joins the transport's state machine to the queue pair's receive ring
//! and its ring of completed sends.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use adverb_transport::{
    Completion, LocalPiece, Payload, PostError, Queue, ReceiveQueue, ReceiveWork, SendWork,
    Solicited, Work,
};
use adverb_units::Time;
use adverb_verbs::{
    QpAttr, QpState, QpType, SendFlags, SendRequest, Srqn, WcOpcode, WcStatus, WrId,
};

use super::delayed_ack::{Caller, DelayedAck};
use super::host::Endpoint;
use super::memory::{Reach, Regions};
use super::packet::Target;
use super::transport::{ConnectedTransport, LocalEnd};
use super::tx_batch::{Room, TxBatch};
use crate::shm::copy::gather_inline;
use crate::shm::notify::Urgency;
use crate::shm::ring::{Arrival, Extra};
use crate::shm::send_ring::Sent;

/// Receive requests that are passed to the transport before messages need them.
const RECEIVES_AHEAD: u64 = 16;
/// Maximum number of packets that a queue pair sends per turn, so that it does not starve others.
const PACKETS: usize = 128;

/// A send request that was passed to the transport, which identifies it by its count.
#[derive(Clone, Copy, Debug)]
struct Posted {
    count: u64,
    wr_id: WrId,
}

/// Positions in the queue pair's own receive ring.
#[derive(Clone, Copy, Debug)]
struct ReceivePositions {
    /// The next request to pass to the transport.
    passed: u64,
    /// The next request to complete.
    completed: u64,
}

/// Why a queue pair stopped sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It has nothing more to send now.
    Done,
    /// It has sent [`PACKETS`] packets.
    Enough,
    /// The socket takes no more now.
    Full,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) qp: Arc<dyn Endpoint>,
    pub(super) transport: ConnectedTransport,
    target: Target,
    /// Send requests without a known completion, oldest first.
    posted: VecDeque<Posted>,
    /// `None` if it uses a shared receive queue.
    ahead: Option<ReceivePositions>,
    /// It is in the driver's list of queue pairs that may have packets to send.
    pub(super) is_ready: bool,
    /// A request of the peer has arrived.
    pub(super) is_established: bool,
    pub(super) delayed_ack: DelayedAck,
}

impl Link {
    /// Connects to the peer named by `rtr`, whose socket is `target`.
    pub(super) fn new(qp: &Arc<dyn Endpoint>, rtr: &QpAttr, target: Target, window: u32) -> Self {
        let own = LocalEnd {
            qpn: qp.qpn(),
            service: qp.service(),
            max_work: qp.send_depth(),
            window,
        };
        let (receives, ahead) = match qp.shared_receives() {
            None => {
                let first = qp.first_receive();
                let ahead = ReceivePositions {
                    passed: first,
                    completed: first,
                };
                let queue = ReceiveQueue::new(RECEIVES_AHEAD as usize);
                (queue, Some(ahead))
            }
            Some(shared) => (shared, None),
        };
        Link {
            qp: qp.clone(),
            transport: ConnectedTransport::new(&own, rtr, receives),
            target,
            posted: VecDeque::new(),
            ahead,
            is_ready: false,
            is_established: false,
            delayed_ack: DelayedAck::default(),
        }
    }

    pub(super) fn peer_ip(&self) -> IpAddr {
        self.target.to.to.ip()
    }

    /// Returns the local memory that this queue pair may access.
    pub(super) fn reach<'a>(&self, regions: &'a Regions<'_>) -> Reach<'a> {
        let domains = (self.qp.domain(), self.qp.receive_domain());
        regions.reached_by(self.qp.qpn(), domains, self.qp.peer_access())
    }

    /// Returns the local memory that a packet may access which names a queue of XRC; without one, as [`Link::reach`].
    #[inline]
    pub(super) fn reach_for<'a>(&self, regions: &'a Regions<'_>, srqn: Option<Srqn>) -> Reach<'a> {
        match srqn {
            None => self.reach(regions),
            Some(srqn) => self.reach_of_queue(regions, srqn),
        }
    }

    #[inline(never)] // keeps the path of RC and UC small
    fn reach_of_queue<'a>(&self, regions: &'a Regions<'_>, srqn: Srqn) -> Reach<'a> {
        // The queue pair's own domain has no regions.
        let domain = self.qp.domain_of_queue(srqn);
        let domain = domain.unwrap_or_else(|| self.qp.domain());
        regions.reached_by(self.qp.qpn(), (domain, domain), self.qp.peer_access())
    }

    /// Passes a send request to the transport. One that the transport of RC refuses fails after the requests before it. On an
    /// error, the request completes with the status returned, and the connection ends.
    pub(super) fn post(
        &mut self,
        count: u64,
        request: &SendRequest<'_>,
        regions: &Regions<'_>,
    ) -> Result<(), WcStatus> {
        if matches!(self.transport.state(), QpState::Err | QpState::Sqe) {
            return Err(WcStatus::WrFlushErr);
        }
        let send = send_work(count, request)?;
        let memory = self.reach(regions);
        if let Err(refused) = self.transport.post_send(send, &memory) {
            let status = match refused {
                PostError::AtomicLength(_) => WcStatus::LocLenErr,
                _ => WcStatus::LocQpOpErr,
            };
            let send = send_work(count, request)?;
            self.transport.post_failed(send, status)?;
        }
        let wr_id = request.wr_id;
        self.posted.push_back(Posted { count, wr_id });
        Ok(())
    }

    /// Whether a send request is not complete. The completions of those that are were delivered.
    pub(super) fn has_unfinished_sends(&mut self) -> bool {
        self.deliver_completions();
        self.transport.has_unfinished_sends()
    }

    /// Whether it is in SQD and not drained. The completions of the requests before were delivered.
    pub(super) fn is_draining(&mut self) -> bool {
        self.deliver_completions();
        self.transport.is_draining()
    }

    /// Passes the next receive requests to the transport.
    #[inline]
    pub(super) fn pass_receives(&mut self) {
        // A turn may receive more messages than this before it delivers their completions.
        let is_full = |ahead: &ReceivePositions| ahead.passed - ahead.completed == RECEIVES_AHEAD;
        if self.ahead.as_ref().is_some_and(is_full) {
            self.deliver_completions();
        }
        let Some(ahead) = &mut self.ahead else {
            return;
        };
        let ring = self.qp.receive_ring();
        while ahead.passed - ahead.completed < RECEIVES_AHEAD && ring.is_posted(ahead.passed) {
            let pieces = ring.pieces(ahead.passed).map(LocalPiece::from);
            let receive = ReceiveWork {
                wr_id: WrId(ahead.passed),
                pieces: pieces.collect(),
            };
            if self.transport.post_receive(receive).is_err() {
                return;
            }
            ahead.passed += 1;
        }
    }

    /// Whether the transport is in the error state; the queue pair follows once its completions are delivered.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.transport.state() == QpState::Err
    }

    /// Delivers completions; stops the queue pair's send queue if the transport is in the SQE state.
    #[inline]
    pub(super) fn deliver_completions(&mut self) {
        if self.transport.has_completions() || self.transport.state() == QpState::Sqe {
            self.deliver_all();
        }
    }

    fn deliver_all(&mut self) {
        while let Some(completion) = self.transport.poll_completion() {
            match completion.queue {
                Queue::Send => self.end_send(&completion),
                Queue::Receive => self.end_receive(&completion),
            }
        }
        if self.transport.state() == QpState::Sqe {
            self.qp.stop_sending();
        }
    }

    fn end_send(&mut self, completion: &Completion) {
        let count = completion.work.wr_id.0;
        // Requests before it were unsignaled and succeeded.
        while let Some(oldest) = self.posted.pop_front() {
            if oldest.count != count {
                continue;
            }
            let work = &completion.work;
            self.qp.push_sent(Sent {
                wr_id: oldest.wr_id.0,
                status: work.status,
                opcode: work.opcode,
                byte_len: work.byte_len,
                count,
            });
            return;
        }
    }

    fn end_receive(&mut self, completion: &Completion) {
        let work = &completion.work;
        // Flushed requests are flushed together with those that were not yet passed to the transport.
        if work.status == WcStatus::WrFlushErr {
            return;
        }
        let arrival = Arrival {
            byte_len: work.byte_len,
            status: match work.status {
                WcStatus::Success => 0,
                status => status.code() as u8,
            },
            extra: match (work.imm, work.invalidated) {
                (Some(imm), _) => Extra::Imm(imm.0),
                (None, Some(rkey)) => Extra::Invalidated(rkey.0),
                (None, None) => Extra::None,
            },
            is_write: work.opcode == WcOpcode::RecvRdmaWithImm,
        };
        let position = work.wr_id.0;
        if let Some(ahead) = &mut self.ahead {
            ahead.completed = position + 1;
        }
        let urgency = match completion.solicited {
            Solicited::Yes => Urgency::Solicited,
            Solicited::No => Urgency::Usual,
        };
        self.qp.complete_receive(position, arrival, urgency);
    }

    /// Whether it has only an ACK to send, and that is delayed (see [`super::delayed_ack`]).
    #[inline]
    pub(super) fn delays_ack(&mut self, (caller, turn): (Caller, u64), tx: &TxBatch) -> bool {
        self.delayed_ack.may_delay(caller)
            && self.transport.only_acknowledges()
            && tx.joins(self.peer_ip())
            && self.delayed_ack.delays(caller, turn)
    }

    /// Sends up to [`PACKETS`] packets; returns why it stopped.
    #[inline]
    pub(super) fn transmit(&mut self, now: Time, regions: &Regions<'_>, tx: &mut TxBatch) -> Stop {
        let mut memory = self.reach(regions);
        let is_target = self.qp.service() == QpType::XrcRecv;
        for _ in 0..PACKETS {
            if is_target {
                memory = self.reach_for(regions, self.transport.reads_for());
            }
            let built = self.transport.poll_transmit(now, &memory, tx.place());
            let Some(length) = built else {
                return Stop::Done;
            };
            if tx.add(&self.target, length) == Room::Full {
                return Stop::Full;
            }
        }
        Stop::Enough
    }

    /// Returns when its next timer expires.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.transport.poll_timeout()
    }
}

/// Converts a request for the transport, with `count` as its identifier.
pub(super) fn send_work(count: u64, request: &SendRequest<'_>) -> Result<SendWork, WcStatus> {
    let work = Work::try_from(request.operation).map_err(|_| WcStatus::LocQpOpErr)?;
    let payload = if request.flags.contains(SendFlags::INLINE) {
        Payload::Inline(gather_inline(request.sges).into())
    } else {
        Payload::Memory(request.sges.iter().copied().map(LocalPiece::from).collect())
    };
    Ok(SendWork {
        wr_id: WrId(count),
        work,
        payload,
        flags: request.flags,
        remote_srqn: request.remote_srqn,
    })
}
