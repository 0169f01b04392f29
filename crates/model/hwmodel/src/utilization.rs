//! How busy the resources of a machine were in the measured time: which of them limits the rate.

use std::collections::BTreeMap;

use adverb_units::{Span, Time};
use adverb_verbs::RoleId;

use crate::host::pcie::Traffic;
use crate::ids::{MachineId, Table};
use crate::machine::Machine;
use crate::resource::Server;

/// A resource of a machine, and the share of the measured time in which it was in use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Utilization {
    /// Its name.
    pub resource: &'static str,
    /// 0 to 1. Of several equal resources the busiest counts, except for cores, of which it is the mean.
    pub share: f64,
}

/// What a program used of a machine in the measured time.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    /// Its resources, the busiest first.
    pub utilization: Vec<Utilization>,
    /// Cache lines per second over PCIe: WQEs and doorbells that the CPU writes to the NIC, what the NIC reads, and data and
    /// completions that it writes.
    pub pcie_lines_per_s: [(&'static str, f64); 5],
}

/// The resource that shows how much of a core's time is writes to the NIC. It is a part of the cores' time.
pub const MMIO: &str = "CPU writing to the NIC";

/// How long each resource of a machine has been in use, and its traffic over PCIe.
type Used = (Vec<(&'static str, Span)>, Traffic);

/// A time, and what each machine has been used for.
type Look = (Time, Vec<Used>);

/// The measured time: from the first reading of a role's CPU time to the first time that a role reads it again.
#[derive(Default)]
pub(crate) struct Measured {
    /// When each role read it first. A role may read it twice at that time.
    first: BTreeMap<RoleId, Time>,
    begin: Option<Look>,
    end: Option<Look>,
}

impl Measured {
    /// A role reads its CPU time.
    pub(crate) fn look(
        &mut self,
        (role, now): (RoleId, Time),
        machines: &Table<MachineId, Machine>,
    ) {
        let first = *self.first.entry(role).or_insert(now);
        let edge = match (&self.begin, &self.end) {
            (None, _) => &mut self.begin,
            (_, None) if first < now => &mut self.end,
            _ => return,
        };
        *edge = Some((now, machines.iter().map(used).collect()));
    }

    /// Returns what was used of a machine; `None` if nothing was measured.
    pub(crate) fn of(&self, machine: MachineId) -> Option<Usage> {
        let ((begin, before), (end, after)) = self.begin.as_ref().zip(self.end.as_ref())?;
        let (time, machine) = ((*end - *begin).as_ns_f64(), machine.0 as usize);
        let ((before, from), (after, to)) = (&before[machine], &after[machine]);
        let both = before.iter().zip(after);
        let all = both.map(|((resource, before), (_, after))| Utilization {
            resource,
            share: (after.saturating_sub(*before).as_ns_f64() / time).min(1.0),
        });
        let mut all: Vec<Utilization> = all.filter(|of| of.share > 0.0).collect();
        all.sort_by(|a, b| b.share.total_cmp(&a.share));
        let per_s = |count: fn(&Traffic) -> u64| (count(to) - count(from)) as f64 * 1e9 / time;
        Some(Usage {
            utilization: all,
            pcie_lines_per_s: [
                ("wqe_writes", per_s(|t| t.mmio_writes - t.doorbells)),
                ("doorbells", per_s(|t| t.doorbells)),
                ("dma_reads", per_s(|t| t.read_lines)),
                ("data_writes", per_s(|t| t.write_lines - t.completions)),
                ("completions", per_s(|t| t.completions)),
            ],
        })
    }
}

fn used(machine: &Machine) -> Used {
    let nic = &machine.nic;
    let roles = u64::from(machine.roles().max(1));
    let atomics = &nic.atomics;
    let blocked = atomics.ports.iter().map(|port| port.blocked).max();
    let mut all = vec![
        ("CPU cores", machine.worked / roles),
        (MMIO, machine.rang / roles),
        ("cache line of a shared counter", machine.words.busy()),
        ("NIC processing unit", busiest(&nic.units.turns)),
        ("NIC transmit side", nic.tx.busy()),
        ("NIC receive side", nic.rx.busy()),
        ("lock of an atomic word", busiest(&atomics.buckets)),
        ("queue of atomics at a port", blocked.unwrap_or_default()),
        ("slots for atomics", atomics.worked / atomics.slots as u64),
        ("port", busiest(&nic.ports)),
        ("link to the port", busiest(&nic.inbound)),
    ];
    all.extend(machine.pcie.busy());
    (all, machine.pcie.traffic)
}

fn busiest<'s>(servers: impl IntoIterator<Item = &'s Server>) -> Span {
    servers
        .into_iter()
        .map(Server::busy)
        .max()
        .unwrap_or_default()
}
