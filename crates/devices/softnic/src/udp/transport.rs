//! The transport state machine of a connected queue pair: RC or UC.

use adverb_transport::{
    Completion, Counters, DropReason, Memory, PacketBuffer, PostError, RcConfig, RcQp,
    ReceiveQueue, ReceiveWork, RequesterConfig, ResponderConfig, ResponderFault, SendWork,
    UcConfig, UcQp,
};
use adverb_units::Time;
use adverb_verbs::{
    AccessFlags, AckTimeout, Psn, QpAttr, QpState, QpType, Qpn, RetryParams, RnrTimer, Srqn,
    WcStatus,
};
use adverb_wire::{Bth, Packet, UnknownOpcode};

/// Packets in flight over a path that is short or loses packets.
const SHORT_PATH: u32 = 256;

/// The local side of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalEnd {
    pub(super) qpn: Qpn,
    pub(super) service: QpType,
    /// Maximum number of outstanding send requests.
    pub(super) max_work: usize,
    /// Maximum number of packets in flight.
    pub(super) window: u32,
}

/// RC or UC. Operations that UC lacks (timers, retries) have no effect on it.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is in a link's box, and an indirection would be on the data path"
)]
pub(super) enum ConnectedTransport {
    Rc(RcQp),
    Uc(UcQp),
}

/// Calls the same method of either transport.
macro_rules! either {
    ($transport:expr, $qp:ident => $call:expr) => {
        match $transport {
            ConnectedTransport::Rc($qp) => $call,
            ConnectedTransport::Uc($qp) => $call,
        }
    };
}

impl ConnectedTransport {
    /// Makes a transport that receives from the peer named by `rtr` and does not send yet.
    pub(super) fn new(own: &LocalEnd, rtr: &QpAttr, receives: ReceiveQueue) -> Self {
        // Invariant: the transition table requires these attributes for RTR.
        let required = "RTR has it";
        let peer = rtr.dest_qpn.expect(required);
        let path_mtu = rtr.path_mtu.expect(required);
        let peer_first_psn = rtr.rq_psn.expect(required);
        // The program may change access rights at any time, so they are checked with each access to memory.
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
            return ConnectedTransport::Uc(UcQp::new(&config, receives));
        }
        let config = RcConfig {
            qp_type: own.service,
            qpn: own.qpn,
            peer,
            path_mtu,
            // The other attributes are set by RTS, before anything is sent.
            requester: RequesterConfig {
                first_psn: Psn::default(),
                max_work: own.max_work,
                retry: RetryParams::default(),
                max_reads: 0,
                window: own.window.min(SHORT_PATH),
                max_window: own.window,
            },
            responder: ResponderConfig {
                first_psn: peer_first_psn,
                access,
                // An XRC send queue pair has no responder.
                max_reads: rtr.max_dest_rd_atomic.unwrap_or(0),
                rnr_timer: rtr.min_rnr_timer.unwrap_or(RnrTimer::LONGEST),
            },
        };
        ConnectedTransport::Rc(RcQp::new(&config, receives))
    }

    /// Applies a Modify QP after RTR.
    pub(super) fn modify(&mut self, attr: &QpAttr) {
        let mut attr = *attr;
        attr.timeout = attr.timeout.map(in_software);
        attr.access = None; // checked with each access to memory
        either!(self, qp => qp.modify(&attr));
    }

    #[inline]
    pub(super) fn state(&self) -> QpState {
        either!(self, qp => qp.state())
    }

    /// XRC: as [`RcQp::reads_for`].
    pub(super) fn reads_for(&self) -> Option<Srqn> {
        match self {
            ConnectedTransport::Rc(qp) => qp.reads_for(),
            ConnectedTransport::Uc(_) => None,
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        either!(self, qp => qp.counters())
    }

    pub(super) fn enter_error(&mut self) {
        either!(self, qp => qp.enter_error());
    }

    pub(super) fn post_send(
        &mut self,
        request: SendWork,
        memory: &impl Memory,
    ) -> Result<(), PostError> {
        match self {
            ConnectedTransport::Rc(qp) => qp.post_send(request, memory),
            ConnectedTransport::Uc(qp) => qp.post_send(request),
        }
    }

    /// Posts a request that [`ConnectedTransport::post_send`] has refused with `status`; UC refuses it at once.
    #[cold]
    pub(super) fn post_failed(
        &mut self,
        request: SendWork,
        status: WcStatus,
    ) -> Result<(), WcStatus> {
        match self {
            ConnectedTransport::Rc(qp) => qp.post_failed(request, status).map_err(|_| status),
            ConnectedTransport::Uc(_) => Err(status),
        }
    }

    #[inline]
    pub(super) fn post_receive(&mut self, request: ReceiveWork) -> Result<(), PostError> {
        either!(self, qp => qp.post_receive(request))
    }

    #[inline]
    pub(super) fn handle_packet(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), DropReason> {
        match self {
            ConnectedTransport::Rc(qp) => qp.handle_packet(now, packet, memory),
            ConnectedTransport::Uc(qp) => qp.handle_packet(packet, memory),
        }
    }

    pub(super) fn handle_unknown(&mut self, unknown: &UnknownOpcode) -> DropReason {
        either!(self, qp => qp.handle_unknown(unknown))
    }

    pub(super) fn handle_malformed(&mut self, bth: &Bth) -> DropReason {
        either!(self, qp => qp.handle_malformed(bth))
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if let ConnectedTransport::Rc(qp) = self {
            qp.handle_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        match self {
            ConnectedTransport::Rc(qp) => qp.poll_timeout(),
            ConnectedTransport::Uc(_) => None,
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
            ConnectedTransport::Rc(qp) => qp.poll_transmit(now, memory, out),
            ConnectedTransport::Uc(qp) => qp.poll_transmit(memory, out),
        }
    }

    /// Whether it has only an ACK to send.
    #[inline]
    pub(super) fn only_acknowledges(&self) -> bool {
        match self {
            ConnectedTransport::Rc(qp) => qp.only_acknowledges(),
            ConnectedTransport::Uc(_) => false,
        }
    }

    /// Whether a send request is not complete.
    pub(super) fn has_unfinished_sends(&self) -> bool {
        either!(self, qp => qp.has_unfinished_sends())
    }

    /// Whether it is in SQD and not drained.
    pub(super) fn is_draining(&self) -> bool {
        either!(self, qp => qp.is_draining())
    }

    /// Takes why the responder ended the connection, if it did.
    pub(super) fn take_fault(&mut self) -> Option<ResponderFault> {
        match self {
            ConnectedTransport::Rc(qp) => qp.take_fault(),
            ConnectedTransport::Uc(_) => None,
        }
    }

    /// Whether completions are pending.
    #[inline]
    pub(super) fn has_completions(&self) -> bool {
        either!(self, qp => qp.has_completions())
    }

    #[inline]
    pub(super) fn poll_completion(&mut self) -> Option<Completion> {
        either!(self, qp => qp.poll_completion())
    }
}

/// Returns four times the timeout: the specification lets a timer take that long (IBTA vol. 1, 9.7.6.1.3). The
/// responder is a thread: if many threads are runnable, it waits for a core for some milliseconds, possibly
/// more than once per response. Nothing else should delay it: packets are received by a thread that polls or
/// sleeps on the socket, and by the engine two ticks after the last poll, even if the process posts without end
/// (`a_side_that_posts_and_never_polls_serves_its_peer`).
fn in_software(timeout: AckTimeout) -> AckTimeout {
    match timeout.code() {
        0 => timeout, // infinite
        code => AckTimeout::new(code.saturating_add(2).min(31)).unwrap_or(timeout),
    }
}
