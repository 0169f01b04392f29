//! The transport of a connected queue pair, by its service.

use adverb_transport::{
    Beginning, Completion, Counters, CreditPolicy, DropReason, Memory, PacketBuffer, Patience,
    PostError, RcConfig, RcQp, ReceiveQueue, ReceiveWork, RequesterConfig, ResponderConfig,
    SendWork, UcConfig, UcQp,
};
use adverb_units::Time;
use adverb_verbs::{AccessFlags, QpState, QpType, Qpn, RnrTimer};
use adverb_wire::{Bth, Packet, UnknownOpcode};

use super::link::{Peer, Sending};

/// What a connection is made with beside its peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) qpn: Qpn,
    pub(super) service: QpType,
    /// Requests that may be outstanding.
    pub(super) max_work: usize,
    /// Packets that may be under way.
    pub(super) window: u32,
}

/// RC or UC. What UC does not have (timers, retries) does nothing to it.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it lies in a link's box, and an indirection would be on the data path"
)]
pub(super) enum Machine {
    Rc(Reliable),
    Uc(UcQp),
}

#[derive(Debug)]
pub(super) struct Reliable {
    qp: RcQp,
    config: RcConfig,
}

impl Machine {
    /// One that receives, into as many requests as `receives` holds, and does not send yet.
    pub(super) fn new(own: &Own, peer: &Peer, receives: ReceiveQueue) -> Self {
        // The program may change it at any time: memory is asked each time.
        let access = AccessFlags::all();
        if own.service == QpType::Uc {
            let config = UcConfig {
                qpn: own.qpn,
                peer: peer.qpn,
                path_mtu: peer.path_mtu,
                first_psn: Sending::NONE.first_psn,
                peer_first_psn: peer.first_psn,
                access,
                max_work: own.max_work,
            };
            return Machine::Uc(UcQp::new(&config, receives));
        }
        let config = RcConfig {
            qpn: own.qpn,
            peer: peer.qpn,
            path_mtu: peer.path_mtu,
            requester: requester(&Sending::NONE, own.max_work, own.window),
            responder: ResponderConfig {
                first_psn: peer.first_psn,
                access,
                max_reads: peer.max_reads,
                rnr_timer: peer.rnr_timer,
                credits: CreditPolicy::None,
            },
        };
        let qp = RcQp::new(&config, receives);
        Machine::Rc(Reliable { qp, config })
    }

    /// RTS.
    pub(super) fn start_sending(&mut self, sending: &Sending) {
        match self {
            Machine::Rc(Reliable { qp, config }) => {
                let RequesterConfig {
                    max_work, window, ..
                } = config.requester;
                config.requester = requester(sending, max_work, window);
                qp.start_sending(config);
            }
            Machine::Uc(qp) => qp.start_sending(sending.first_psn),
        }
    }

    #[inline]
    pub(super) fn state(&self) -> QpState {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.state(),
            Machine::Uc(qp) => qp.state(),
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.counters(),
            Machine::Uc(qp) => qp.counters(),
        }
    }

    pub(super) fn set_rnr_timer(&mut self, timer: RnrTimer) {
        if let Machine::Rc(Reliable { qp, .. }) = self {
            qp.set_rnr_timer(timer);
        }
    }

    pub(super) fn set_patience(&mut self, patience: &Patience) {
        if let Machine::Rc(Reliable { qp, .. }) = self {
            qp.set_patience(patience);
        }
    }

    pub(super) fn set_beginning(&mut self, beginning: Beginning) {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.set_beginning(beginning),
            Machine::Uc(qp) => qp.set_beginning(beginning),
        }
    }

    /// From SQE back to RTS.
    pub(super) fn resume(&mut self) {
        if let Machine::Uc(qp) = self {
            qp.resume();
        }
    }

    pub(super) fn enter_error(&mut self) {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.enter_error(),
            Machine::Uc(qp) => qp.enter_error(),
        }
    }

    pub(super) fn post_send(
        &mut self,
        request: SendWork,
        memory: &impl Memory,
    ) -> Result<(), PostError> {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.post_send(request, memory),
            Machine::Uc(qp) => qp.post_send(request),
        }
    }

    #[inline]
    pub(super) fn post_receive(&mut self, request: ReceiveWork) -> Result<(), PostError> {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.post_receive(request),
            Machine::Uc(qp) => qp.post_receive(request),
        }
    }

    #[inline]
    pub(super) fn handle_packet(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.handle_packet(now, packet, memory),
            Machine::Uc(qp) => qp.handle_packet(packet, memory),
        }
    }

    pub(super) fn handle_unknown(&mut self, unknown: &UnknownOpcode) -> DropReason {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.handle_unknown(unknown),
            Machine::Uc(qp) => qp.handle_unknown(unknown),
        }
    }

    pub(super) fn handle_malformed(&mut self, bth: &Bth) -> DropReason {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.handle_malformed(bth),
            Machine::Uc(qp) => qp.handle_malformed(bth),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if let Machine::Rc(Reliable { qp, .. }) = self {
            qp.handle_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.poll_timeout(),
            Machine::Uc(_) => None,
        }
    }

    #[inline]
    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
        memory: &impl Memory,
        out: &mut PacketBuffer,
    ) -> Option<usize> {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.poll_transmit(now, memory, out),
            Machine::Uc(qp) => qp.poll_transmit(memory, out),
        }
    }

    /// Whether all there is to send is an acknowledgement.
    #[inline]
    pub(super) fn only_acknowledges(&self) -> bool {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.only_acknowledges(),
            Machine::Uc(_) => false,
        }
    }

    /// Whether a completion waits.
    #[inline]
    pub(super) fn has_completions(&self) -> bool {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.has_completions(),
            Machine::Uc(qp) => qp.has_completions(),
        }
    }

    #[inline]
    pub(super) fn poll_completion(&mut self) -> Option<Completion> {
        match self {
            Machine::Rc(Reliable { qp, .. }) => qp.poll_completion(),
            Machine::Uc(qp) => qp.poll_completion(),
        }
    }
}

fn requester(sending: &Sending, max_work: usize, window: u32) -> RequesterConfig {
    RequesterConfig {
        first_psn: sending.first_psn,
        max_work,
        timeout: sending.timeout,
        retries: sending.retries,
        rnr_retries: sending.rnr_retries,
        max_reads: sending.max_reads,
        window,
    }
}
