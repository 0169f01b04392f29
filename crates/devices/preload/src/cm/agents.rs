//! The agents of all devices.

use std::net::IpAddr;
use std::sync::Mutex;

use super::agent::Agent;
use super::{deliver, verbs};
use crate::call::Refusal;
use crate::device;
use crate::object::lock;

/// The agents, and the process that started them: after a fork the child starts others, as it lacks the parent's threads.
static AGENTS: Mutex<Option<(u32, &[&Agent])>> = Mutex::new(None);

/// Returns the agents of all devices, which are opened at the first call.
pub(super) fn agents() -> Result<&'static [&'static Agent], Refusal> {
    let process = std::process::id();
    let mut known = lock(&AGENTS);
    let agents = match *known {
        Some((owner, agents)) if owner == process => agents,
        _ => start(),
    };
    *known = Some((process, agents));
    drop(known);
    match agents.is_empty() {
        true => Err(Refusal::new(
            libc::ENODEV,
            "no device could be opened: see the messages of ibv_open_device",
        )),
        false => Ok(agents),
    }
}

/// Opens all devices, and starts their agents.
fn start() -> &'static [&'static Agent] {
    // SAFETY: a device of the list.
    let opened = device::ours().map(|device| unsafe { verbs::ibv_open_device(device) });
    let agents = opened.filter(|context| !context.is_null());
    let started = agents.filter_map(|context| Agent::start(context, deliver::events).ok());
    let started: Vec<_> = started.collect();
    if !started.is_empty() {
        // SAFETY: the function takes no argument and does not unwind.
        unsafe { libc::atexit(say_goodbye) };
    }
    started.leak()
}

/// Returns the agent of the device at an address. A loopback address is every device's, unless another program's device can
/// have it.
pub(super) fn at(ip: IpAddr) -> Result<&'static Agent, Refusal> {
    let agents = agents()?;
    let exact = agents.iter().find(|agent| agent.ip == ip);
    let any = || agents.iter().find(|agent| agent.reached_as(ip) != ip);
    exact.or_else(any).copied().ok_or_else(|| {
        let own: Vec<_> = agents.iter().map(|agent| agent.ip.to_string()).collect();
        Refusal::new(
            libc::ENODEV,
            format!("no device at {ip}: the devices are at {}", own.join(", ")),
        )
    })
}

/// Whether an id that is bound to this address is bound to no device, and listens on all: a loopback address, as the
/// kernel treats it, unless a device can have it. (libfabric then takes the device's address, which other hosts reach.)
pub(super) fn is_any_device(ip: IpAddr) -> Result<bool, Refusal> {
    Ok(agents()?.iter().all(|agent| agent.reached_as(ip) != ip))
}

extern "C" fn say_goodbye() {
    let known = lock(&AGENTS);
    // In a child that has not used librdmacm, the agents are still the parent's.
    let own = known.filter(|(process, _)| *process == std::process::id());
    let agents = own.into_iter().flat_map(|(_, agents)| agents);
    agents.for_each(|agent| agent.say_goodbye());
}
