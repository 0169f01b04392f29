//! Reliable connection (IBTA vol. 1, 9.7): every message once and in order, over packets that may be
//! lost, repeated, delayed, reordered and damaged.
//!
//! End-to-end flow control (9.7.7.2) is not implemented, as in Linux's Soft-RoCE: ACKs carry the credit
//! count "invalid", and a peer's credits are ignored. A responder without a receive request sends an RNR
//! NAK instead.

mod replay;
mod requester;
mod responder;
mod responses;
mod retry;
mod send_queue;
mod sequence_errors;
mod timers;
mod window;

use adverb_units::Time;
use adverb_verbs::{
    AccessFlags, PathMtu, Psn, QpAttr, QpState, Qpn, RetryParams, RnrTimer, WcStatus,
};
use adverb_wire::{Bth, Packet, Service, UnknownOpcode};

use crate::PacketBuffer;
use crate::completion::Completion;
use crate::drops::{Counters, DropReason};
use crate::memory::Memory;
use crate::receive::ReceiveQueue;
use crate::request::{PostError, ReceiveWork, SendWork};
use crate::shared::Shared;
use requester::Requester;
use responder::{Refused, Responder};

/// Parameters of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RcConfig {
    /// This queue pair.
    pub qpn: Qpn,
    /// The peer's.
    pub peer: Qpn,
    /// The largest payload of a packet.
    pub path_mtu: PathMtu,
    /// This side's requests.
    pub requester: RequesterConfig,
    /// The peer's requests.
    pub responder: ResponderConfig,
}

/// Parameters of the requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterConfig {
    /// The first packet's number (`sq_psn`).
    pub first_psn: Psn,
    /// Requests that may be outstanding.
    pub max_work: usize,
    /// Timeouts and retry counts.
    pub retry: RetryParams,
    /// Maximum number of READs and atomics in flight (`max_rd_atomic`).
    pub max_reads: u8,
    /// Packets that may be in flight, answers of READs included: what the network between (such as a
    /// socket's buffer) holds.
    pub window: u32,
}

/// Parameters of the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderConfig {
    /// The number of the peer's first packet (`rq_psn`).
    pub first_psn: Psn,
    /// Access rights of the peer.
    pub access: AccessFlags,
    /// Maximum number of the peer's READs and atomics in flight (`max_dest_rd_atomic`).
    pub max_reads: u8,
    /// The RNR timer: how long the peer waits after an RNR NAK.
    pub rnr_timer: RnrTimer,
}

/// Why a response was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The packet was dropped.
    Drop(DropReason),
    /// The oldest request ends so, and the connection with it.
    Fail(WcStatus),
}

/// A packet that no queue pair can take.
enum Invalid {
    /// A request, which is refused in its turn for this reason.
    Request(Psn, DropReason),
    /// A response, which is dropped in silence.
    Response,
}

/// Whose turn to send it is: neither requests nor responses starve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Requester,
    Responder,
}

impl Turn {
    const fn other(self) -> Self {
        match self {
            Turn::Requester => Turn::Responder,
            Turn::Responder => Turn::Requester,
        }
    }
}

/// A connected queue pair: ready to receive and to send, or in the error state.
#[derive(Debug)]
pub struct RcQp {
    state: QpState,
    requester: Requester,
    responder: Responder,
    shared: Shared,
    turn: Turn,
}

impl RcQp {
    /// A connection, with the receive requests that were posted before.
    pub fn new(config: &RcConfig, receives: ReceiveQueue) -> Self {
        RcQp {
            state: QpState::Rts,
            requester: Requester::new(config),
            responder: Responder::new(config, receives),
            shared: Shared::new(config.qpn, config.requester.max_work),
            turn: Turn::Requester,
        }
    }

    /// Ready (`Rts`) or in error (`Err`).
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Applies a Modify QP after RTR; an attribute that is `None` stays as it is.
    ///
    /// `sq_psn` starts a requester that has sent nothing yet (RTR to RTS). In `Sqd` no further request
    /// begins (IBTA vol. 1, 10.3.1.5) until `Rts`. Timeout and retry counters count from the next wait
    /// on. `access`, `min_rnr_timer` and `max_rd_atomic` apply at once; the rest is not used.
    pub fn modify(&mut self, attr: &QpAttr) {
        self.requester.modify(attr);
        self.responder.modify(attr);
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Posts a send request. In the error state it completes at once, flushed.
    ///
    /// # Errors
    /// The queue is full, or the request is none that RC has. Wrong memory is no error here: the
    /// request completes with it.
    pub fn post_send(&mut self, request: SendWork, memory: &impl Memory) -> Result<(), PostError> {
        self.requester.post(request, memory)?;
        if self.state == QpState::Err {
            self.flush();
        }
        Ok(())
    }

    /// Posts a receive request. In the error state it completes at once, flushed.
    ///
    /// # Errors
    /// The queue is full.
    pub fn post_receive(&mut self, request: ReceiveWork) -> Result<(), PostError> {
        self.responder.receives.post(request)?;
        if self.state == QpState::Err {
            self.flush();
        }
        Ok(())
    }

    /// Takes a packet of the network's, whose ICRC was right.
    ///
    /// # Errors
    /// Why it was dropped; it is counted, too.
    pub fn handle_packet(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        let taken = self.take_packet(now, packet, memory);
        self.shared.counters.count(taken);
        taken
    }

    fn take_packet(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        let aim = (Some(packet.opcode().service()), packet.headers.bth.dest_qp);
        self.shared.admit((Service::Rc, self.state), aim)?;
        if packet.opcode().verb().is_response() {
            let taken = self.requester.handle(now, packet, memory, &mut self.shared);
            return match taken {
                Ok(()) => Ok(()),
                Err(Refusal::Drop(reason)) => Err(reason),
                Err(Refusal::Fail(status)) => {
                    self.fail(status);
                    match status {
                        requester::BAD_RESPONSE => Err(DropReason::BadResponse),
                        _ => Ok(()),
                    }
                }
            };
        }
        let taken = self.responder.handle(packet, memory, &mut self.shared);
        taken.map_err(|refused| self.follow(refused))
    }

    /// Takes a packet of an unknown opcode, whose ICRC was right, and says why it was dropped; it is
    /// counted, too. In its turn it is an invalid request, which ends the connection.
    pub fn handle_unknown(&mut self, unknown: &UnknownOpcode) -> DropReason {
        let invalid = Invalid::Request(unknown.psn, DropReason::UnknownOpcode);
        self.drop_invalid((unknown.service(), unknown.dest_qp), invalid)
    }

    /// Drops a packet whose length does not go with its headers: payload where its opcode has none, or
    /// a wrong pad count. As a request it is refused in its turn, and the connection ends; as a
    /// response it is dropped in silence. Says why.
    pub fn handle_malformed(&mut self, bth: &Bth) -> DropReason {
        let invalid = if bth.opcode.verb().is_response() {
            Invalid::Response
        } else {
            Invalid::Request(bth.psn, DropReason::InvalidRequest)
        };
        self.drop_invalid((Some(bth.opcode.service()), bth.dest_qp), invalid)
    }

    /// Drops a packet that names this service and queue pair, be they its own or not; says why, and counts it.
    fn drop_invalid(&mut self, aim: (Option<Service>, Qpn), invalid: Invalid) -> DropReason {
        let reason = match (self.shared.admit((Service::Rc, self.state), aim), invalid) {
            (Err(reason), _) => reason,
            (Ok(()), Invalid::Response) => DropReason::BadResponse,
            (Ok(()), Invalid::Request(psn, reason)) => {
                let refused = self.responder.handle_invalid(psn, reason);
                self.follow(refused)
            }
        };
        self.shared.counters.count(Err(reason));
        reason
    }

    /// A request was refused; the connection ends if it is to.
    fn follow(&mut self, refused: Refused) -> DropReason {
        match refused {
            Refused::Drop(reason) => reason,
            Refused::Fatal(reason) => {
                self.enter_error();
                reason
            }
        }
    }

    /// Tells that the clock has come to the deadline of [`RcQp::poll_timeout`]. Too early or too often
    /// does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.state == QpState::Err {
            return;
        }
        if let Err(status) = self.requester.handle_timeout(now, &mut self.shared) {
            self.fail(status);
        }
    }

    /// When [`RcQp::handle_timeout`] is to be called next; never, if nothing is waited for.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.requester.deadline()
    }

    /// Builds the next packet at the beginning of `out` and gives its length; none if there is nothing
    /// to send now. To be called until then after each post, packet and timeout.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        memory: &impl Memory,
        out: &mut PacketBuffer,
    ) -> Option<usize> {
        let first = self.turn;
        for turn in [first, first.other()] {
            if let Some(length) = self.transmit(turn, now, memory, out) {
                self.turn = turn.other();
                self.shared.counters.sent += 1;
                return Some(length);
            }
        }
        // A request before an acknowledgement: a driver can join packets to one of the same length.
        self.turn = Turn::Requester;
        None
    }

    /// Whether all there is to send is an acknowledgement. It may wait a little for a request to go
    /// with, but not for long: the peer's request completes by it.
    pub fn only_acknowledges(&self) -> bool {
        self.state == QpState::Rts
            && self.responder.only_acknowledges()
            && !self.requester.has_packet()
    }

    #[inline]
    fn transmit(
        &mut self,
        turn: Turn,
        now: Time,
        memory: &impl Memory,
        out: &mut PacketBuffer,
    ) -> Option<usize> {
        match turn {
            Turn::Requester if self.state == QpState::Err => None,
            Turn::Requester => {
                let sent = self.requester.transmit(now, memory, out, &mut self.shared);
                sent.unwrap_or_else(|status| {
                    self.fail(status);
                    None
                })
            }
            Turn::Responder if !self.responder.has_responses() => None,
            Turn::Responder => self.responder.transmit(memory, out).unwrap_or_else(|_| {
                self.enter_error();
                // The NAK that informs the peer.
                self.responder.transmit(memory, out).ok().flatten()
            }),
        }
    }

    /// Whether [`RcQp::poll_completion`] would return a completion.
    #[inline]
    pub fn has_completions(&self) -> bool {
        !self.shared.completions.is_empty()
    }

    /// The next completion.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.shared.completions.pop_front()
    }

    /// Goes to the error state: all requests complete, flushed. What the peer was still to be told is sent.
    pub fn enter_error(&mut self) {
        self.state = QpState::Err;
        self.flush();
    }

    /// The oldest send request ends with `status`, and the connection with it.
    fn fail(&mut self, status: WcStatus) {
        if let Some(entry) = self.requester.take() {
            self.shared.fail_send(&entry.request, status);
        }
        self.enter_error();
    }

    fn flush(&mut self) {
        let flushed = WcStatus::WrFlushErr;
        while let Some(entry) = self.requester.take() {
            self.shared.fail_send(&entry.request, flushed);
        }
        let started = self.responder.take_started();
        let waiting = std::iter::from_fn(|| self.responder.receives.take_to_flush());
        for receive in started.into_iter().chain(waiting) {
            self.shared.fail_receive(&receive, flushed);
        }
    }
}
