//! Runs cells of `ping` and `blast` and makes their records: parameters, results and provenance.

use adverb_host::now_rfc3339;
use adverb_launch::{
    Details, DeviceChoice, DeviceInfo, Event, Interrupt, Log, RoleRun, Run, RunError, Stop,
    in_order,
};
use adverb_results::{
    Counters, DeviceRef, Impairment, Outcome, PairRecord, Params, Provenance, Record, SCHEMA, Site,
    Values,
};
use adverb_workload::pair::{CellResult, CellSpec, Length};
use anyhow::{Context, bail};

use crate::backend::{Backend, failed};
use crate::jobs::of_path;

/// Measures cells on one backend.
pub struct Recorder {
    usual: MeasuredDevice,
    /// For cells with injected faults, if the two sides otherwise share memory.
    wire: Option<MeasuredDevice>,
    backend: Backend,
}

/// A measured device.
struct MeasuredDevice {
    device: DeviceRef,
    site: Site,
    details: DetailsOf,
}

/// Source of the details about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DetailsOf {
    /// The two sides, each with its own UDP port.
    Sides,
    /// The device that was queried: the sides do not use all of their ports.
    Queried,
}

impl MeasuredDevice {
    fn of(info: DeviceInfo, details: DetailsOf) -> Self {
        MeasuredDevice {
            device: info.reference,
            site: info.site,
            details,
        }
    }
}

/// Outcome of a cell.
pub enum Measured {
    /// It ended, with success or not.
    Record(Box<PairRecord>),
    /// The user interrupted it.
    Interrupted,
    /// It could not start: the server of the passive side cannot be reached any more.
    NoPeer(String),
}

impl Recorder {
    /// Returns a recorder for these cells, and queries the device as the peers see it.
    ///
    /// # Errors
    /// The device cannot be opened.
    pub fn new(backend: Backend, cells: &[CellSpec], log: Log) -> anyhow::Result<Self> {
        let mut wire = None;
        let usual = match &backend {
            Backend::Hosts(launcher) if launcher.is_within_memory() => {
                let device = launcher.device();
                let impaired = cells
                    .iter()
                    .filter(|spec| spec.params.path.impairment.is_some());
                let impaired = impaired.count();
                if impaired < cells.len() {
                    log(Event::Warning(format!(
                        "both sides are at {device} and share memory: this measures the local port, as device soft; for UDP, run `adverb serve` at another address and name it with --peer, or add --loss 0"
                    )));
                }
                if impaired > 0 {
                    wire = Some(MeasuredDevice::of(
                        DeviceInfo::query(&device)?,
                        DetailsOf::Sides,
                    ));
                }
                MeasuredDevice::of(DeviceInfo::query(&DeviceChoice::SOFT)?, DetailsOf::Queried)
            }
            Backend::Hosts(launcher) => {
                MeasuredDevice::of(DeviceInfo::query(&launcher.device())?, DetailsOf::Sides)
            }
            Backend::Model(hardware) => {
                MeasuredDevice::of(DeviceInfo::of_model(hardware)?, DetailsOf::Queried)
            }
        };
        Ok(Recorder {
            usual,
            wire,
            backend,
        })
    }

    /// Returns the device on which a cell with these faults is measured.
    fn device_for(&self, impairment: Option<&Impairment>) -> &MeasuredDevice {
        let wire = self.wire.as_ref().filter(|_| impairment.is_some());
        wire.unwrap_or(&self.usual)
    }

    /// Whether a record was measured on this device; for a model, also with the same parameters.
    pub fn is_of(&self, record: &Record) -> bool {
        let impairment = record.params.get("impairment").cloned();
        let impairment: Option<Impairment> =
            impairment.and_then(|asked| serde_json::from_value(asked).ok());
        let measured = self.device_for(impairment.as_ref());
        self.backend
            .is_of(record, (&measured.device, &measured.site))
    }

    /// Runs cells: on a real device one after another, in the given pass, from 1 on; on a model ahead of `body` and
    /// on all cores. Each call of the function that `body` gets returns the outcome of the next cell.
    ///
    /// # Errors
    /// Errors of `body`. The function that it gets fails if the processes of a cell cannot be started or
    /// watched.
    pub fn in_order<T>(
        &mut self,
        cells: &[CellSpec],
        (pass, interrupt): (u32, &Interrupt),
        body: impl FnOnce(&mut dyn FnMut() -> anyhow::Result<Measured>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        if let Backend::Model(hardware) = &self.backend {
            let work = |spec: &CellSpec, stop: &Stop| {
                let is_over = || interrupt.raised() || stop.is_set();
                let started = now_rfc3339();
                let hardware = hardware.at_rate(spec.params.path.rate);
                Ok(match hardware.run(spec, spec.into(), &is_over) {
                    Some(run) => self.measured(spec, started, run),
                    None => Measured::Interrupted,
                })
            };
            return in_order(cells, work, body);
        }
        let mut cells = cells.iter();
        body(&mut || {
            let spec = cells.next().context("all cells have been run")?;
            self.measure((spec, pass), interrupt)
        })
    }

    /// Runs a cell on two processes.
    fn measure(
        &mut self,
        (spec, pass): (&CellSpec, u32),
        interrupt: &Interrupt,
    ) -> anyhow::Result<Measured> {
        let started = now_rfc3339();
        let Backend::Hosts(launcher) = &mut self.backend else {
            bail!("{} has no processes", self.usual.device);
        };
        let run = match launcher.run(&in_pass(spec, pass), spec.timeout().into(), interrupt) {
            Ok(run) => run,
            Err(RunError::Interrupted) => return Ok(Measured::Interrupted),
            Err(RunError::Unreachable(reason)) => return Ok(Measured::NoPeer(reason)),
            Err(error) => return Err(failed(error)),
        };
        Ok(self.measured(spec, started, run))
    }

    /// Makes the record of a run that ended.
    fn measured(
        &self,
        spec: &CellSpec,
        started: String,
        mut run: Run<Option<CellResult>>,
    ) -> Measured {
        let measured = self.device_for(spec.params.path.impairment.as_ref());
        let provenance = self.provenance(spec, started, take_details(&mut run));
        let mut record = pair_record(spec, run, (measured.device.clone(), provenance));
        if measured.device == DeviceChoice::SOFT.reference() {
            // The ports have a path MTU, but messages in shared memory are not split into packets.
            record.params.path_mtu_bytes = None;
        }
        Measured::Record(Box::new(record))
    }

    /// Returns the site of a passive side at a peer, with its device's name if that differs.
    fn passive_site(&self, measured: &MeasuredDevice, said: Details) -> Option<Site> {
        let welcome = self.backend.peers().first()?.welcome();
        let mut site = welcome.site.clone();
        site.device.extend(said);
        if welcome.device != measured.device {
            let name = welcome.device.to_string();
            site.device.insert("name".to_owned(), name);
        }
        Some(site)
    }

    fn provenance(&self, spec: &CellSpec, started: String, said: (Details, Details)) -> Provenance {
        let is_reversed = spec.params.traffic.reversed && !self.backend.peers().is_empty();
        let measured = self.device_for(spec.params.path.impairment.as_ref());
        let (active, passive) = match (measured.details, is_reversed) {
            (DetailsOf::Queried, _) => Default::default(),
            (DetailsOf::Sides, false) => said,
            // The passive side runs here.
            (DetailsOf::Sides, true) => (said.1, said.0),
        };
        let mut site = measured.site.clone();
        if matches!(self.backend, Backend::Hosts(_)) && self.backend.peers().is_empty() {
            site.device.extend(of_the_other_side(&active, &passive));
        }
        site.device.extend(active);
        let (here, there) = (site, self.passive_site(measured, passive));
        match there {
            Some(there) if is_reversed => self.backend.provenance(started, there, Some(here)),
            there => self.backend.provenance(started, here, there),
        }
    }
}

/// Takes the details of the active and the passive side's devices for the record's provenance.
pub(crate) fn take_details(run: &mut Run<Option<CellResult>>) -> (Details, Details) {
    let mut roles = run.roles.iter_mut();
    let mut take = || roles.next().map(|role| std::mem::take(&mut role.details));
    (take().unwrap_or_default(), take().unwrap_or_default())
}

/// Makes the record of a cell that ran on `device`; a run that did not start has no roles.
pub(crate) fn pair_record(
    spec: &CellSpec,
    run: Run<Option<CellResult>>,
    (device, provenance): (DeviceRef, Provenance),
) -> PairRecord {
    let result = run.reports.map_err(|failure| failure.reason);
    let result = result.and_then(|reports| {
        let result = reports.into_iter().flatten().next();
        result.ok_or_else(|| "the active side reported no result".to_owned())
    });
    let (outcome, mut params, metrics) = match result {
        Ok(CellResult { params, metrics }) => (Outcome::Ok, params, Some(metrics)),
        Err(reason) => (Outcome::Failed { reason }, asked(spec), None),
    };
    let mut roles = run.roles.into_iter();
    let (active, passive) = (roles.next(), roles.next());
    let core = |role: &Option<RoleRun>| role.as_ref().and_then(|role| role.core);
    let numa_node = |role: &Option<RoleRun>| role.as_ref().and_then(|role| role.numa_node);
    (params.active_core, params.passive_core) = (core(&active), core(&passive));
    params.active_numa_node = numa_node(&active);
    params.passive_numa_node = numa_node(&passive);
    // The run's own faults may have another seed.
    params.impairment = spec.params.path.impairment;
    let counters = |role: Option<RoleRun>| role.map(|role| role.counters).unwrap_or_default();
    PairRecord {
        schema: SCHEMA,
        cell: spec.id.clone(),
        figures: spec.figures.clone(),
        program: spec.program,
        device,
        params,
        outcome,
        metrics,
        counters: Counters {
            active: counters(active),
            passive: counters(passive),
        },
        provenance,
    }
}

/// Returns the record as it is kept, with all options of the path that were asked for.
pub fn kept(spec: &CellSpec, pair: &PairRecord) -> Record {
    let mut record = Record::from(pair);
    add_path(spec, &mut record.params);
    record
}

/// Returns the parameters of a cell by their names in its record, as far as they are known before it runs.
pub fn asked_values(spec: &CellSpec) -> Values {
    let json = serde_json::to_value(asked(spec)).unwrap_or_default();
    let mut values = json.as_object().cloned().unwrap_or_default();
    add_path(spec, &mut values);
    values
}

fn add_path(spec: &CellSpec, params: &mut Values) {
    for (name, value) in of_path(&spec.params.path) {
        params.entry(name).or_insert(value);
    }
}

/// Returns the details in which the passive side's device differs from the active side's, if both are on one
/// host: each has its own UDP port.
fn of_the_other_side(active: &Details, passive: &Details) -> Details {
    let other = passive.iter().filter(|said| !active.contains(said));
    other
        .map(|(name, value)| (format!("{name} of the passive side"), value.clone()))
        .collect()
}

/// Returns the requested parameters of a cell that failed before it chose the remaining ones.
fn asked(spec: &CellSpec) -> Params {
    let iters = match spec.params.length {
        Length::Iters(n) => Some(n),
        Length::Duration(_) => None,
    };
    spec.params(iters, spec.params.warmup)
}

/// Returns a cell for one of several passes, from 1 on. Each loses other packets; otherwise the interval of the mean would lack
/// the differences that lost packets make.
fn in_pass(spec: &CellSpec, pass: u32) -> CellSpec {
    let mut spec = spec.clone();
    let path = &mut spec.params.path;
    path.impairment = path.impairment.map(|faults| faults.in_pass(pass));
    spec
}

#[cfg(test)]
mod tests {
    use adverb_results::Opcode;
    use adverb_units::Bytes;
    use adverb_workload::pair::Request;

    use super::*;

    #[test]
    fn each_run_of_a_cell_loses_other_packets() {
        let lossy = |op, seed| {
            let mut request = Request::new(op, Bytes::new(64));
            request.path.impairment = Some(Impairment {
                seed,
                ..Impairment::default()
            });
            CellSpec::ping(request)
        };
        let (one, other) = (lossy(Opcode::Send, 7), lossy(Opcode::Write, 7));
        let seeds = [(&one, 1), (&one, 2), (&other, 1), (&one, 3)].map(|(cell, pass)| {
            let run = in_pass(cell, pass);
            assert_eq!(run.id, cell.id);
            run.params.path.impairment.unwrap().seed
        });
        assert_eq!(seeds, [7, 8, 7, 9]);
    }
}
