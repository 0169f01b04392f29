//! Resolves addresses and routes. Both are known at once, but their events come through the channel as the kernel's.

use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use adverb_abi::rdma_cm_id;

use super::address;
use super::agent::Agent;
use super::agents::{agents, at};
use super::event::Kind;
use super::id::{Phase, Shared};
use super::listen::{check_port, free_port};
use super::path::PathRecord;
use crate::call::{self, Refusal};
use crate::object::lock;

/// Returns the device that reaches `to`.
fn find(
    own: Option<IpAddr>,
    bound: Option<&'static Agent>,
    to: SocketAddr,
) -> Result<&'static Agent, Refusal> {
    let ip = to.ip();
    let local = agents()?.iter().find(|agent| agent.ip == ip);
    match (bound, own, local) {
        (Some(agent), ..) => Ok(agent),
        (None, Some(own), _) => at(own),
        (None, None, Some(agent)) => Ok(agent),
        (None, None, None) if ip.is_loopback() || ip.is_multicast() => Ok(agents()?[0]),
        (None, None, None) => {
            let source = address::source_towards(to);
            at(source.map_err(Refusal::from)?)
        }
    }
}

/// Returns this side's address of a connection to `to`. To a loopback address it is one, too, as the kernel's: programs
/// compare what they bind to and connect to with the addresses of connections.
fn own_address(agent: &Agent, own: Option<IpAddr>, to: IpAddr) -> IpAddr {
    match agent.reached_as(to) == to {
        true => agent.ip,
        false => own.unwrap_or(to),
    }
}

pub(super) fn resolve_addr(
    shared: &Arc<Shared>,
    source: Option<SocketAddr>,
    to: SocketAddr,
) -> Result<(), Refusal> {
    let (phase, bound, local, space, sharing) = {
        let state = lock(&shared.state);
        let (phase, sharing) = (state.phase, state.sharing);
        (phase, state.agent, state.local, state.space, sharing)
    };
    if !matches!(phase, Phase::New | Phase::Bound) {
        return Err(Refusal::invalid(format!(
            "an id that is {phase:?} cannot resolve an address"
        )));
    }
    if let (None, Some(source)) = (local, source)
        && source.port() != 0
    {
        check_port(&source, space, sharing)?;
    }
    // An id that is bound keeps its address, whatever the source is, as the kernel's.
    let source = local.or(source);
    let own = own_ip(source);
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    match find(own, bound, to) {
        Ok(agent) => {
            let port = match source.map_or(0, |address| address.port()) {
                0 => free_port(&[agent], space),
                port => port,
            };
            let ip = own_address(agent, own, to.ip());
            shared.bind_to(agent, (SocketAddr::new(ip, port), Some(to)));
            lock(&shared.state).phase = Phase::AddrResolved;
            shared.report(Kind::AddrResolved, 0);
        }
        Err(refusal) => {
            call::refuse("rdma_resolve_addr", &refusal);
            shared.report(Kind::AddrError, -refusal.errno);
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
    shared.set_path(PathRecord::new(
        (agent.ip, agent.reached_as(remote.ip())),
        (agent.mtu, class),
    ));
    lock(&shared.state).phase = Phase::RouteResolved;
    shared.report(Kind::RouteResolved, 0);
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    call::number("rdma_resolve_route", || {
        let shared = Shared::of(id)?;
        resolve_route(&shared)?;
        shared.complete()?;
        Ok(0)
    })
}

/// The addresses of an id as IPs: an unspecified one is its device's.
fn own_ip(local: Option<SocketAddr>) -> Option<IpAddr> {
    let ip = local?.ip().to_canonical();
    (!ip.is_unspecified()).then_some(ip)
}
