//! One queue pair that is connected over UDP: the transport's state machine between the receive
//! ring, which this process's own NIC now produces into, and the ring of completed sends.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use adverb_transport::{
    Completion, LocalPiece, Payload, PostError, Queue, ReceiveQueue, ReceiveWork, SendWork,
    Solicited, Work,
};
use adverb_units::Time;
use adverb_verbs::{Lkey, QpAttr, QpState, SendFlags, SendRequest, WcOpcode, WcStatus, WrId};

use super::answering::{Answering, By};
use super::lanes::Way;
use super::machine::{Machine, Own};
use super::memory::{Reach, Regions};
use super::outbox::{Outbox, Room};
use crate::notify::Urgency;
use crate::qp::QpInner;
use crate::requester::gather_inline;
use crate::ring::Arrival;
use crate::send_ring::Sent;

/// Receive requests that the transport is given ahead of the messages that take them.
const RECEIVES_AHEAD: u64 = 16;
/// Packets that one turn sends of one queue pair, so that none starves the others.
const PACKETS: usize = 128;

/// A request that was given to the transport, which knows it by its count.
#[derive(Clone, Copy, Debug)]
struct Posted {
    count: u64,
    wr_id: WrId,
}

/// How far the transport was given a queue pair's own receive requests.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    /// Position of the next to give.
    fed: u64,
    /// Position of the next to complete.
    completed: u64,
}

/// Why a queue pair's turn to send is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It has nothing more to send now.
    Done,
    /// It has sent [`PACKETS`].
    Enough,
    /// The socket takes no more now.
    Full,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) qp: Arc<QpInner>,
    pub(super) machine: Machine,
    pub(super) way: Way,
    /// Requests that are not known to have ended, oldest first.
    posted: VecDeque<Posted>,
    /// Where its receives are its own.
    ahead: Option<Ahead>,
    /// It is in the driver's list of those that may have something to send.
    pub(super) is_listed: bool,
    pub(super) answering: Answering,
}

impl Link {
    /// A connection to the peer that `rtr` names, by `way`.
    pub(super) fn new(qp: &Arc<QpInner>, rtr: &QpAttr, way: Way, window: u32) -> Self {
        let own = Own {
            qpn: qp.qpn(),
            service: qp.service(),
            max_work: qp.send_depth(),
            window,
        };
        let (receives, ahead) = match qp.shared_receives() {
            None => {
                let first = qp.first_receive();
                let ahead = Ahead {
                    fed: first,
                    completed: first,
                };
                let queue = ReceiveQueue::new(RECEIVES_AHEAD as usize);
                (queue, Some(ahead))
            }
            Some(shared) => (ReceiveQueue::shared(shared), None),
        };
        Link {
            qp: qp.clone(),
            machine: Machine::new(&own, rtr, receives),
            way,
            posted: VecDeque::new(),
            ahead,
            is_listed: false,
            answering: Answering::default(),
        }
    }

    pub(super) fn peer_ip(&self) -> IpAddr {
        self.way.target.to.to.ip()
    }

    /// What this queue pair reaches of this side's memory.
    pub(super) fn reach<'a>(&self, regions: &'a Regions<'_>) -> Reach<'a> {
        let domains = (self.qp.domain(), self.qp.receive_domain());
        regions.reached_by(domains, self.qp.peer_access())
    }

    /// Gives a request to the transport. One that it does not take ends with the status returned, and
    /// the connection with it.
    pub(super) fn post(
        &mut self,
        count: u64,
        request: &SendRequest<'_>,
        regions: &Regions<'_>,
    ) -> Result<(), WcStatus> {
        if matches!(self.machine.state(), QpState::Err | QpState::Sqe) {
            return Err(WcStatus::WrFlushErr);
        }
        let send = send_work(count, request)?;
        let memory = self.reach(regions);
        self.machine.post_send(send, &memory).map_err(|e| match e {
            PostError::AtomicLength(_) => WcStatus::LocLenErr,
            _ => WcStatus::LocQpOpErr,
        })?;
        let wr_id = request.wr_id;
        self.posted.push_back(Posted { count, wr_id });
        Ok(())
    }

    /// Gives the transport the receive requests that messages may take next.
    #[inline]
    pub(super) fn feed(&mut self) {
        let Some(ahead) = &mut self.ahead else {
            return;
        };
        let ring = self.qp.receive_ring();
        while ahead.fed - ahead.completed < RECEIVES_AHEAD && ring.is_posted(ahead.fed) {
            let pieces = ring.pieces(ahead.fed).map(|piece| LocalPiece {
                addr: piece.addr,
                length: piece.length,
                lkey: Lkey(piece.lkey),
            });
            let receive = ReceiveWork {
                wr_id: WrId(ahead.fed),
                pieces: pieces.collect(),
            };
            if self.machine.post_receive(receive).is_err() {
                return;
            }
            ahead.fed += 1;
        }
    }

    /// Whether the transport went to the error state, to which the queue pair is to follow when it is
    /// settled.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.machine.state() == QpState::Err
    }

    /// Hands on what has completed; takes the queue pair's send queue to the error state if the
    /// transport's went.
    #[inline]
    pub(super) fn settle(&mut self) {
        if self.machine.has_completions() || self.machine.state() == QpState::Sqe {
            self.hand_on();
        }
    }

    fn hand_on(&mut self) {
        while let Some(completion) = self.machine.poll_completion() {
            match completion.queue {
                Queue::Send => self.end_send(&completion),
                Queue::Receive => self.end_receive(&completion),
            }
        }
        if self.machine.state() == QpState::Sqe {
            self.qp.stop_sending();
        }
    }

    fn end_send(&mut self, completion: &Completion) {
        let count = completion.work.wr_id.0;
        // Those before it succeeded unsignaled.
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
        // Flushed ones are flushed with those that the transport does not know.
        if work.status == WcStatus::WrFlushErr {
            return;
        }
        let arrival = Arrival {
            byte_len: work.byte_len,
            status: match work.status {
                WcStatus::Success => 0,
                status => status.code() as u8,
            },
            imm: work.imm.map(|imm| imm.0),
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

    /// Whether an acknowledgement is all that it has to send, in this turn of this number, and waits for the
    /// program's answer to the message.
    #[inline]
    pub(super) fn waits_for_answer(&mut self, (by, turn): (By, u64), outbox: &Outbox) -> bool {
        self.answering.may_keep(by)
            && self.machine.only_acknowledges()
            && outbox.joins(self.peer_ip())
            && self.answering.keeps(by, turn)
    }

    /// Sends what it has to send, up to [`PACKETS`]; why it stopped.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        now: Time,
        regions: &Regions<'_>,
        outbox: &mut Outbox,
    ) -> Stop {
        let memory = self.reach(regions);
        for _ in 0..PACKETS {
            let built = self.machine.poll_transmit(now, &memory, outbox.place());
            let Some(length) = built else {
                return Stop::Done;
            };
            if outbox.add(&self.way, length) == Room::Full {
                return Stop::Full;
            }
        }
        Stop::Enough
    }

    /// When its next timer ends.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.machine.poll_timeout()
    }
}

/// A request as the transport takes it, under the name `count`.
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
    })
}
