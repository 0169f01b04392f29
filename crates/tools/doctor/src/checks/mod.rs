//! The checks: pure functions from facts to findings.

mod cpu;
mod device;
mod libraries;
mod memory;
mod port;
mod soft;

use crate::finding::{Check, Finding, Subject, Verdict};
use crate::machine::{DeviceFacts, Machine};

/// What is to be examined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The machine and all devices.
    #[default]
    All,
    /// The machine, as far as the user-space device goes, and that device.
    Soft,
    /// The machine and this RDMA device.
    Verbs(String),
}

/// There is no RDMA device of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no RDMA device '{name}' here: {}", choices(there))]
pub struct UnknownDevice {
    /// The name that was asked for.
    pub name: String,
    /// Those that are there.
    pub there: Vec<String>,
}

fn choices(there: &[String]) -> String {
    if there.is_empty() {
        "the kernel has none (`adverb doctor` says how to get one)".to_owned()
    } else {
        format!("choose from {}", there.join(", "))
    }
}

/// Runs the checks; findings about the machine first, then by device and port.
///
/// # Errors
/// Where the scope names a device that is not there.
pub fn examine(machine: &Machine, scope: &Scope) -> Result<Vec<Finding>, UnknownDevice> {
    let devices = chosen(machine, scope)?;
    let mut findings = Vec::new();
    if *scope != Scope::Soft {
        // Without a device nothing is broken yet by what it would need.
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
        findings.extend([soft::shared_memory(machine), soft::membarrier(machine)]);
    }
    // Adapters often have ports that nobody uses: one that carries data will do.
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

/// What all RDMA devices need of the machine.
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
