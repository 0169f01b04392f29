//! Reliable connection (IBTA vol. 1, 9.7): delivers every message once and in order, although packets may be lost,
//! repeated, delayed, reordered and damaged.
//!
//! XRC (annex A14) is the same between a queue pair that only sends requests and one that only responds. Each request
//! names the shared receive queue of its message, whose protection domain the driver checks with each packet.
//!
//! End-to-end flow control (9.7.7.2) is not implemented, as in Linux's Soft-RoCE: ACKs carry the credit
//! count "invalid", and a peer's credits are ignored. A responder without a receive request sends an RNR
//! NAK instead.

mod budget;
mod congestion;
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
    AccessFlags, PathMtu, Psn, QpAttr, QpState, QpType, Qpn, RetryParams, RnrTimer, Srqn, WcStatus,
};
use adverb_wire::{Bth, Opcode, Packet, Service, UnknownOpcode};

use crate::PacketBuffer;
use crate::completion::Completion;
use crate::drops::{Counters, DropReason};
use crate::memory::Memory;
use crate::receive::ReceiveQueue;
use crate::request::{PostError, ReceiveWork, SendWork};
use crate::shared::Shared;
use requester::Requester;
use responder::{RequestError, Responder};

/// Parameters of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RcConfig {
    /// RC, or an end of XRC.
    pub qp_type: QpType,
    /// This queue pair.
    pub qpn: Qpn,
    /// The peer's queue pair.
    pub peer: Qpn,
    /// Maximum payload of a packet.
    pub path_mtu: PathMtu,
    /// Parameters of this side's requests.
    pub requester: RequesterConfig,
    /// Parameters of the peer's requests.
    pub responder: ResponderConfig,
}

/// Parameters of the requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequesterConfig {
    /// PSN of the first packet (`sq_psn`).
    pub first_psn: Psn,
    /// Maximum number of outstanding requests.
    pub max_work: usize,
    /// Timeouts and retry counts.
    pub retry: RetryParams,
    /// Maximum number of READs and atomics in flight (`max_rd_atomic`).
    pub max_reads: u8,
    /// Packets in flight, including READ responses, over a short path, or one that loses packets.
    pub window: u32,
    /// Maximum number of packets in flight, over a long path: as many as the network, for example a socket's buffer,
    /// holds. If it is not larger than `window`, the window does not adapt to the path.
    pub max_window: u32,
}

/// Parameters of the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderConfig {
    /// PSN of the peer's first packet (`rq_psn`).
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
enum ResponseError {
    /// The packet was dropped.
    Drop(DropReason),
    /// The oldest request completes with this status, and the connection ends.
    Fail(WcStatus),
}

/// A packet that is invalid for every queue pair.
enum Invalid {
    /// A request, and the reason for refusing it.
    Request(Psn, DropReason),
    /// A response, which is dropped silently.
    Response,
}

/// Whose packet is sent next: they alternate, so neither requests nor responses starve.
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

/// Returns the service of the packets of a queue pair.
#[inline]
const fn service(qp_type: QpType) -> Service {
    match qp_type {
        QpType::XrcSend | QpType::XrcRecv => Service::Xrc,
        _ => Service::Rc,
    }
}

/// Returns the opcode of a service with the same verb and position as an RC opcode.
#[inline]
const fn opcode_of(service: Service, rc: Opcode) -> Opcode {
    match service {
        Service::Xrc => rc.as_xrc(),
        _ => rc,
    }
}

/// Why the responder ended the connection where no receive completes with the error (IBTA vol. 1, 9.9.3, class C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponderFault {
    /// A request violated the access rights.
    Access,
    /// A request was invalid.
    Request,
}

/// A connected queue pair: ready to receive and to send, or in the error state.
#[derive(Debug)]
pub struct RcQp {
    qp_type: QpType,
    state: QpState,
    requester: Requester,
    responder: Responder,
    shared: Shared,
    turn: Turn,
    fault: Option<ResponderFault>,
}

impl RcQp {
    /// Makes a connection, with the receive requests that were posted before.
    pub fn new(config: &RcConfig, receives: ReceiveQueue) -> Self {
        RcQp {
            qp_type: config.qp_type,
            state: QpState::Rts,
            requester: Requester::new(config),
            responder: Responder::new(config, receives),
            shared: Shared::new(config.qpn, config.requester.max_work),
            turn: Turn::Requester,
            fault: None,
        }
    }

    /// Takes why the responder ended the connection, if it did.
    pub fn take_fault(&mut self) -> Option<ResponderFault> {
        self.fault.take()
    }

    /// Returns the service of its packets.
    #[inline]
    const fn service(&self) -> Service {
        service(self.qp_type)
    }

    /// XRC: returns the queue that the request named to which the next response is data; `None` if no response carries
    /// data of memory. The memory passed to [`RcQp::poll_transmit`] has to be of the protection domain of this queue.
    pub fn reads_for(&self) -> Option<Srqn> {
        self.responder.reads_for()
    }

    /// Returns the state: `Rts` or `Err`.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Applies a Modify QP after RTR. Attributes that are `None` do not change.
    ///
    /// `sq_psn` starts a requester that has sent nothing yet (RTR to RTS). In `Sqd` no further request begins (IBTA
    /// vol. 1, 10.3.1.5) until `Rts`. Timeout and retry counts apply from the next start of the timer on. `access`,
    /// `min_rnr_timer` and `max_rd_atomic` apply at once; other attributes are not used.
    pub fn modify(&mut self, attr: &QpAttr) {
        self.requester.modify(attr);
        self.responder.modify(attr);
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Posts a send request. In the error state it is flushed at once.
    ///
    /// # Errors
    /// The queue is full, or RC has no such request. If its memory is not accessible, the request completes with an
    /// error instead.
    pub fn post_send(&mut self, request: SendWork, memory: &impl Memory) -> Result<(), PostError> {
        self.requester.post(request, memory)?;
        if self.state == QpState::Err {
            self.flush();
        }
        Ok(())
    }

    /// Posts a send request that [`RcQp::post_send`] has refused. It is not sent. Like a request that fails on a device, it
    /// completes with `status` after the requests before it, and ends the connection.
    ///
    /// # Errors
    /// The queue is full.
    pub fn post_failed(&mut self, request: SendWork, status: WcStatus) -> Result<(), PostError> {
        self.requester.post_failed(request, status)?;
        if self.state == QpState::Err {
            self.flush();
        }
        Ok(())
    }

    /// Posts a receive request. In the error state it is flushed at once.
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

    /// Handles a packet with the right ICRC.
    ///
    /// # Errors
    /// The reason for which it was dropped and counted.
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
        self.shared.admit((self.service(), self.state), aim)?;
        let is_response = packet.opcode().verb().is_response();
        if !is_response && self.qp_type == QpType::XrcSend {
            return Err(DropReason::InvalidRequest);
        }
        if is_response {
            let taken = self.requester.handle(now, packet, memory, &mut self.shared);
            return match taken {
                Ok(()) => Ok(()),
                Err(ResponseError::Drop(reason)) => Err(reason),
                Err(ResponseError::Fail(status)) => {
                    self.fail(status);
                    match status {
                        requester::BAD_RESPONSE => Err(DropReason::BadResponse),
                        _ => Ok(()),
                    }
                }
            };
        }
        let taken = self.responder.handle(packet, memory, &mut self.shared);
        taken.map_err(|refused| self.end_if_fatal(refused))
    }

    /// Drops and counts a packet with an unknown opcode and the right ICRC; returns the reason. If it has the expected
    /// PSN, it is an invalid request, which ends the connection.
    pub fn handle_unknown(&mut self, unknown: &UnknownOpcode) -> DropReason {
        let invalid = Invalid::Request(unknown.psn, DropReason::UnknownOpcode);
        self.drop_invalid((unknown.service(), unknown.dest_qp), invalid)
    }

    /// Drops and counts a packet whose length does not match its headers: it has payload although its opcode has none, or
    /// a wrong pad count. Returns the reason. A request with the expected PSN ends the connection.
    pub fn handle_malformed(&mut self, bth: &Bth) -> DropReason {
        let invalid = if bth.opcode.verb().is_response() {
            Invalid::Response
        } else {
            Invalid::Request(bth.psn, DropReason::InvalidRequest)
        };
        self.drop_invalid((Some(bth.opcode.service()), bth.dest_qp), invalid)
    }

    /// Drops and counts an invalid packet to the queue pair `aim`; returns the reason.
    fn drop_invalid(&mut self, aim: (Option<Service>, Qpn), invalid: Invalid) -> DropReason {
        let reason = match (
            self.shared.admit((self.service(), self.state), aim),
            invalid,
        ) {
            (Err(reason), _) => reason,
            (Ok(()), Invalid::Response) => DropReason::BadResponse,
            (Ok(()), Invalid::Request(_, reason)) if self.qp_type == QpType::XrcSend => reason,
            (Ok(()), Invalid::Request(psn, reason)) => {
                let refused = self.responder.handle_invalid(psn, reason);
                self.end_if_fatal(refused)
            }
        };
        self.shared.counters.count(Err(reason));
        reason
    }

    /// Ends the connection if the error is fatal; returns the reason.
    fn end_if_fatal(&mut self, refused: RequestError) -> DropReason {
        match refused {
            RequestError::Drop(reason) => reason,
            RequestError::FatalToReceive(reason) => {
                self.enter_error();
                reason
            }
            RequestError::Fatal(reason) => {
                self.fault = Some(match reason {
                    DropReason::RemoteAccess => ResponderFault::Access,
                    _ => ResponderFault::Request,
                });
                self.enter_error();
                reason
            }
        }
    }

    /// Handles expired timers. To be called at the deadline that [`RcQp::poll_timeout`] returns; earlier or additional
    /// calls have no effect.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.state == QpState::Err {
            return;
        }
        if let Err(status) = self.requester.handle_timeout(now, &mut self.shared) {
            self.fail(status);
        }
    }

    /// Returns when to call [`RcQp::handle_timeout`] next. `None` while no timer runs.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.requester.deadline()
    }

    /// Builds the next packet at the beginning of `out`; returns its length. `None` if there is nothing to send now. To be
    /// called after each post, packet and timeout until it returns `None`.
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
        // The next request is sent before an ACK: in a GSO batch, only the last packet may be shorter.
        self.turn = Turn::Requester;
        None
    }

    /// Whether an ACK is the only packet to send. The driver may delay it shortly, to send it together with a request. The
    /// peer's request is not complete before.
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
            Turn::Responder => {
                let sent = self.responder.transmit(memory, out);
                sent.unwrap_or_else(|error| {
                    self.end_if_fatal(error);
                    // Sends the NAK.
                    self.responder.transmit(memory, out).ok().flatten()
                })
            }
        }
    }

    /// Whether a send request is not complete, except for its completion.
    pub fn has_unfinished_sends(&self) -> bool {
        self.requester.has_unfinished()
    }

    /// Whether the send queue is in SQD and not drained: the request that had begun is not complete (`sq_draining`).
    pub fn is_draining(&self) -> bool {
        self.requester.is_draining()
    }

    /// Whether [`RcQp::poll_completion`] would return a completion.
    #[inline]
    pub fn has_completions(&self) -> bool {
        !self.shared.completions.is_empty()
    }

    /// Returns the next completion.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.shared.completions.pop_front()
    }

    /// Moves to the error state and flushes all requests. Pending responses are still sent.
    pub fn enter_error(&mut self) {
        self.state = QpState::Err;
        self.flush();
    }

    /// Completes the oldest send request with `status`, and ends the connection.
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
