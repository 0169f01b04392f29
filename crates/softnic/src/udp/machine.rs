//! The transport of a connected queue pair, by its service.

use adverb_transport::{
    Completion, Counters, CreditPolicy, DropReason, Memory, PacketBuffer, PostError, RcConfig,
    RcQp, ReceiveQueue, ReceiveWork, RequesterConfig, ResponderConfig, SendWork, UcConfig, UcQp,
};
use adverb_units::Time;
use adverb_verbs::{AccessFlags, AckTimeout, Psn, QpAttr, QpState, QpType, Qpn, RetryParams};
use adverb_wire::{Bth, Packet, UnknownOpcode};

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
    Rc(RcQp),
    Uc(UcQp),
}

impl Machine {
    /// One that receives from the peer that `rtr` names, into as many requests as `receives` holds, and
    /// does not send yet.
    pub(super) fn new(own: &Own, rtr: &QpAttr, receives: ReceiveQueue) -> Self {
        // Invariant: the transition table does not let it to RTR without.
        let required = "RTR has it";
        let peer = rtr.dest_qpn.expect(required);
        let path_mtu = rtr.path_mtu.expect(required);
        let peer_first_psn = rtr.rq_psn.expect(required);
        // The program may change it at any time: memory is asked each time.
        let access = AccessFlags::all();
        if own.service == QpType::Uc {
            let config = UcConfig {
                qpn: own.qpn,
                peer,
                path_mtu,
                first_psn: Psn::default(),
                peer_first_psn,
                access,
                max_work: own.max_work,
            };
            return Machine::Uc(UcQp::new(&config, receives));
        }
        let config = RcConfig {
            qpn: own.qpn,
            peer,
            path_mtu,
            // RTS sets the rest, before anything is sent.
            requester: RequesterConfig {
                first_psn: Psn::default(),
                max_work: own.max_work,
                retry: RetryParams::default(),
                max_reads: 0,
                window: own.window,
            },
            responder: ResponderConfig {
                first_psn: peer_first_psn,
                access,
                max_reads: rtr.max_dest_rd_atomic.expect(required),
                rnr_timer: rtr.min_rnr_timer.expect(required),
                credits: CreditPolicy::None,
            },
        };
        Machine::Rc(RcQp::new(&config, receives))
    }

    /// Applies a Modify QP after RTR.
    pub(super) fn modify(&mut self, attr: &QpAttr) {
        let mut attr = *attr;
        attr.timeout = attr.timeout.map(in_software);
        attr.access = None; // memory is asked each time
        match self {
            Machine::Rc(qp) => qp.modify(&attr),
            Machine::Uc(qp) => qp.modify(&attr),
        }
    }

    #[inline]
    pub(super) fn state(&self) -> QpState {
        match self {
            Machine::Rc(qp) => qp.state(),
            Machine::Uc(qp) => qp.state(),
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        match self {
            Machine::Rc(qp) => qp.counters(),
            Machine::Uc(qp) => qp.counters(),
        }
    }

    pub(super) fn enter_error(&mut self) {
        match self {
            Machine::Rc(qp) => qp.enter_error(),
            Machine::Uc(qp) => qp.enter_error(),
        }
    }

    pub(super) fn post_send(
        &mut self,
        request: SendWork,
        memory: &impl Memory,
    ) -> Result<(), PostError> {
        match self {
            Machine::Rc(qp) => qp.post_send(request, memory),
            Machine::Uc(qp) => qp.post_send(request),
        }
    }

    #[inline]
    pub(super) fn post_receive(&mut self, request: ReceiveWork) -> Result<(), PostError> {
        match self {
            Machine::Rc(qp) => qp.post_receive(request),
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
            Machine::Rc(qp) => qp.handle_packet(now, packet, memory),
            Machine::Uc(qp) => qp.handle_packet(packet, memory),
        }
    }

    pub(super) fn handle_unknown(&mut self, unknown: &UnknownOpcode) -> DropReason {
        match self {
            Machine::Rc(qp) => qp.handle_unknown(unknown),
            Machine::Uc(qp) => qp.handle_unknown(unknown),
        }
    }

    pub(super) fn handle_malformed(&mut self, bth: &Bth) -> DropReason {
        match self {
            Machine::Rc(qp) => qp.handle_malformed(bth),
            Machine::Uc(qp) => qp.handle_malformed(bth),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if let Machine::Rc(qp) = self {
            qp.handle_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        match self {
            Machine::Rc(qp) => qp.poll_timeout(),
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
            Machine::Rc(qp) => qp.poll_transmit(now, memory, out),
            Machine::Uc(qp) => qp.poll_transmit(memory, out),
        }
    }

    /// Whether all there is to send is an acknowledgement.
    #[inline]
    pub(super) fn only_acknowledges(&self) -> bool {
        match self {
            Machine::Rc(qp) => qp.only_acknowledges(),
            Machine::Uc(_) => false,
        }
    }

    /// Whether a completion waits.
    #[inline]
    pub(super) fn has_completions(&self) -> bool {
        match self {
            Machine::Rc(qp) => qp.has_completions(),
            Machine::Uc(qp) => qp.has_completions(),
        }
    }

    #[inline]
    pub(super) fn poll_completion(&mut self) -> Option<Completion> {
        match self {
            Machine::Rc(qp) => qp.poll_completion(),
            Machine::Uc(qp) => qp.poll_completion(),
        }
    }
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
