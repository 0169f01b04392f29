//! Runs the cells of all pairs, and makes their records.

use std::collections::BTreeMap;

use adverb_host::now_rfc3339;
use adverb_launch::{Failure, Interrupt, Launcher, Placement, Run, RunError};
use adverb_results::{CpuShare, Outcome, PairRecord, Record, RoleRun};
use adverb_workload::pair::{CellResult, CellSpec};
use anyhow::bail;

use super::Point;
use super::hosts::Hosts;
use crate::progress::Progress;
use crate::record::{pair_record, take_details};
use crate::sink::Sink;
use crate::{hosts, terminal};

/// A cell between two hosts.
struct Cell<'p> {
    spec: &'p CellSpec,
    from: u32,
    to: u32,
}

/// Measures between hosts.
pub(super) struct Bench {
    launcher: Launcher,
    hosts: Hosts,
    progress: Progress,
    /// Hosts whose servers cannot be reached any more, and why.
    gone: BTreeMap<u32, String>,
    failed: Vec<String>,
    all: usize,
}

impl Bench {
    pub(super) fn new(launcher: Launcher, hosts: Hosts, points: &[Point]) -> Self {
        let is_within = |pair: &(u32, u32)| launcher.is_pair_within_memory(*pair);
        let within = hosts.pairs().filter(is_within).count();
        if within > 0 {
            terminal::warn(&format!(
                "{within} of {} pairs are at one address and share memory instead of using UDP; name an address for each host",
                hosts.pairs().count()
            ));
        }
        let cells: Vec<Cell<'_>> = points
            .iter()
            .flat_map(|point| cells(point, &hosts))
            .collect();
        let expected = cells.iter().map(|cell| cell.spec.estimate().as_secs_f64());
        Bench {
            progress: Progress::new(expected.collect()),
            all: cells.len(),
            launcher,
            hosts,
            gone: BTreeMap::new(),
            failed: Vec::new(),
        }
    }

    /// Measures all pairs at one point, and returns their records. A pair that fails does not end it.
    ///
    /// # Errors
    /// The user interrupted it, or the system failed.
    pub(super) fn measure(
        &mut self,
        point: &Point,
        sink: &mut Sink<()>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Vec<Record>> {
        let mut records = Vec::new();
        for cell in cells(point, &self.hosts) {
            let (id, device) = (self.id(&cell), &self.hosts.get(0).device);
            if let Some(record) = sink.earlier(|r| r.cell == id && r.device == *device) {
                records.push(record.clone());
                self.progress.end();
                continue;
            }
            self.progress.begin(&id);
            let mut record = self.run(&cell, interrupt)?;
            if let Outcome::Failed { reason } = &record.outcome {
                let name = format!("{} {} → {}", cell.spec.program, cell.from, cell.to);
                self.progress.note(&format!("{name}: {reason}"));
                self.failed.push(name);
            }
            self.progress.end();
            sink.keep(&mut record)?;
            records.push(record);
        }
        Ok(records)
    }

    /// Ends the measurement of all pairs.
    ///
    /// # Errors
    /// Some pairs failed.
    pub(super) fn finish(self) -> anyhow::Result<()> {
        self.progress.finish();
        match self.failed.len() {
            0 => Ok(()),
            n => bail!(
                "{n} of {} measurements failed: {}",
                self.all,
                self.failed.join(", ")
            ),
        }
    }

    /// Returns the id, equal for the same program and parameters between the same hosts.
    fn id(&self, cell: &Cell<'_>) -> String {
        let [from, to] = [cell.from, cell.to].map(|host| &self.hosts.get(host).name);
        format!("{}/from={from}/to={to}", cell.spec.id)
    }

    fn run(&mut self, cell: &Cell<'_>, interrupt: &Interrupt) -> anyhow::Result<Record> {
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
            .run(cell.spec, cell.spec.patience().into(), interrupt)
        {
            Ok(run) => run,
            Err(RunError::Unreachable(reason)) => {
                let lost = ends
                    .into_iter()
                    .filter(|host| !self.launcher.is_connected(*host));
                self.gone.extend(lost.map(|host| (host, reason.clone())));
                not_begun(reason)
            }
            Err(error) => return Err(hosts::failed(error)),
        };
        Ok(self.record(cell, started, run))
    }

    fn record(&self, cell: &Cell<'_>, started: String, mut run: Run<Option<CellResult>>) -> Record {
        let (from, to) = (self.hosts.get(cell.from), self.hosts.get(cell.to));
        let (mut active, mut passive) = (from.site.clone(), to.site.clone());
        let said = take_details(&mut run);
        active.device.extend(said.0);
        passive.device.extend(said.1);
        let is_impaired = cell.spec.params.path.impairment.is_some();
        let in_memory = !is_impaired && self.launcher.is_pair_within_memory((cell.from, cell.to));
        if in_memory {
            active.device.extend([hosts::in_shared_memory()]);
        }
        let device = self.hosts.get(0).device.clone();
        let provenance = hosts::provenance(started, active, Some(passive));
        let mut pair = pair_record(cell.spec, run, (device, provenance));
        if in_memory {
            // The ports have a path MTU, but messages in shared memory are not split into packets.
            pair.params.path_mtu_bytes = None;
        }
        let mut record = Record::from(&pair);
        record.cell = self.id(cell);
        for (end, host) in [("from", from), ("to", to)] {
            record.params.insert(end.to_owned(), (*host.name).into());
        }
        record.roles = self.roles(cell, &pair);
        record
    }

    /// Returns where the two sides ran.
    fn roles(&self, cell: &Cell<'_>, pair: &PairRecord) -> Vec<RoleRun> {
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
    }
}

/// The cells of all pairs at one point, in the order in which they are measured.
fn cells<'p>(point: &'p Point, hosts: &Hosts) -> Vec<Cell<'p>> {
    let of_pair = |(one, other): (u32, u32)| {
        let cell = |spec, from, to| Cell { spec, from, to };
        [
            cell(&point.ping, one, other),
            cell(&point.blast, one, other),
            cell(&point.blast, other, one),
        ]
    };
    hosts.pairs().flat_map(of_pair).collect()
}
