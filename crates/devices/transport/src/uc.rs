//! Unreliable connection (IBTA vol. 1, 9.8.2): delivers messages whole or not at all. Nothing is acknowledged. If a packet
//! is missing, the rest of its message is dropped.

use adverb_verbs::{AccessFlags, PathMtu, Psn, QpAttr, QpState, Qpn, SendFlags, WcStatus};
use adverb_wire::bth::BthFlags;
use adverb_wire::{Bth, Packet, PacketHeaders, Service, UnknownOpcode};

use crate::PacketBuffer;
use crate::completion::Completion;
use crate::drops::{Counters, DropReason};
use crate::inbound::{Fault, Inbound, Received};
use crate::memory::Memory;
use crate::receive::ReceiveQueue;
use crate::request::{PostError, ReceiveWork, SendWork, Work};
use crate::segment::{MAX_MESSAGE, Segment, as_uc, rc_request};
use crate::sends::Sends;
use crate::shared::Shared;

/// Parameters of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UcConfig {
    /// This queue pair.
    pub qpn: Qpn,
    /// The peer's queue pair.
    pub peer: Qpn,
    /// Maximum payload of a packet.
    pub path_mtu: PathMtu,
    /// PSN of the first packet sent (`sq_psn`).
    pub first_psn: Psn,
    /// PSN of the peer's first packet (`rq_psn`).
    pub peer_first_psn: Psn,
    /// Access rights of the peer; only REMOTE_WRITE is used.
    pub access: AccessFlags,
    /// Maximum number of outstanding requests.
    pub max_work: usize,
}

/// An unreliably connected queue pair.
#[derive(Debug)]
pub struct UcQp {
    peer: Qpn,
    mtu: PathMtu,
    sends: Sends<SendWork>,
    /// Draining (SQD): requests that have not begun are not sent.
    is_drained: bool,
    /// Number of packets of the first request that were sent.
    sent: u64,
    next: Psn,
    expected: Psn,
    inbound: Inbound,
    receives: ReceiveQueue,
    shared: Shared,
}

impl UcQp {
    /// Makes a connection, with the receive requests that were posted before.
    pub fn new(config: &UcConfig, receives: ReceiveQueue) -> Self {
        UcQp {
            peer: config.peer,
            mtu: config.path_mtu,
            sends: Sends::new(config.max_work),
            is_drained: false,
            sent: 0,
            next: config.first_psn,
            expected: config.peer_first_psn,
            inbound: Inbound::new(config.access, config.path_mtu, config.qpn),
            receives,
            shared: Shared::new(config.qpn, config.max_work),
        }
    }

    /// Returns the state: `Rts`, `Sqe` or `Err`.
    pub fn state(&self) -> QpState {
        self.sends.state()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Applies a Modify QP after RTR. Attributes that are `None` do not change.
    ///
    /// `sq_psn` is the PSN of the next packet sent (RTR to RTS). In `Sqd` no further request begins; `Rts` ends that, and
    /// SQE. `access` applies at once; other attributes are not used.
    pub fn modify(&mut self, attr: &QpAttr) {
        self.next = attr.sq_psn.unwrap_or(self.next);
        self.inbound.access = attr.access.unwrap_or(self.inbound.access);
        match attr.state {
            Some(QpState::Sqd) => self.is_drained = true,
            Some(QpState::Rts) => {
                self.is_drained = false;
                self.sends.resume();
            }
            _ => {}
        }
    }

    /// Posts a send request. In SQE and in the error state it is flushed at once.
    ///
    /// # Errors
    /// The queue is full, or UC has no such request.
    pub fn post_send(&mut self, request: SendWork) -> Result<(), PostError> {
        self.sends.has_room()?;
        let length = request.payload.length();
        if length > MAX_MESSAGE {
            let most = MAX_MESSAGE;
            return Err(PostError::TooLong { length, most });
        }
        match request.work {
            Work::Send | Work::SendWithImm(_) | Work::Write(_) | Work::WriteWithImm(..) => {}
            other => return Err(PostError::NotOfService(other)),
        }
        self.sends.post(request, &mut self.shared);
        Ok(())
    }

    /// Posts a receive request. In the error state it is flushed at once.
    ///
    /// # Errors
    /// The queue is full.
    pub fn post_receive(&mut self, request: ReceiveWork) -> Result<(), PostError> {
        self.receives.post(request)?;
        if self.state() == QpState::Err {
            self.flush_receives();
        }
        Ok(())
    }

    /// Handles a packet with the right ICRC.
    ///
    /// # Errors
    /// The reason for which it was dropped and counted.
    pub fn handle_packet(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        let taken = self.take_packet(packet, memory);
        self.shared.counters.count(taken);
        taken
    }

    /// Drops and counts a packet with an unknown opcode and the right ICRC; returns the reason. It counts as missing in its
    /// message.
    pub fn handle_unknown(&mut self, unknown: &UnknownOpcode) -> DropReason {
        let own = (Service::Uc, self.state());
        self.shared.drop_unknown(own, unknown)
    }

    /// Drops and counts a packet whose length does not match its headers; returns the reason.
    pub fn handle_malformed(&mut self, bth: &Bth) -> DropReason {
        let own = (Service::Uc, self.state());
        let aim = (Some(bth.opcode.service()), bth.dest_qp);
        let admitted = self.shared.admit(own, aim);
        let reason = admitted.err().unwrap_or(DropReason::InvalidRequest);
        self.shared.counters.count(Err(reason));
        reason
    }

    fn take_packet(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        let bth = &packet.headers.bth;
        let own = (Service::Uc, self.state());
        self.shared
            .admit(own, (Some(bth.opcode.service()), bth.dest_qp))?;
        // A message may begin with any PSN, even one that was received before. Without acknowledgements the sender may be
        // any distance ahead, so beyond half the circle a new packet looks like an old one (IBTA vol. 1, 9.8.2.2;
        // Soft-RoCE does the same).
        if bth.opcode.position().begins() {
            self.give_up_message();
        } else if bth.psn != self.expected {
            // The current message is given up when the next one begins: if nothing is missing because this packet is
            // forged or late, it continues.
            return Err(DropReason::BrokenMessage);
        }
        self.expected = bth.psn.advance(1);
        let taken = self.inbound.take(packet, &mut self.receives, memory);
        taken
            .map(|taken| self.finish(taken))
            .map_err(|fault| self.drop_message(fault))
    }

    fn finish(&mut self, taken: Received) {
        if let Received::Completion(completion) = taken {
            self.shared.complete(completion);
        }
    }

    /// Drops a partly received message. Its receive request is used for the next message (IBTA vol. 1, 9.8.2.2).
    fn give_up_message(&mut self) {
        if let Some(receive) = self.inbound.abandon() {
            self.receives.give_back(receive);
        }
    }

    /// Drops a message. A local error moves the queue pair to the error state.
    fn drop_message(&mut self, fault: Fault) -> DropReason {
        self.give_up_message();
        match fault {
            Fault::Order => DropReason::BrokenMessage,
            Fault::Length => DropReason::InvalidRequest,
            Fault::NotReady => DropReason::ReceiverNotReady,
            Fault::Unsupported | Fault::Access => DropReason::RemoteAccess,
            Fault::TooLong(receive) => {
                self.shared.fail_receive(&receive, WcStatus::LocLenErr);
                self.enter_error();
                DropReason::TooLong
            }
            Fault::Local(receive) => {
                self.shared.fail_receive(&receive, WcStatus::LocProtErr);
                self.enter_error();
                DropReason::LocalFault
            }
        }
    }

    /// Builds the next packet at the beginning of `out`; returns its length. `None` if there is nothing to send. A request
    /// completes with its last packet.
    pub fn poll_transmit(&mut self, memory: &impl Memory, out: &mut PacketBuffer) -> Option<usize> {
        let request = self.sends.front()?;
        if self.sent == 0 && self.is_drained {
            return None;
        }
        let whole = request.payload.length();
        let segment = Segment::of(whole, self.sent, self.mtu);
        let (opcode, extension) = rc_request(&request.work, whole, segment.position);
        let opcode = as_uc(opcode).expect("UC has SENDs and WRITEs");
        let mut bth = Bth::new(opcode, self.peer, self.next);
        if segment.position.ends() && request.flags.contains(SendFlags::SOLICITED) {
            bth = bth.with(BthFlags::SOLICITED);
        }
        let headers = PacketHeaders::new(bth, extension);
        let (length, place) = headers
            .lay_out(segment.bytes, out)
            .expect("headers fit the opcode, and any packet the buffer");
        if request
            .payload
            .gather(memory, segment.offset, place)
            .is_err()
        {
            self.sends.fail_front(&mut self.shared);
            self.sent = 0;
            return None;
        }
        self.next = self.next.advance(1);
        self.sent += 1;
        if segment.position.ends() {
            self.sent = 0;
            self.sends.complete_front(&mut self.shared);
        }
        self.shared.counters.sent += 1;
        Some(length)
    }

    /// Whether a send request is not complete, except for its completion.
    pub fn has_unfinished_sends(&self) -> bool {
        self.sends.front().is_some()
    }

    /// Whether the send queue is in SQD and not drained: the request that had begun is not completely sent (`sq_draining`).
    pub fn is_draining(&self) -> bool {
        self.is_drained && self.sent > 0
    }

    /// Whether [`UcQp::poll_completion`] would return a completion.
    #[inline]
    pub fn has_completions(&self) -> bool {
        !self.shared.completions.is_empty()
    }

    /// Returns the next completion.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        self.shared.completions.pop_front()
    }

    /// Moves to the error state and flushes all requests.
    pub fn enter_error(&mut self) {
        self.sends.end(&mut self.shared);
        self.sent = 0;
        self.flush_receives();
    }

    fn flush_receives(&mut self) {
        self.give_up_message();
        while let Some(receive) = self.receives.take_to_flush() {
            self.shared.fail_receive(&receive, WcStatus::WrFlushErr);
        }
    }
}
