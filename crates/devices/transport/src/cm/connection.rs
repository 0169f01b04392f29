//! One connection, or one SIDR request.

use adverb_units::Time;
use adverb_verbs::Qpn;
use adverb_wire::cm::ServiceId;
use adverb_wire::mad;

/// Queue pair of a connection that has none yet.
pub(super) const NO_QP: Qpn = match Qpn::new(0) {
    Some(qpn) => qpn,
    None => unreachable!(),
};

/// State of a connection (12.9.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A REQ was sent.
    ReqSent,
    /// A REP arrived; the program has to answer.
    RepReceived,
    /// A REQ arrived; the program has to answer.
    ReqReceived,
    /// A REP was sent.
    RepSent,
    /// Connected.
    Established,
    /// A DREQ was sent.
    DreqSent,
    /// The connection has ended or was refused; its name is kept to answer repeated messages.
    TimeWait,
    /// A SIDR_REQ was sent.
    SidrReqSent,
    /// A SIDR_REQ arrived; the program has to answer.
    SidrReqReceived,
}

impl State {
    pub(super) const fn name(self) -> &'static str {
        match self {
            State::ReqSent => "waiting for the REP",
            State::RepReceived => "waiting for the program to answer a REP",
            State::ReqReceived => "waiting for the program to answer a REQ",
            State::RepSent => "waiting for the RTU",
            State::Established => "established",
            State::DreqSent => "waiting for the DREP",
            State::TimeWait => "ended",
            State::SidrReqSent => "waiting for the SIDR_REP",
            State::SidrReqReceived => "waiting for the program to answer a SIDR_REQ",
        }
    }
}

/// One connection, or one SIDR request.
#[derive(Debug)]
pub(super) struct Connection<P> {
    pub(super) peer: P,
    pub(super) state: State,
    /// The peer's name of the connection.
    pub(super) remote_id: u32,
    pub(super) remote_qpn: Qpn,
    /// Transaction ID of the messages.
    pub(super) transaction: u64,
    /// The message that is repeated: after a timeout, or when the peer repeats what it answers.
    pub(super) last: Option<Box<[u8; mad::LEN]>>,
    pub(super) retries_left: u8,
    pub(super) deadline: Option<Time>,
    /// The peer's message made it.
    pub(super) is_passive: bool,
    /// Passive: the peer's name, as in the request.
    pub(super) request_id: u32,
    /// Passive: the requested service.
    pub(super) service: Option<ServiceId>,
    /// Whether it belongs to the backlog of the service.
    pub(super) is_in_backlog: bool,
    /// The program has destroyed it.
    pub(super) is_orphan: bool,
}

impl<P> Connection<P> {
    pub(super) fn active(peer: P, id: u32, state: State) -> Self {
        Connection {
            peer,
            state,
            remote_id: 0,
            remote_qpn: NO_QP,
            transaction: u64::from(id),
            last: None,
            retries_left: 0,
            deadline: None,
            is_passive: false,
            request_id: 0,
            service: None,
            is_in_backlog: false,
            is_orphan: false,
        }
    }

    /// Enters a state in which nothing is repeated after a timeout.
    pub(super) fn settle(&mut self, state: State) {
        self.state = state;
        self.deadline = None;
        self.last = None;
    }
}
