//! Resolves addresses and routes. Both are known at once, but their events come through the channel as the kernel's.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;

use adverb_abi::{ibv_gid, rdma_cm_id};
use adverb_verbs::PathMtu;

use super::address;
use super::agent::{self, Agent};
use super::event::Kind;
use super::id::{Phase, Shared, free_port, own_ip, report};
use crate::call::{self, Refusal};
use crate::convert::mtu_code;
use crate::object::lock;

/// `struct ibv_sa_path_rec`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct PathRecord {
    dgid: ibv_gid,
    sgid: ibv_gid,
    dlid: u16,
    slid: u16,
    raw_traffic: c_int,
    flow_label: u32,
    hop_limit: u8,
    traffic_class: u8,
    reversible: c_int,
    numb_path: u8,
    pkey: u16,
    mtu_selector: u8,
    sl: u8,
    mtu: u8,
    rate_selector: u8,
    rate: u8,
    packet_life_time_selector: u8,
    packet_life_time: u8,
    preference: u8,
}

impl std::fmt::Debug for PathRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PathRecord")
    }
}

/// Selector of an exact value.
const EXACTLY: u8 = 2;
/// `IBV_RATE_10_GBPS`: the device has no rate of its own.
const RATE: u8 = 3;
/// 4.096 µs × 2^14.
const LIFE_TIME: u8 = 14;

impl PathRecord {
    pub(super) const fn new(
        agent: &Agent,
        remote: SocketAddr,
        (mtu, traffic_class): (PathMtu, u8),
    ) -> Self {
        PathRecord {
            dgid: address::gid(remote.ip()),
            sgid: address::gid(agent.ip),
            dlid: 0,
            slid: 0,
            raw_traffic: 0,
            flow_label: 0,
            hop_limit: 64,
            traffic_class,
            reversible: 1,
            numb_path: 1,
            pkey: 0xffff,
            mtu_selector: EXACTLY,
            sl: 0,
            mtu: mtu_code(mtu) as u8,
            rate_selector: EXACTLY,
            rate: RATE,
            packet_life_time_selector: EXACTLY,
            packet_life_time: LIFE_TIME,
            preference: 0,
        }
    }
}

/// Returns the device that reaches `to`, and the address under which it does.
fn find(
    own: Option<std::net::IpAddr>,
    bound: Option<&'static Agent>,
    to: SocketAddr,
) -> Result<(&'static Agent, SocketAddr), Refusal> {
    let ip = to.ip().to_canonical();
    let to = SocketAddr::new(ip, to.port());
    let local = agent::agents()?.iter().find(|agent| agent.ip == ip);
    let agent = match (bound, own, local) {
        (Some(agent), ..) => agent,
        (None, Some(own), _) => agent::at(own)?,
        (None, None, Some(agent)) => agent,
        (None, None, None) if ip.is_loopback() || ip.is_multicast() => agent::agents()?[0],
        (None, None, None) => {
            let source = address::source_towards(to);
            agent::at(source.map_err(Refusal::from)?)?
        }
    };
    // This host is reached at the address of its device, whatever the program calls it.
    let is_this_host = ip.is_loopback() && !agent.ip.is_loopback();
    let ip = if is_this_host { agent.ip } else { ip };
    Ok((agent, SocketAddr::new(ip, to.port())))
}

pub(super) fn resolve_addr(
    shared: &Arc<Shared>,
    source: Option<SocketAddr>,
    to: SocketAddr,
) -> Result<(), Refusal> {
    let (phase, bound, local, space) = {
        let state = lock(&shared.state);
        (state.phase, state.agent, state.local, state.space)
    };
    if !matches!(phase, Phase::New | Phase::Bound) {
        return Err(Refusal::invalid(format!(
            "an id that is {phase:?} cannot resolve an address"
        )));
    }
    let own = own_ip(source).or(own_ip(local));
    match find(own, bound, to) {
        Ok((agent, to)) => {
            let given = source.or(local).map_or(0, |address| address.port());
            let port = match given {
                0 => free_port(&[agent], space),
                port => port,
            };
            shared.bind_to(agent, (SocketAddr::new(agent.ip, port), Some(to)));
            lock(&shared.state).phase = Phase::AddrResolved;
            report(shared, Kind::AddrResolved, 0);
        }
        Err(refusal) => {
            call::refuse("rdma_resolve_addr", &refusal);
            report(shared, Kind::AddrError, -refusal.errno);
        }
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    source: *mut libc::sockaddr,
    to: *mut libc::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    call::number("rdma_resolve_addr", || {
        // SAFETY: the program passes an id, NULL or a source address, and a destination.
        let (shared, source, to) = unsafe {
            let source = match source.is_null() {
                true => None,
                false => Some(address::read(source)?),
            };
            (Shared::of(id)?, source, address::read(to)?)
        };
        resolve_addr(&shared, source, to)?;
        shared.complete()?;
        Ok(0)
    })
}

pub(super) fn resolve_route(shared: &Arc<Shared>) -> Result<(), Refusal> {
    let (phase, agent, remote, class) = {
        let state = lock(&shared.state);
        let class = state.peer.traffic_class;
        (state.phase, state.agent, state.remote, class)
    };
    let (Phase::AddrResolved, Some(agent), Some(remote)) = (phase, agent, remote) else {
        return Err(Refusal::invalid(format!(
            "an id that is {phase:?} cannot resolve a route"
        )));
    };
    shared.set_path(PathRecord::new(agent, remote, (agent.mtu, class)));
    lock(&shared.state).phase = Phase::RouteResolved;
    report(shared, Kind::RouteResolved, 0);
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    call::number("rdma_resolve_route", || {
        // SAFETY: the program passes an id.
        let shared = unsafe { Shared::of(id) }?;
        resolve_route(&shared)?;
        shared.complete()?;
        Ok(0)
    })
}
