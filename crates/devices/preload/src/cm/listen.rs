//! Binds ids to addresses, and listens.

use std::ffi::c_int;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use adverb_abi::rdma_cm_id;
use adverb_wire::cm::{PortSpace, ServiceId};

use super::address;
use super::agent::{Agent, random};
use super::agents::{agents, at, is_any_device};
use super::id::{Phase, Shared, Sharing, conflict};
use crate::call::{self, Refusal};
use crate::object::lock;

/// Binds an id to a local address.
pub(super) fn bind(shared: &Shared, wanted: SocketAddr) -> Result<(), Refusal> {
    let (phase, space, sharing) = {
        let state = lock(&shared.state);
        (state.phase, state.space, state.sharing)
    };
    if phase != Phase::New {
        return Err(Refusal::invalid("the id has an address"));
    }
    let ip = wanted.ip().to_canonical();
    let is_any = ip.is_unspecified() || is_any_device(ip)?;
    let agents = match is_any {
        true => listening_agents(&wanted, sharing)?,
        false => vec![at(ip)?],
    };
    let port = match wanted.port() {
        0 => free_port(&agents, space),
        port => port,
    };
    let service = ServiceId::of(space, port);
    let local = SocketAddr::new(wanted.ip(), port);
    check_port(&local, space, sharing)?;
    if wanted.port() != 0 && agents.iter().any(|agent| agent.is_taken(service)) {
        let reason = format!("{wanted}: a process listens at the port");
        return Err(Refusal::new(libc::EADDRINUSE, reason));
    }
    match is_any {
        true => {
            // SAFETY: the id is alive.
            unsafe { (*shared.c()).route.addr.src_storage = address::storage(local) };
            lock(&shared.state).local = Some(local);
        }
        false => shared.bind_to(agents[0], (local, None)),
    }
    lock(&shared.state).phase = Phase::Bound;
    Ok(())
}

/// Returns the agents of the devices at which an id listens that is bound to none.
fn listening_agents(local: &SocketAddr, sharing: Sharing) -> Result<Vec<&'static Agent>, Refusal> {
    let is_any_version = sharing.only_own_version != Some(true);
    let all = agents()?.iter().copied();
    let own = all.filter(|agent| is_any_version || agent.ip.is_ipv4() == local.is_ipv4());
    Ok(own.collect())
}

/// Refuses a port to which another id is bound.
pub(super) fn check_port(
    at: &SocketAddr,
    space: PortSpace,
    sharing: Sharing,
) -> Result<(), Refusal> {
    match conflict(at, space, sharing) {
        Some(errno) => Err(Refusal::new(
            errno,
            format!("{at}: another id is bound to the port"),
        )),
        None => Ok(()),
    }
}

/// Returns a random port of the range that Linux uses, for which no process listens, and to which no id is bound.
pub(super) fn free_port(agents: &[&Agent], space: PortSpace) -> u16 {
    loop {
        let port = 32768 + (random() % 28232) as u16;
        let service = ServiceId::of(space, port);
        let anywhere = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        let is_taken = agents.iter().any(|agent| agent.is_taken(service));
        if !is_taken && conflict(&anywhere, space, Sharing::default()).is_none() {
            return port;
        }
    }
}

/// Prints, if the user wants to know, that requests from other addresses are received by another program.
fn warn_of_port(agent: &Agent) {
    if let Some(holder) = call::explains()
        .then(|| agent.gsi.foreign_holder())
        .flatten()
    {
        let ip = agent.ip;
        let text = format!(
            "{holder} has UDP port 4791 at {ip}, so requests from other addresses do not arrive: end it, or use another \
             address of this host"
        );
        call::note("rdma_listen", &text);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int {
    call::number("rdma_bind_addr", || {
        // SAFETY: the program passes an id and a socket address.
        let (shared, address) = unsafe { (Shared::of(id)?, address::read(addr)?) };
        bind(&shared, address)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    call::number("rdma_listen", || {
        let shared = Shared::of(id)?;
        if lock(&shared.state).phase == Phase::New {
            bind(&shared, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
        }
        listen(&shared, backlog)?;
        Ok(0)
    })
}

/// Backlog if the program asks for none or more, as the kernel's.
const MAX_BACKLOG: usize = 1024;

fn listen(shared: &Arc<Shared>, backlog: c_int) -> Result<(), Refusal> {
    let (phase, local, space, bound, sharing) = {
        let state = lock(&shared.state);
        let (phase, local) = (state.phase, state.local);
        (phase, local, state.space, state.agent, state.sharing)
    };
    let (Phase::Bound, Some(local)) = (phase, local) else {
        return Err(Refusal::invalid(format!(
            "an id that is {phase:?} cannot listen"
        )));
    };
    let backlog = match usize::try_from(backlog) {
        Ok(n @ 1..=MAX_BACKLOG) => n,
        _ => MAX_BACKLOG,
    };
    let service = ServiceId::of(space, local.port());
    let agents = match bound {
        Some(agent) => vec![agent],
        None => listening_agents(&local, sharing)?,
    };
    for agent in agents {
        let listening = agent.listen(service, (shared, backlog));
        listening.map_err(|error| {
            let errno = match error.kind() {
                std::io::ErrorKind::AddrInUse => libc::EADDRINUSE,
                _ => error.raw_os_error().unwrap_or(libc::EIO),
            };
            let remedy = match errno {
                libc::EACCES => {
                    "; a process that changes its user (setuid) has to listen before that"
                }
                _ => "",
            };
            Refusal::new(errno, format!("cannot listen at {local}: {error}{remedy}"))
        })?;
        lock(&shared.state).services.push((agent, service));
        warn_of_port(agent);
    }
    lock(&shared.state).phase = Phase::Listening;
    Ok(())
}
