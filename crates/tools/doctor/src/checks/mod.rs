//! The checks: pure functions from facts to findings.

mod cpu;
mod device;
mod libraries;
mod memory;
mod port;
mod soft;

use crate::finding::{Check, Finding, Subject, Verdict};
use crate::machine::{DeviceFacts, Machine};

/// Scope of the checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The machine and all devices.
    #[default]
    All,
    /// The user-space device, and what it needs from the machine.
    Soft,
    /// The machine and this RDMA device.
    Verbs(String),
}

/// An RDMA device does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown RDMA device '{name}': {}", choices(there))]
pub struct UnknownDevice {
    /// The given name.
    pub name: String,
    /// The existing devices.
    pub there: Vec<String>,
}

fn choices(there: &[String]) -> String {
    if there.is_empty() {
        "the kernel has none (`adverb doctor` shows how to add one)".to_owned()
    } else {
        format!("choose from {}", there.join(", "))
    }
}

/// Runs the checks; findings about the machine first, then by device and port.
///
/// # Errors
/// The scope names a device that does not exist.
pub fn examine(machine: &Machine, scope: &Scope) -> Result<Vec<Finding>, UnknownDevice> {
    let devices = chosen(machine, scope)?;
    let mut findings = Vec::new();
    if *scope != Scope::Soft {
        // Without a device, a missing requirement breaks nothing yet.
        let worst = if devices.is_empty() {
            Verdict::Note
        } else {
            Verdict::Broken
        };
        findings.extend(
            for_rdma(machine)
                .into_iter()
                .map(|finding| finding.at_most(worst)),
        );
    }
    findings.push(cpu::governor(machine));
    if *scope == Scope::All && devices.is_empty() {
        findings.push(no_devices(machine));
    }
    if !matches!(scope, Scope::Verbs(_)) {
        findings.extend([
            soft::shared_memory(machine),
            soft::membarrier(machine),
            soft::pidfd(machine),
        ]);
        findings.extend(soft::leftovers(machine));
    }
    // Adapters often have unused ports: one active port suffices.
    let lame = if devices.iter().copied().any(port::any_active) {
        Verdict::Warning
    } else {
        Verdict::Broken
    };
    for facts in devices {
        findings.extend(device::checks(machine, facts));
        findings.extend(port::checks(machine, facts, lame));
    }
    Ok(findings)
}

fn chosen<'m>(machine: &'m Machine, scope: &Scope) -> Result<Vec<&'m DeviceFacts>, UnknownDevice> {
    let all = machine.devices.iter();
    match scope {
        Scope::Soft => Ok(Vec::new()),
        Scope::All => Ok(all.collect()),
        Scope::Verbs(name) => {
            let found = all.clone().find(|device| device.rdma.name == *name);
            found
                .map(|device| vec![device])
                .ok_or_else(|| UnknownDevice {
                    name: name.clone(),
                    there: all.map(|device| device.rdma.name.clone()).collect(),
                })
        }
    }
}

/// Checks what all RDMA devices need from the machine.
fn for_rdma(machine: &Machine) -> Vec<Finding> {
    vec![
        memory::lock(machine),
        libraries::verbs(machine),
        libraries::rdmacm(machine),
        libraries::verbs_module(machine),
        libraries::connection_manager(machine),
        memory::huge_pages(machine),
        memory::transparent(machine),
    ]
}

fn no_devices(machine: &Machine) -> Finding {
    let sudo = machine.process.sudo();
    let netdev = machine.netdevs.first().map_or("lo", String::as_str);
    Finding::new(
        Check::RdmaDevices,
        Subject::Machine,
        Verdict::Note,
        "none; a software device (Soft-RoCE) needs root and the kernel's module rdma_rxe",
    )
    .run(format!(
        "{sudo}modprobe rdma_rxe && {sudo}rdma link add rxe0 type rxe netdev {netdev}"
    ))
}

/// A finding about the machine.
fn on_machine(check: Check, verdict: Verdict, found: impl Into<String>) -> Finding {
    Finding::new(check, Subject::Machine, verdict, found)
}
