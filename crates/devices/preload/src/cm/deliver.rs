//! Turns the manager's events into the program's. Runs on the agent's thread, with the agent locked.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use adverb_abi::{IBV_QPT_RC, IBV_QPT_UC, rdma_conn_param, rdma_ud_param};
use adverb_transport::cm::{CmEvent, ConnId};
use adverb_units::Time;
use adverb_verbs::Gid;
use adverb_wire::cm::{
    IpCmHeader, RejectReason, Rep, Req, ServiceId, ServiceType, SidrRep, SidrReq, SidrStatus,
};

use super::address;
use super::agent::{Agent, AgentState};
use super::channel::{Event, Param};
use super::event::Kind;
use super::id::{self, Origin, Peer, Phase, Shared};
use crate::object::lock;

/// How long a program gets to poll the last completions of a connection before it learns that the peer has ended it. A
/// peer in the same host disconnects within microseconds of its last message, or of the acknowledgement of the program's
/// own, which may be while the program's thread is not running; over a network it takes longer. libfabric destroys the
/// queue pair and what has not been polled, and reports the sends among that as flushed.
const LAST_COMPLETIONS: Duration = Duration::from_millis(200);

/// Delivers the events of the manager.
pub(super) fn events(agent: &'static Agent, state: &mut AgentState, now: Time) {
    while let Some(next) = state.manager.poll_event() {
        event(agent, state, now, next);
    }
    end_connections(agent, state);
}

fn event(agent: &'static Agent, state: &mut AgentState, now: Time, event: CmEvent<SocketAddr>) {
    let conn = event.conn();
    match event {
        CmEvent::Request { peer, req, .. } => request(agent, state, (now, conn, peer), &req),
        CmEvent::SidrRequest { peer, req, .. } => {
            sidr_request(agent, state, (now, conn, peer), &req);
        }
        CmEvent::Replied { rep, .. } => replied(agent, state, conn, &rep),
        CmEvent::Established { .. } => {
            simple(state, conn, (Phase::Connected, Kind::Established, 0));
        }
        CmEvent::Unreachable { .. } => last(state, conn, (Kind::Unreachable, -libc::ETIMEDOUT)),
        CmEvent::Disconnected { .. } => {
            state.peers.remove(&conn);
            state.ending.push((conn, Instant::now() + LAST_COMPLETIONS));
        }
        CmEvent::TimewaitExit { .. } => last(state, conn, (Kind::TimewaitExit, 0)),
        CmEvent::Rejected {
            reason,
            private_data,
            ..
        } => {
            state.peers.remove(&conn);
            if let Some(shared) = state.conns.remove(&conn)
                && enter(&shared, Phase::Disconnected) == IsKnown::Yes
            {
                let mut event = Event::new(Kind::Rejected, c_int::from(reason.0), &shared);
                event.private_data = private_data.to_vec();
                shared.push(event);
            }
        }
        CmEvent::SidrReplied { rep, .. } => sidr_replied(state, conn, &rep),
    }
}

/// Tells the program that connections have ended whose last completions it has polled.
fn end_connections(agent: &Agent, state: &mut AgentState) {
    if state.ending.is_empty() {
        return;
    }
    let now = Instant::now();
    let mut ending = std::mem::take(&mut state.ending);
    ending.retain(|(conn, latest)| {
        let shared = state.conns.get(conn);
        let qpn = shared.and_then(|shared| lock(&shared.state).qpn);
        let waits = now < *latest && qpn.is_some_and(|qpn| agent.has_unpolled_completions(qpn));
        if !waits {
            simple(state, *conn, (Phase::Disconnected, Kind::Disconnected, 0));
        }
        waits
    });
    state.ending = ending;
}

fn simple(state: &AgentState, conn: ConnId, (phase, kind, status): (Phase, Kind, c_int)) {
    if let Some(shared) = state.conns.get(&conn)
        && enter(shared, phase) == IsKnown::Yes
    {
        shared.push(Event::new(kind, status, shared));
    }
}

/// Delivers the last event of a connection.
fn last(state: &mut AgentState, conn: ConnId, (kind, status): (Kind, c_int)) {
    simple(state, conn, (Phase::Disconnected, kind, status));
    state.conns.remove(&conn);
    state.peers.remove(&conn);
}

/// Whether the program expects events of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IsKnown {
    Yes,
    /// It has not accepted the request yet, and its context in the id may be the listener's. As with the kernel, it
    /// learns from `rdma_accept` that the requester has given up.
    No,
}

fn enter(shared: &Shared, phase: Phase) -> IsKnown {
    match std::mem::replace(&mut lock(&shared.state).phase, phase) {
        Phase::Requested => IsKnown::No,
        _ => IsKnown::Yes,
    }
}

/// Addresses of a request: the requester's, and this host's.
struct Ends {
    remote: SocketAddr,
    local: SocketAddr,
}

impl Ends {
    /// Reads the header in the private data. Requests outside the IP CM service have none: the port numbers are 0.
    fn of(service: ServiceId, private: &[u8], gids: [IpAddr; 2]) -> (Self, Vec<u8>) {
        let port = service.port().map_or(0, |(_, port)| port);
        match IpCmHeader::parse(private) {
            Ok((header, rest)) => {
                let ends = Ends {
                    remote: SocketAddr::new(header.source.to_canonical(), header.source_port),
                    local: SocketAddr::new(header.destination.to_canonical(), port),
                };
                (ends, rest.to_vec())
            }
            Err(_) => {
                let [remote, local] = gids;
                let ends = Ends {
                    remote: SocketAddr::new(remote, 0),
                    local: SocketAddr::new(local, port),
                };
                (ends, private.to_vec())
            }
        }
    }
}

fn ip_of(gid: Gid) -> IpAddr {
    IpAddr::from(gid.0).to_canonical()
}

/// Makes the id of a request to `listener`.
fn child(
    agent: &'static Agent,
    listener: &Arc<Shared>,
    (conn, qp_type, ends): (ConnId, u32, &Ends),
) -> Arc<Shared> {
    let (channel, space) = {
        let state = lock(&listener.state);
        (state.channel.clone(), state.space)
    };
    let c = listener.c();
    // SAFETY: the listener is alive: it is removed from the agent's list before it is destroyed.
    let (c_channel, context) = unsafe { ((*c).channel, (*c).context) };
    let shared = id::create(Origin {
        c_channel,
        channel,
        context,
        space,
        qp_type,
        phase: Phase::Requested,
    });
    shared.bind_to(agent, (ends.local, Some(ends.remote)));
    // SAFETY: the listener is alive. Its protection domain, if it has one, is the default of its connections.
    unsafe {
        if !(*c).pd.is_null() {
            (*shared.c()).pd = (*c).pd;
        }
    }
    lock(&shared.state).conn = Some(conn);
    shared
}

fn request(
    agent: &'static Agent,
    state: &mut AgentState,
    (now, conn, peer): (Time, ConnId, SocketAddr),
    req: &Req,
) {
    let Some(listener) = state.listeners.get(&req.service).cloned() else {
        state.manager.destroy(now, conn);
        return;
    };
    let qp_type = match req.service_type {
        ServiceType::Rc => IBV_QPT_RC,
        ServiceType::Uc => IBV_QPT_UC,
        ServiceType::XRC => adverb_abi::IBV_QPT_XRC_RECV,
        ServiceType::Rd | ServiceType::Extended(_) => {
            let why = (RejectReason::INVALID_SERVICE_TYPE, &[][..]);
            // The program has not seen it, so it cannot have answered it.
            let _ = state.manager.reject(now, conn, why);
            return;
        }
    };
    let gids = [ip_of(req.primary.local_gid), ip_of(req.primary.remote_gid)];
    let (ends, private_data) = Ends::of(req.service, &req.private_data, gids);
    let shared = child(agent, &listener, (conn, qp_type, &ends));
    // What the requester serves is what this side may have outstanding, and the other way round.
    let (responder_resources, initiator_depth) = (req.initiator_depth, req.responder_resources);
    lock(&shared.state).peer = Peer {
        gid: Some(req.primary.local_gid),
        qpn: req.qpn.get(),
        starting_psn: req.starting_psn.get(),
        mtu: Some(req.path_mtu.min(agent.mtu)),
        responder_resources,
        initiator_depth,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        traffic_class: req.primary.traffic_class,
        ack_timeout: req.primary.ack_timeout.code(),
        ..Peer::default()
    };
    if let Some(process) = agent.gsi.process_at(peer) {
        state.peers.insert(conn, (peer, process));
    }
    state.conns.insert(conn, shared.clone());
    let mut event = Event::new(Kind::ConnectRequest, 0, &shared);
    event.listener = Some(listener.clone());
    event.private_data = private_data;
    event.param = Param::Conn(rdma_conn_param {
        responder_resources,
        initiator_depth,
        flow_control: req.has_flow_control.into(),
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry_count,
        srq: req.has_srq.into(),
        qp_num: req.qpn.get(),
        ..rdma_conn_param::zeroed()
    });
    listener.push(event);
}

fn sidr_request(
    agent: &'static Agent,
    state: &mut AgentState,
    (now, conn, peer): (Time, ConnId, SocketAddr),
    req: &SidrReq,
) {
    let Some(listener) = state.listeners.get(&req.service).cloned() else {
        state.manager.destroy(now, conn);
        return;
    };
    let gids = [peer.ip().to_canonical(), agent.ip];
    let (ends, private_data) = Ends::of(req.service, &req.private_data, gids);
    let qp_type = adverb_abi::IBV_QPT_UD;
    let shared = child(agent, &listener, (conn, qp_type, &ends));
    state.conns.insert(conn, shared.clone());
    let mut event = Event::new(Kind::ConnectRequest, 0, &shared);
    event.listener = Some(listener.clone());
    event.private_data = private_data;
    event.param = Param::Ud(rdma_ud_param::zeroed());
    listener.push(event);
}

fn replied(agent: &Agent, state: &mut AgentState, conn: ConnId, rep: &Rep) {
    let Some(shared) = state.conns.get(&conn).cloned() else {
        return;
    };
    {
        let mut own = lock(&shared.state);
        own.phase = Phase::Replied;
        own.peer.qpn = rep.qpn.get();
        own.peer.starting_psn = rep.starting_psn.get();
        own.peer.rnr_retry_count = rep.rnr_retry_count;
        // The reply has what the peer agreed to, possibly less than was requested. A peer with another device may allow or
        // want more than this one can do.
        own.peer.responder_resources = rep.initiator_depth.min(agent.max_rd_atom);
        own.peer.initiator_depth = rep.responder_resources.min(agent.max_rd_atom);
    }
    if let Some(peer) = state.manager.peer(conn)
        && let Some(process) = agent.gsi.process_at(peer)
    {
        state.peers.insert(conn, (peer, process));
    }
    let mut event = Event::new(Kind::ConnectResponse, 0, &shared);
    event.private_data = rep.private_data.to_vec();
    event.param = Param::Conn(rdma_conn_param {
        responder_resources: rep.initiator_depth,
        initiator_depth: rep.responder_resources,
        flow_control: rep.has_flow_control.into(),
        rnr_retry_count: rep.rnr_retry_count,
        srq: rep.has_srq.into(),
        qp_num: rep.qpn.get(),
        ..rdma_conn_param::zeroed()
    });
    event.is_reply = true;
    shared.push(event);
}

fn sidr_replied(state: &mut AgentState, conn: ConnId, rep: &SidrRep) {
    let Some(shared) = state.conns.remove(&conn) else {
        return;
    };
    let (is_valid, remote) = {
        let mut own = lock(&shared.state);
        let is_valid = rep.status == SidrStatus::VALID;
        own.conn = None;
        own.phase = match is_valid {
            true => Phase::Connected,
            false => Phase::Disconnected,
        };
        let remote = own.remote.zip(own.agent);
        (
            is_valid,
            remote.map(|(to, agent)| agent.reached_as(to.ip())),
        )
    };
    let (kind, status) = match is_valid {
        true => (Kind::Established, 0),
        false => (Kind::Unreachable, c_int::from(rep.status.0)),
    };
    let mut event = Event::new(kind, status, &shared);
    event.private_data = rep.private_data.to_vec();
    if let Some(remote) = remote.filter(|_| is_valid) {
        event.param = Param::Ud(rdma_ud_param {
            ah_attr: address::ah_attr(remote, 0),
            qp_num: rep.qpn.get(),
            qkey: rep.qkey,
            ..rdma_ud_param::zeroed()
        });
    }
    shared.push(event);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process of a peer that did not complete the handshake was watched indefinitely.
    #[test]
    fn a_connection_that_has_ended_is_not_watched() {
        let (mut state, conn) = (AgentState::new(), ConnId(1));
        let peer = SocketAddr::from(([127, 0, 0, 1], 4791));
        state.peers.insert(conn, (peer, 7));
        last(&mut state, conn, (Kind::Unreachable, -libc::ETIMEDOUT));
        assert!(state.peers.is_empty());
    }
}
