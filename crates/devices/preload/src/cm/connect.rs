//! Connects, accepts, rejects and disconnects.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use adverb_abi::{IBV_QPT_UC, IBV_QPT_XRC_SEND, ibv_ece, rdma_cm_id, rdma_conn_param};
use adverb_transport::cm::WrongState;
use adverb_verbs::{AckTimeout, Gid, Psn};
use adverb_wire::cm::{IpCmHeader, Path, RejectReason, Rep, Req, ServiceId, ServiceType, SidrReq};

use super::agent::Agent;
use super::id::{Phase, Shared};
use super::param::{Wanted, padded, private, with_header};
use super::path::RATE;
use super::{address, datagram, qp};
use crate::call::{self, Refusal};
use crate::object::lock;

/// Response timeouts in a REQ: as the manager's own.
const RESPONSE: u8 = 17;
/// LIDs do not exist on Ethernet.
const PERMISSIVE_LID: u16 = 0xffff;
/// Reason of `rdma_reject_ece`: the vendor option is not supported (12.6.7).
const REJECT_VENDOR_OPTION: RejectReason = RejectReason(35);

impl From<WrongState> for Refusal {
    fn from(error: WrongState) -> Self {
        Refusal::invalid(error.to_string())
    }
}

fn timeout(code: u8) -> AckTimeout {
    AckTimeout::new(code & 0x1f).expect("5 bits make a timeout")
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    call::number("rdma_connect", || {
        let shared = Shared::of(id)?;
        let (phase, space) = {
            let state = lock(&shared.state);
            (state.phase, state.space)
        };
        if phase != Phase::RouteResolved {
            return Err(Refusal::invalid(format!(
                "an id that is {phase:?} cannot connect: resolve the route first"
            )));
        }
        let agent = shared.agent()?;
        let header = match space.is_datagram() {
            true => SidrReq::PRIVATE,
            false => Req::PRIVATE,
        };
        let most = header - IpCmHeader::LEN;
        let limits = (
            most,
            agent.max_rd_atom,
            (agent.max_rd_atom, agent.max_rd_atom),
        );
        // SAFETY: the program passes NULL or parameters with private data.
        let mut wanted = unsafe { Wanted::read(id, param, limits) }?;
        if wanted.private_data.is_empty() {
            wanted.private_data = lock(&shared.state).connect_data.clone();
            wanted.private_data.truncate(most);
        }
        match space.is_datagram() {
            true => resolve(&shared, agent, &wanted)?,
            false => request(&shared, agent, &wanted)?,
        }
        shared.complete()?;
        Ok(0)
    })
}

/// Returns the service that an id connects to, and the header for its private data.
fn service(shared: &Shared) -> Result<(ServiceId, IpCmHeader), Refusal> {
    let state = lock(&shared.state);
    let (Some(local), Some(remote)) = (state.local, state.remote) else {
        return Err(Refusal::invalid("the id has no addresses"));
    };
    let header = IpCmHeader {
        source: local.ip(),
        source_port: local.port(),
        destination: remote.ip(),
    };
    Ok((ServiceId::of(state.space, remote.port()), header))
}

fn request(shared: &Arc<Shared>, agent: &'static Agent, wanted: &Wanted) -> Result<(), Refusal> {
    let (service, header) = service(shared)?;
    let to = agent.reached_as(header.destination);
    // SAFETY: the id is alive.
    let qp_type = unsafe { (*shared.c()).qp_type };
    let (class, ack_timeout, psn) = {
        let mut state = lock(&shared.state);
        state.phase = Phase::Connecting;
        state.qpn = Some(wanted.qpn);
        let peer = &mut state.peer;
        peer.gid = Some(Gid(gid(to)));
        peer.mtu = Some(agent.mtu);
        peer.responder_resources = wanted.responder_resources;
        peer.initiator_depth = wanted.initiator_depth;
        peer.retry_count = wanted.retry_count;
        (peer.traffic_class, peer.ack_timeout, peer.own_psn)
    };
    let req = Req {
        local_id: 0,
        service,
        ca_guid: agent.guid,
        qkey: 0,
        qpn: wanted.qpn,
        responder_resources: wanted.responder_resources,
        initiator_depth: wanted.initiator_depth,
        remote_response_timeout: timeout(RESPONSE),
        service_type: match qp_type {
            IBV_QPT_UC => ServiceType::Uc,
            IBV_QPT_XRC_SEND => ServiceType::XRC,
            _ => ServiceType::Rc,
        },
        has_flow_control: wanted.has_flow_control,
        starting_psn: Psn::new(psn),
        local_response_timeout: timeout(RESPONSE),
        retry_count: wanted.retry_count,
        pkey: 0xffff,
        path_mtu: agent.mtu,
        rnr_retry_count: wanted.rnr_retry_count,
        max_cm_retries: 0,
        has_srq: wanted.has_srq,
        primary: Path {
            local_lid: PERMISSIVE_LID,
            remote_lid: PERMISSIVE_LID,
            local_gid: Gid(gid(agent.ip)),
            remote_gid: Gid(gid(to)),
            flow_label: 0,
            rate: RATE,
            traffic_class: class,
            hop_limit: 64,
            sl: 0,
            is_subnet_local: false,
            ack_timeout: timeout(ack_timeout),
        },
        private_data: with_header(&header, &wanted.private_data),
    };
    let peer = agent.gsi.listener(to, service.0);
    agent.with(|state, now| {
        let conn = state.manager.connect(now, peer, req);
        state.conns.insert(conn, shared.clone());
        lock(&shared.state).conn = Some(conn);
    });
    Ok(())
}

fn gid(ip: std::net::IpAddr) -> [u8; 16] {
    // SAFETY: both members of the union are 16 bytes.
    unsafe { address::gid(ip).raw }
}

/// Resolves a UD service.
fn resolve(shared: &Arc<Shared>, agent: &'static Agent, wanted: &Wanted) -> Result<(), Refusal> {
    let (service, header) = service(shared)?;
    lock(&shared.state).phase = Phase::Connecting;
    let req = SidrReq {
        request_id: 0,
        pkey: 0xffff,
        service,
        private_data: with_header(&header, &wanted.private_data),
    };
    let peer = agent
        .gsi
        .listener(agent.reached_as(header.destination), service.0);
    agent.with(|state, now| {
        let conn = state.manager.resolve(now, peer, req);
        state.conns.insert(conn, shared.clone());
        lock(&shared.state).conn = Some(conn);
    });
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    call::number("rdma_accept", || {
        let shared = Shared::of(id)?;
        let (agent, conn) = shared.connection()?;
        let (space, peer) = {
            let state = lock(&shared.state);
            (state.space, state.peer)
        };
        let defaults = (peer.responder_resources, peer.initiator_depth);
        if space.is_datagram() {
            let limits = (
                adverb_wire::cm::SidrRep::PRIVATE,
                agent.max_rd_atom,
                defaults,
            );
            // SAFETY: the program passes NULL or parameters with private data.
            let wanted = unsafe { Wanted::read(id, param, limits) }?;
            datagram::accept(&shared, &wanted)?;
            return Ok(0);
        }
        let limits = (Rep::PRIVATE, agent.max_rd_atom, defaults);
        // SAFETY: as above.
        let wanted = unsafe { Wanted::read(id, param, limits) }?;
        let psn = peer.own_psn;
        {
            let mut state = lock(&shared.state);
            state.qpn = Some(wanted.qpn);
            state.peer.responder_resources = wanted.responder_resources;
            state.peer.initiator_depth = wanted.initiator_depth;
        }
        // SAFETY: the id is alive.
        if !unsafe { (*id).qp }.is_null() {
            qp::connect(&shared)?;
        }
        let rep = Rep {
            local_id: 0,
            remote_id: 0,
            qkey: 0,
            qpn: wanted.qpn,
            starting_psn: Psn::new(psn),
            responder_resources: wanted.responder_resources,
            initiator_depth: wanted.initiator_depth,
            target_ack_delay: timeout(0),
            failover: 0,
            has_flow_control: wanted.has_flow_control,
            rnr_retry_count: wanted.rnr_retry_count,
            has_srq: wanted.has_srq,
            ca_guid: agent.guid,
            private_data: padded(&wanted.private_data),
        };
        lock(&shared.state).phase = Phase::Replied;
        agent.with(|state, now| state.manager.accept(now, conn, rep))?;
        shared.complete()?;
        Ok(0)
    })
}

fn reject(
    id: *mut rdma_cm_id,
    (data, length): (*const c_void, u8),
    reason: RejectReason,
) -> Result<(), Refusal> {
    // SAFETY: the program passes an id and private data of this length.
    let (shared, data) = unsafe { (Shared::of(id)?, private(data, length, 136)?) };
    let (agent, conn) = shared.connection()?;
    let space = lock(&shared.state).space;
    match space.is_datagram() {
        true => datagram::reject(&shared, &data)?,
        false => agent.with(|state, now| state.manager.reject(now, conn, (reason, &data)))?,
    }
    agent.with(|state, _| {
        state.conns.remove(&conn);
        state.peers.remove(&conn);
    });
    let mut state = lock(&shared.state);
    state.phase = Phase::Disconnected;
    state.conn = None;
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    call::number("rdma_reject", || {
        reject(id, (data, length), RejectReason::CONSUMER)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    data: *const c_void,
    length: u8,
) -> c_int {
    call::number("rdma_reject_ece", || {
        reject(id, (data, length), REJECT_VENDOR_OPTION)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    call::number("rdma_disconnect", || {
        let shared = Shared::of(id)?;
        let (agent, conn) = shared.connection()?;
        let phase = lock(&shared.state).phase;
        if !matches!(
            phase,
            Phase::Replied | Phase::Connected | Phase::Disconnected
        ) {
            return Err(Refusal::invalid(format!(
                "an id that is {phase:?} is not connected"
            )));
        }
        // SAFETY: the id is alive.
        qp::to_error(unsafe { (*id).qp });
        let sent = agent.with(|state, now| state.manager.disconnect(now, conn));
        if phase != Phase::Disconnected {
            sent?;
        }
        shared.complete()?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: u32) -> c_int {
    call::number("rdma_notify", || {
        let shared = Shared::of(id)?;
        if event != adverb_abi::IBV_EVENT_COMM_EST {
            return Err(Refusal::invalid(format!(
                "event {event}: expected IBV_EVENT_COMM_EST"
            )));
        }
        let (agent, conn) = shared.connection()?;
        if lock(&shared.state).phase == Phase::Connected {
            // Programs ignore it: the RTU was faster.
            return Err(Refusal::expected(libc::EISCONN));
        }
        agent.with(|state, _| state.manager.notify_established(conn))?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    call::number("rdma_set_local_ece", || {
        let _ = Shared::of(id)?;
        if ece.is_null() {
            return Err(Refusal::invalid("the options are NULL"));
        }
        // The device has no vendor's extensions, so the peer is offered none.
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    call::number("rdma_get_remote_ece", || {
        // SAFETY: the program passes an id and a place for options.
        unsafe {
            let _ = Shared::of(id)?;
            if ece.is_null() {
                return Err(Refusal::invalid("the options are NULL"));
            }
            ece.write_bytes(0, 1);
        }
        Ok(0)
    })
}
