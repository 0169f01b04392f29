//! The agents of all devices.

use std::net::IpAddr;
use std::sync::OnceLock;

use super::agent::Agent;
use super::{deliver, verbs};
use crate::call::Refusal;
use crate::device;

/// Returns the agents of all devices, which are opened at the first call.
pub(super) fn agents() -> Result<&'static [&'static Agent], Refusal> {
    static AGENTS: OnceLock<Vec<&'static Agent>> = OnceLock::new();
    let agents = AGENTS.get_or_init(|| {
        // SAFETY: a device of the list.
        let opened = device::ours().map(|device| unsafe { verbs::ibv_open_device(device) });
        let agents = opened.filter(|context| !context.is_null());
        let started = agents.filter_map(|context| Agent::start(context, deliver::events).ok());
        let started: Vec<_> = started.collect();
        if !started.is_empty() {
            // SAFETY: the function takes no argument and does not unwind.
            unsafe { libc::atexit(say_goodbye) };
        }
        started
    });
    match agents.is_empty() {
        true => Err(Refusal::new(
            libc::ENODEV,
            "no device could be opened: see the messages of ibv_open_device",
        )),
        false => Ok(agents),
    }
}

/// Returns the agent of the device at an address. The loopback address is every device's.
pub(super) fn at(ip: IpAddr) -> Result<&'static Agent, Refusal> {
    let agents = agents()?;
    let exact = agents.iter().find(|agent| agent.ip == ip);
    let any = || agents.first().filter(|_| ip.is_loopback());
    exact.or_else(any).copied().ok_or_else(|| {
        let own: Vec<_> = agents.iter().map(|agent| agent.ip.to_string()).collect();
        Refusal::new(
            libc::ENODEV,
            format!("no device at {ip}: the devices are at {}", own.join(", ")),
        )
    })
}

/// Whether an id that is bound to this address is bound to no device, and listens on all: a loopback address, as the
/// kernel treats it, unless a device has it. (libfabric then takes the device's address, which other hosts reach.)
pub(super) fn is_any_device(ip: IpAddr) -> Result<bool, Refusal> {
    Ok(ip.is_loopback() && agents()?.iter().all(|agent| agent.ip != ip))
}

extern "C" fn say_goodbye() {
    let agents = agents().unwrap_or_default().iter();
    agents.for_each(|agent| agent.say_goodbye());
}
