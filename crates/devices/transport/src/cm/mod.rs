//! The communication manager as a state machine without I/O: connects queue pairs by the messages of IBTA vol. 1,
//! chapter 12, and resolves UD services (12.11).
//!
//! It is in this crate because it is driven like a queue pair: messages and the time go in, messages, events and the
//! next deadline come out. It knows neither queue pairs nor sockets; `P` names a peer's port, for example its socket
//! address.
//!
//! ```text
//!  active    connect ─REQ─► ReqSent ─◄REP─ RepReceived ─establish, RTU►─ Established ─disconnect, DREQ►─ DreqSent ┐
//!  passive   ◄REQ─ ReqReceived ─accept, REP►─ RepSent ─◄RTU─ Established ─◄DREQ, DREP►───────────── TimeWait ◄DREP┘
//! ```
//! **Lost messages.** The sender of a REQ, REP, DREQ or SIDR_REQ repeats it until it is answered. A state keeps the last
//! message that it sent, and sends it again when the peer repeats the message that it answered. Before the program has
//! decided, a repeated message is answered by a MRA, after which the peer waits longer.
//!
//! **Limits.** A listener holds at most its backlog of requests that the program has not taken. Further requests are
//! dropped, and the peer repeats them. The number of connections is bounded.

mod connection;
mod event;
mod passive;
mod timers;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::net::SocketAddr;

use adverb_units::{Span, Time};
use adverb_verbs::AckTimeout;
use adverb_wire::cm::{
    CmMessage, Drep, Dreq, MsgType, Rej, RejectReason, Rep, Req, Rtu, ServiceId, SidrReq,
};
use adverb_wire::mad;
use connection::{Connection, State};
pub use event::{CmEvent, ConnId};

/// A message and the peer that it goes to.
pub type Outgoing<P> = (P, [u8; mad::LEN]);

/// Name of a peer's port.
pub trait Peer: Copy + Debug + Eq + Hash {
    /// Whether a reply from `other` may answer a request to this port. On a host with several processes, each at its own
    /// port, another process than the addressed one may listen for a service.
    fn is_same_host(&self, other: &Self) -> bool;
}

impl Peer for SocketAddr {
    fn is_same_host(&self, other: &Self) -> bool {
        self.ip() == other.ip()
    }
}

/// Maximum number of connections, requests and connections in TimeWait.
const MAX_CONNECTIONS: usize = 1 << 16;

/// Timeouts and retries.
#[derive(Clone, Copy, Debug)]
pub struct CmParams {
    /// Time after which an unanswered message is repeated.
    pub response_timeout: AckTimeout,
    /// How often, at most 15.
    pub retries: u8,
    /// Additional time that a peer grants after a MRA.
    pub service_timeout: AckTimeout,
    /// How long the name of an ended connection is kept, to answer repeated messages.
    pub timewait: Span,
}

impl Default for CmParams {
    fn default() -> Self {
        let code = |n| AckTimeout::new(n).expect("less than 32");
        CmParams {
            // 0.54 s. The kernel's is 4.3 s: on a wide network with large fabrics.
            response_timeout: code(17),
            retries: 15,
            service_timeout: code(24),
            timewait: Span::from_ms(500),
        }
    }
}

/// The operation does not fit the state of the connection, or there is no such connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection {id:#x} is {state}: expected {expected}")]
pub struct WrongState {
    /// The connection.
    pub id: u32,
    /// Its state.
    pub state: &'static str,
    /// The states in which the operation is possible.
    pub expected: &'static str,
}

/// The manager of one port.
#[derive(Debug)]
pub struct Manager<P> {
    params: CmParams,
    connections: BTreeMap<u32, Connection<P>>,
    /// Connections that began with a message of the peer, by the peer's name of it.
    by_request: HashMap<(P, u32), u32>,
    listeners: HashMap<ServiceId, Listener>,
    next_id: u32,
    out: VecDeque<Outgoing<P>>,
    events: VecDeque<CmEvent<P>>,
}

/// A service that accepts requests.
#[derive(Clone, Copy, Debug)]
struct Listener {
    backlog: usize,
    /// Requests that the program has not answered.
    waiting: usize,
}

impl<P: Peer> Manager<P> {
    /// Makes a manager whose connections have names from `first_id` on. It should be random, so that a message to an
    /// earlier manager of the port matches no connection.
    pub fn new(params: CmParams, first_id: u32) -> Self {
        Manager {
            params,
            connections: BTreeMap::new(),
            by_request: HashMap::new(),
            listeners: HashMap::new(),
            next_id: first_id,
            out: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    // --- services

    /// Accepts requests for a service; at most `backlog` wait for the program. Returns false if somebody listens already.
    pub fn listen(&mut self, service: ServiceId, backlog: usize) -> bool {
        let listener = Listener {
            backlog,
            waiting: 0,
        };
        match self.listeners.entry(service) {
            std::collections::hash_map::Entry::Occupied(_) => false,
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(listener);
                true
            }
        }
    }

    /// Ends a service. Requests that the program has not answered stay.
    pub fn unlisten(&mut self, service: ServiceId) {
        self.listeners.remove(&service);
    }

    /// Returns whether a service accepts requests.
    pub fn is_listening(&self, service: ServiceId) -> bool {
        self.listeners.contains_key(&service)
    }

    // --- active side

    /// Sends a REQ, whose name of the connection is set here.
    pub fn connect(&mut self, now: Time, peer: P, req: Req) -> ConnId {
        let id = self.new_id();
        let message = CmMessage::Req(Req {
            local_id: id,
            max_cm_retries: self.params.retries,
            ..req
        });
        let connection = Connection::active(peer, id, State::ReqSent);
        self.connections.insert(id, connection);
        self.ask(now, id, &message);
        ConnId(id)
    }

    /// Sends a SIDR_REQ, whose name is set here.
    pub fn resolve(&mut self, now: Time, peer: P, req: SidrReq) -> ConnId {
        let id = self.new_id();
        let message = CmMessage::SidrReq(SidrReq {
            request_id: id,
            ..req
        });
        let connection = Connection::active(peer, id, State::SidrReqSent);
        self.connections.insert(id, connection);
        self.ask(now, id, &message);
        ConnId(id)
    }

    /// Answers a REP: the connection is established.
    ///
    /// # Errors
    /// There was no REP.
    pub fn establish(&mut self, id: ConnId, private_data: &[u8]) -> Result<(), WrongState> {
        let connection = self.expect(id, &[State::RepReceived], "waiting for the RTU")?;
        let message = CmMessage::Rtu(Rtu {
            local_id: id.0,
            remote_id: connection.remote_id,
            private_data: padded(private_data),
        });
        connection.state = State::Established;
        self.answer(id.0, &message);
        Ok(())
    }

    // --- both sides

    /// Refuses a REQ or REP.
    ///
    /// # Errors
    /// There is neither.
    pub fn reject(
        &mut self,
        now: Time,
        id: ConnId,
        (reason, private_data): (RejectReason, &[u8]),
    ) -> Result<(), WrongState> {
        let states = [State::ReqReceived, State::RepReceived];
        let connection = self.expect(id, &states, "waiting for an answer")?;
        let of = match connection.state {
            State::ReqReceived => MsgType::Req,
            _ => MsgType::Rep,
        };
        self.refuse(now, id.0, (of, reason, private_data));
        Ok(())
    }

    /// Sends a DREQ. A [`CmEvent::Disconnected`] follows when the peer has answered, or has not answered in time. Has no
    /// effect on a connection that is ending.
    ///
    /// # Errors
    /// It is not connected.
    pub fn disconnect(&mut self, now: Time, id: ConnId) -> Result<(), WrongState> {
        let states = [
            State::Established,
            State::RepSent,
            State::RepReceived,
            State::DreqSent,
            State::TimeWait,
        ];
        let connection = self.expect(id, &states, "connected")?;
        if matches!(connection.state, State::DreqSent | State::TimeWait) {
            return Ok(());
        }
        connection.state = State::DreqSent;
        let message = CmMessage::Dreq(Dreq {
            local_id: id.0,
            remote_id: connection.remote_id,
            remote_qpn: connection.remote_qpn,
            private_data: [0; Dreq::PRIVATE],
        });
        self.ask(now, id.0, &message);
        Ok(())
    }

    /// Reports that the peer's first message arrived on the queue pair, which replaces a lost RTU (12.9.8).
    ///
    /// # Errors
    /// No REP was sent.
    pub fn notify_established(&mut self, id: ConnId) -> Result<(), WrongState> {
        let states = [State::RepSent, State::Established];
        let connection = self.expect(id, &states, "waiting for the RTU")?;
        if connection.state == State::RepSent {
            connection.settle(State::Established);
            self.events.push_back(CmEvent::Established { id });
        }
        Ok(())
    }

    /// Forgets a connection in any state, after which it has no events. The peer is told, as far as it waits.
    pub fn destroy(&mut self, now: Time, id: ConnId) {
        self.events.retain(|event| event.conn() != id);
        let Some(connection) = self.connections.get_mut(&id.0) else {
            return;
        };
        connection.is_orphan = true;
        match connection.state {
            State::ReqSent => self.refuse(now, id.0, (MsgType::Other, RejectReason::TIMEOUT, &[])),
            State::ReqReceived => {
                self.refuse(now, id.0, (MsgType::Req, RejectReason::CONSUMER, &[]));
            }
            State::RepReceived => {
                self.refuse(now, id.0, (MsgType::Rep, RejectReason::CONSUMER, &[]));
            }
            State::RepSent | State::Established => {
                // Connected, so it cannot fail.
                let _ = self.disconnect(now, id);
            }
            State::SidrReqSent => self.remove(id.0),
            State::SidrReqReceived => self.refuse_sidr(now, id.0),
            State::DreqSent | State::TimeWait => {}
        }
    }

    /// Ends the connection to a peer that the caller knows to be gone, as if the peer had disconnected.
    pub fn lose(&mut self, now: Time, id: ConnId) {
        let state = self.connections.get(&id.0).map(|c| c.state);
        if let Some(State::RepSent | State::RepReceived | State::Established | State::DreqSent) =
            state
        {
            self.end(now, id.0);
        }
    }

    /// Returns the peer of a connection.
    pub fn peer(&self, id: ConnId) -> Option<P> {
        self.connections
            .get(&id.0)
            .map(|connection| connection.peer)
    }

    /// Returns the names of all connections that the program has not destroyed.
    pub fn connections(&self) -> impl Iterator<Item = ConnId> {
        let alive = self.connections.iter().filter(|(_, c)| !c.is_orphan);
        alive.map(|(id, _)| ConnId(*id))
    }

    // --- messages, time

    /// Takes a management datagram from a peer. Datagrams that are not messages of the communication manager, or fit no
    /// connection, are dropped.
    pub fn handle_mad(&mut self, now: Time, from: P, mad: &[u8]) {
        let Ok((transaction, message)) = CmMessage::parse(mad) else {
            return;
        };
        match message {
            CmMessage::Req(req) => self.take_req(now, (from, transaction), &req),
            CmMessage::SidrReq(req) => self.take_sidr_req(now, (from, transaction), &req),
            CmMessage::Mra(mra) => {
                let granted = mra.service_timeout.span().unwrap_or(Span::ZERO);
                self.take_mra(now, (from, mra.remote_id, mra.local_id), granted);
            }
            CmMessage::Rep(rep) => self.take_rep(from, &rep),
            CmMessage::Rtu(rtu) => self.take_rtu(from, rtu.remote_id),
            CmMessage::Rej(rej) => self.take_rej(now, from, &rej),
            CmMessage::Dreq(dreq) => self.take_dreq(now, (from, transaction), &dreq),
            CmMessage::Drep(drep) => self.take_drep(now, from, drep.remote_id),
            CmMessage::SidrRep(rep) => {
                if self.of_peer(from, rep.request_id, &[State::SidrReqSent]) {
                    self.remove(rep.request_id);
                    let id = ConnId(rep.request_id);
                    self.events.push_back(CmEvent::SidrReplied { id, rep });
                }
            }
        }
    }

    /// Takes the oldest message to send.
    pub fn poll_transmit(&mut self) -> Option<Outgoing<P>> {
        self.out.pop_front()
    }

    /// Takes the oldest event.
    pub fn poll_event(&mut self) -> Option<CmEvent<P>> {
        self.events.pop_front()
    }

    fn take_rep(&mut self, from: P, rep: &Rep) {
        let id = rep.remote_id;
        let Some(connection) = self.peers_connection(from, id) else {
            return;
        };
        match connection.state {
            State::ReqSent => {
                connection.peer = from;
                connection.remote_id = rep.local_id;
                connection.remote_qpn = rep.qpn;
                connection.settle(State::RepReceived);
                self.keep_mra(id, MsgType::Rep);
                let id = ConnId(id);
                self.events.push_back(CmEvent::Replied { id, rep: *rep });
            }
            _ if connection.remote_id == rep.local_id => self.repeat(id),
            _ => {}
        }
    }

    fn take_rtu(&mut self, from: P, id: u32) {
        if self.of_peer(from, id, &[State::RepSent]) {
            // It is in this state, so it cannot fail.
            let _ = self.notify_established(ConnId(id));
        }
    }

    fn take_rej(&mut self, now: Time, from: P, rej: &Rej) {
        // A requester that gives up before the reply does not know this side's name of the connection.
        let id = match rej.remote_id {
            0 => self.by_request.get(&(from, rej.local_id)).copied(),
            id => Some(id),
        };
        let Some(id) = id else { return };
        let Some(connection) = self.peers_connection(from, id) else {
            return;
        };
        let is_orphan = connection.is_orphan;
        match connection.state {
            State::ReqSent | State::RepSent | State::RepReceived | State::ReqReceived => {
                let event = CmEvent::Rejected {
                    id: ConnId(id),
                    reason: rej.reason,
                    private_data: rej.private_data,
                };
                self.leave_backlog(id);
                self.remove(id);
                if !is_orphan {
                    self.events.push_back(event);
                }
            }
            State::Established | State::DreqSent => self.end(now, id),
            State::TimeWait | State::SidrReqSent | State::SidrReqReceived => {}
        }
    }

    fn take_dreq(&mut self, now: Time, (from, transaction): (P, u64), dreq: &Dreq) {
        let id = dreq.remote_id;
        let state = self.peers_connection(from, id).map(|c| c.state);
        match state {
            Some(State::Established | State::RepSent | State::RepReceived | State::DreqSent) => {
                let message = CmMessage::Drep(Drep {
                    local_id: id,
                    remote_id: dreq.local_id,
                    private_data: [0; Drep::PRIVATE],
                });
                self.end(now, id);
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.transaction = transaction;
                }
                self.answer(id, &message);
            }
            Some(State::TimeWait) => self.repeat(id),
            // The connection ended long ago: the peer need not wait for a timeout.
            None => {
                let message = CmMessage::Drep(Drep {
                    local_id: id,
                    remote_id: dreq.local_id,
                    private_data: [0; Drep::PRIVATE],
                });
                self.out.push_back((from, message.to_mad(transaction)));
            }
            Some(_) => {}
        }
    }

    fn take_drep(&mut self, now: Time, from: P, id: u32) {
        if self.of_peer(from, id, &[State::DreqSent]) {
            self.end(now, id);
        }
    }

    /// Ends a connection: its name is kept for a while.
    fn end(&mut self, now: Time, id: u32) {
        let timewait = self.params.timewait;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.settle(State::TimeWait);
            connection.deadline = Some(now + timewait);
            if !connection.is_orphan {
                let id = ConnId(id);
                self.events.push_back(CmEvent::Disconnected { id });
            }
        }
    }

    /// Returns a connection in one of the `states`.
    fn expect(
        &mut self,
        id: ConnId,
        states: &[State],
        expected: &'static str,
    ) -> Result<&mut Connection<P>, WrongState> {
        let wrong = |state| WrongState {
            id: id.0,
            state,
            expected,
        };
        let connection = self.connections.get_mut(&id.0).ok_or(wrong("closed"))?;
        match states.contains(&connection.state) {
            true => Ok(connection),
            false => Err(wrong(connection.state.name())),
        }
    }

    /// Returns a connection to this peer.
    fn peers_connection(&mut self, from: P, id: u32) -> Option<&mut Connection<P>> {
        let connection = self.connections.get_mut(&id)?;
        let is_peer = match connection.state {
            State::ReqSent | State::SidrReqSent => connection.peer.is_same_host(&from),
            _ => connection.peer == from,
        };
        is_peer.then_some(connection)
    }

    /// Returns whether a connection is one to this peer, in one of the `states`.
    fn of_peer(&mut self, from: P, id: u32, states: &[State]) -> bool {
        let connection = self.peers_connection(from, id);
        connection.is_some_and(|connection| states.contains(&connection.state))
    }

    fn new_id(&mut self) -> u32 {
        loop {
            let id = self.next_id;
            self.next_id = id.wrapping_add(1);
            if id != 0 && !self.connections.contains_key(&id) {
                return id;
            }
        }
    }

    fn remove(&mut self, id: u32) {
        if let Some(connection) = self.connections.remove(&id)
            && connection.is_passive
        {
            self.by_request
                .remove(&(connection.peer, connection.request_id));
        }
    }
}

/// Returns private data, padded with zeros. The caller has checked its length.
fn padded<const N: usize>(data: &[u8]) -> [u8; N] {
    debug_assert!(data.len() <= N, "{} B of private data", data.len());
    std::array::from_fn(|index| data.get(index).copied().unwrap_or(0))
}
