//! A cell between every two of several hosts, one pair after another.

mod hosts;

use std::collections::BTreeMap;

use adverb_host::now_rfc3339;
use adverb_launch::{DeviceChoice, Failure, Interrupt, Launcher, Placement, Run, RunError};
use adverb_results::{CpuShare, DeviceRef, PairRecord, Record, RoleRun};
use adverb_workload::pair::{CellResult, CellSpec};

use crate::backend::{failed, provenance};
use crate::pairs::{kept, pair_record, take_details};
pub use hosts::{Host, Hosts};

/// A cell between two hosts.
pub struct PairCell<'p> {
    /// Program and parameters.
    pub spec: &'p CellSpec,
    /// Number of the active side's host.
    pub from: u32,
    /// Number of the passive side's host.
    pub to: u32,
}

/// Measures between hosts.
pub struct AllPairs {
    launcher: Launcher,
    hosts: Hosts,
    /// Hosts whose servers cannot be reached any more, and why.
    gone: BTreeMap<u32, String>,
}

impl AllPairs {
    /// Returns a bench for the hosts of a launcher.
    pub fn new(launcher: Launcher, hosts: Hosts) -> Self {
        AllPairs {
            launcher,
            hosts,
            gone: BTreeMap::new(),
        }
    }

    /// Returns the hosts.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Returns the number of pairs that share memory instead of using UDP.
    pub fn within_memory(&self) -> usize {
        let is_within = |pair: &(u32, u32)| self.launcher.is_pair_within_memory(*pair);
        self.hosts.pairs().filter(is_within).count()
    }

    /// Returns the id, equal for the same program and parameters between the same hosts.
    pub fn id(&self, cell: &PairCell<'_>) -> String {
        let [from, to] = [cell.from, cell.to].map(|host| &self.hosts.get(host).name);
        format!("{}/from={from}/to={to}", cell.spec.id)
    }

    /// Whether both sides of a cell use the local port of a device with a UDP port.
    fn is_in_memory(&self, cell: &PairCell<'_>) -> bool {
        let is_impaired = cell.spec.params.path.impairment.is_some();
        !is_impaired && self.launcher.is_pair_within_memory((cell.from, cell.to))
    }

    /// Returns the device on which a cell is measured.
    pub fn device(&self, cell: &PairCell<'_>) -> DeviceRef {
        match self.is_in_memory(cell) {
            true => DeviceChoice::SOFT.reference(),
            false => self.hosts.get(0).device.clone(),
        }
    }

    /// Runs a cell and makes its record. A server that cannot be reached fails all further cells of its host.
    ///
    /// # Errors
    /// The user interrupted it, or the system failed.
    pub fn run(&mut self, cell: &PairCell<'_>, interrupt: &Interrupt) -> anyhow::Result<Record> {
        let started = now_rfc3339();
        let ends = [cell.from, cell.to];
        let gone = ends.iter().find_map(|host| self.gone.get(host));
        if let Some(reason) = gone {
            return Ok(self.record(cell, started, not_begun(reason.clone())));
        }
        let placement = Placement::new([("active", cell.from), ("passive", cell.to)]);
        self.launcher.set_placement(placement);
        let run = match self
            .launcher
            .run(cell.spec, cell.spec.timeout().into(), interrupt)
        {
            Ok(run) => run,
            Err(RunError::Unreachable(reason)) => {
                let lost = ends
                    .into_iter()
                    .filter(|host| !self.launcher.is_connected(*host));
                self.gone.extend(lost.map(|host| (host, reason.clone())));
                not_begun(reason)
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(self.record(cell, started, run))
    }

    fn record(
        &self,
        cell: &PairCell<'_>,
        started: String,
        mut run: Run<Option<CellResult>>,
    ) -> Record {
        let (from, to) = (self.hosts.get(cell.from), self.hosts.get(cell.to));
        let (mut active, mut passive) = (from.site.clone(), to.site.clone());
        let said = take_details(&mut run);
        active.device.extend(said.0);
        passive.device.extend(said.1);
        let provenance = provenance(started, active, Some(passive));
        let mut pair = pair_record(cell.spec, run, (self.device(cell), provenance));
        if self.is_in_memory(cell) {
            // The ports have a path MTU, but messages in shared memory are not split into packets.
            pair.params.path_mtu_bytes = None;
        }
        let mut record = kept(cell.spec, &pair);
        record.cell = self.id(cell);
        for (end, host) in [("from", from), ("to", to)] {
            record.params.insert(end.to_owned(), (*host.name).into());
        }
        record.roles = self.roles(cell, &pair);
        record
    }

    /// Returns where the two sides ran.
    fn roles(&self, cell: &PairCell<'_>, pair: &PairRecord) -> Vec<RoleRun> {
        let cpu = pair.metrics.as_ref().map(|metrics| metrics.cpu);
        let cpu = cpu.unwrap_or_default();
        let role = |name: &str, host: u32, (core, numa_node), cpu: CpuShare| {
            let host = self.hosts.get(host);
            RoleRun {
                name: name.to_owned(),
                host: host.site.host.clone(),
                device: (host.device != pair.device).then(|| host.device.to_string()),
                core,
                numa_node,
                cpu,
                ..RoleRun::default()
            }
        };
        let p = &pair.params;
        let active = (p.active_core, p.active_numa_node);
        let passive = (p.passive_core, p.passive_numa_node);
        vec![
            role("active", cell.from, active, cpu.active),
            role("passive", cell.to, passive, cpu.passive),
        ]
    }
}

/// Returns the result of a run that did not start.
fn not_begun(reason: String) -> Run<Option<CellResult>> {
    let is_usage = false;
    Run {
        reports: Err(Failure { reason, is_usage }),
        roles: Vec::new(),
        usage: Vec::new(),
    }
}
