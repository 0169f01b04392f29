//! Runs programs with several members and makes their records.

use std::time::Duration;

use adverb_host::now_rfc3339;
use adverb_launch::{
    DeviceChoice, DeviceInfo, Hardware, Interrupt, Peer, RunError, Usage, VirtualLimits,
};
use adverb_patterns::Job;
use adverb_results::{Outcome, Record, SCHEMA, Values, merged};
use adverb_units::Span;
use adverb_workload::{Program, pattern::Schedule};
use anyhow::anyhow;
use serde_json::Value;

use super::result::Rows;
use super::words::of_path;
use crate::args::{ClientArgs, DeviceArgs, Format, OutArgs, PlaceArgs};
use crate::busy::Beside;
use crate::hosts::{self, Bed};
use crate::request::{Shape, check_path, check_places};
use crate::sink::{Sink, Table};
use crate::terminal;

/// Timeout of a program in addition to the time that it measures.
const PATIENCE: Duration = Duration::from_secs(300);

/// Outstanding READs and atomics of one queue pair.
pub(super) const RD_ATOMIC: u8 = 16;

/// One point of a program: the job, and the parameters for its record.
pub(super) struct Cell {
    program: &'static str,
    params: Values,
    /// Description for the table's title.
    title: String,
    job: Job,
}

impl Cell {
    pub(super) fn new(program: &'static str, params: &Value, title: String, job: Job) -> Self {
        let mut params = params.as_object().cloned().unwrap_or_default();
        params.extend(of_path(job.path()));
        let faults = job.path().impairment;
        let faults = faults.map(|faults| format!(", {faults}"));
        Cell {
            program,
            params,
            title: title + &faults.unwrap_or_default(),
            job,
        }
    }

    /// Returns the id, equal for equal programs and parameters: `kv/by=rpc/value_bytes=32/…`.
    fn id(&self) -> String {
        let faults = self.job.path().impairment;
        let faults = faults.map(|faults| faults.id()).unwrap_or_default();
        let params = self.params.iter().filter(|(name, _)| *name != "impairment");
        let words =
            params.filter_map(|(name, value)| Some((name, adverb_results::word(Some(value))?)));
        let id = words.fold(self.program.to_owned(), |id, (name, word)| {
            format!("{id}/{name}={word}")
        });
        id + &faults
    }
}

/// Returns when members warm up and measure.
pub(super) fn schedule(args: &ClientArgs) -> Schedule {
    let measured = duration(args);
    Schedule {
        warm_up: measured / 4,
        measured,
    }
}

fn duration(args: &ClientArgs) -> Span {
    args.duration.unwrap_or(match args.device.choice() {
        DeviceChoice::Model(_) => Span::from_ms(1),
        DeviceChoice::Soft(_) | DeviceChoice::Verbs(_) | DeviceChoice::Tcp(_) => Span::from_secs(1),
    })
}

/// Where and how often the points of a program run, and where their records go.
pub(super) struct Setting<'a> {
    pub(super) device: &'a DeviceArgs,
    pub(super) place: &'a PlaceArgs,
    pub(super) out: &'a OutArgs,
    pub(super) format: Format,
    /// Runs of each point.
    pub(super) repetitions: u32,
    /// Measured time of a run, for programs that have one.
    pub(super) duration: Span,
}

impl<'a> From<&'a ClientArgs> for Setting<'a> {
    fn from(args: &'a ClientArgs) -> Self {
        Setting {
            device: &args.device,
            place: &args.place,
            out: &args.out,
            format: args.format,
            repetitions: args.repetitions,
            duration: duration(args),
        }
    }
}

/// Runs the points of a program of requests.
///
/// # Errors
/// As for [`measure_as`].
pub(super) fn measure(
    cells: impl Iterator<Item = anyhow::Result<Cell>>,
    args: &ClientArgs,
) -> anyhow::Result<()> {
    measure_as(cells, &args.into(), |title| Rows { title })
}

/// Runs the points of a program one after another on the device and hosts that were named, and prints them
/// as `rows` below a title.
///
/// # Errors
/// A point cannot run there, or fails; the records of earlier points are kept.
pub(super) fn measure_as<T: Table>(
    cells: impl Iterator<Item = anyhow::Result<Cell>>,
    args: &Setting<'_>,
    rows: impl FnOnce(String) -> T,
) -> anyhow::Result<()> {
    let cells: Vec<Cell> = cells.collect::<anyhow::Result<_>>()?;
    let interrupt = Interrupt::listen()?;
    args.device.check()?;
    let device = args.device.choice();
    check_places(&device, args.place, Shape::Many)?;
    let mut bench = Bench::new(args, &cells)?;
    let points: Vec<Values> = cells.iter().map(|cell| cell.params.clone()).collect();
    // The columns of a sweep show the parameters in which its points differ.
    let title = match &cells[..] {
        [one] => one.title.clone(),
        _ => format!("{} points", cells.len()),
    };
    let mut sink = Sink::open(rows(title), &points, (args.out, args.format))?;
    let beside = (!bench.bed.is_served_here()).then(|| Beside::from_now(&device));
    let measured = cells.iter().try_for_each(|cell| {
        let (id, device) = (cell.id(), &bench.info.reference);
        if sink.has(|record| record.cell == id && record.device == *device) {
            return Ok(());
        }
        let passes = (1..=args.repetitions).map(|pass| bench.run(cell, pass, &interrupt));
        for record in merged(passes.collect::<anyhow::Result<_>>()?) {
            warn_if_idle(&record, args);
            sink.take(record)?;
        }
        Ok(())
    });
    sink.finish(measured)?;
    if let Some(beside) = beside {
        beside.warn();
    }
    Ok(())
}

fn warn_if_idle(record: &Record, args: &Setting<'_>) {
    if record.metric("requests") == Some(0.0) {
        terminal::warn(&format!(
            "no request ended within {}: choose a longer --duration",
            args.duration
        ));
    }
}

/// Runs points and makes their records.
struct Bench {
    bed: Bed,
    info: DeviceInfo,
    patience: Duration,
}

impl Bench {
    fn new(args: &Setting<'_>, cells: &[Cell]) -> anyhow::Result<Self> {
        let device = args.device.choice();
        let patience = PATIENCE + Duration::from(args.duration * 2);
        let check = |caps: &adverb_verbs::DeviceCaps| -> Result<(), Usage> {
            let mut all = cells.iter();
            all.try_for_each(|cell| Program::check(&cell.job, caps).map_err(Usage))
        };
        let check_paths = |at: (&DeviceChoice, &DeviceInfo), peers: &[Peer]| {
            let mut paths = cells.iter().map(|cell| cell.job.path());
            paths.try_for_each(|path| check_path(path, at, peers))
        };
        if let DeviceChoice::Model(preset) = &device {
            let hardware = Hardware::load(preset)?;
            check(&hardware.limits()?.caps)?;
            let info = DeviceInfo::of_model(&hardware)?;
            check_paths((&device, &info), &[])?;
            return Ok(Bench {
                info,
                bed: Bed::Model(Box::new(hardware)),
                patience,
            });
        }
        let launcher = hosts::launcher(args.device.all(), Vec::new(), args.place)?;
        for cell in cells {
            launcher.check_device(&cell.job)?;
        }
        let info = DeviceInfo::query(&device)?;
        let peers = hosts::peers(args.place, &device, &info)?;
        check_paths((&device, &info), &peers)?;
        let common = |caps, peer: &Peer| peer.common_limits(&caps);
        check(&peers.iter().fold(info.caps.clone(), common))?;
        let launcher = launcher.with_peers(peers);
        cells
            .iter()
            .try_for_each(|cell| launcher.check(&cell.job))?;
        let mut info = DeviceInfo::query(&launcher.device())?;
        let is_plain =
            |cell: &Cell| cell.job.is_connected() && cell.job.path().impairment.is_none();
        if launcher.is_within_memory() && cells.iter().any(is_plain) {
            terminal::warn(&format!(
                "all members are at {} and share memory: connected queue pairs use the local port, only datagrams use UDP; for UDP name an address for each host (--device soft@ADDR,soft@ADDR or --peer)",
                launcher.device()
            ));
            info.site.device.extend([hosts::in_shared_memory()]);
        }
        Ok(Bench {
            bed: Bed::Hosts(Box::new(launcher)),
            info,
            patience,
        })
    }

    fn run(&mut self, cell: &Cell, pass: u32, interrupt: &Interrupt) -> anyhow::Result<Record> {
        let started = now_rfc3339();
        let run = match &mut self.bed {
            Bed::Hosts(launcher) => launcher.run(&cell.job, self.patience, interrupt),
            Bed::Model(hardware) => {
                let run = hardware.run(&cell.job, VirtualLimits::default(), &|| interrupt.raised());
                run.ok_or(RunError::Interrupted)
            }
        };
        let run = run.map_err(hosts::failed)?;
        let reports = run.reports.map_err(|failure| match failure.is_usage {
            true => Usage(failure.reason).into(),
            false => anyhow!(failure.reason),
        })?;
        let outcome = cell.job.outcome(&reports)?;
        let device = &self.info.reference;
        let roles =
            run.roles
                .iter()
                .zip(outcome.roles)
                .map(|(role, done)| adverb_results::RoleRun {
                    name: role.name.clone(),
                    host: self.bed.host_name(role.host),
                    device: (role.device != *device).then(|| role.device.to_string()),
                    core: role.core,
                    numa_node: role.numa_node,
                    cpu: done.cpu,
                    metrics: done.metrics,
                });
        let roles = roles.collect();
        let counted = run.roles.into_iter();
        let counted = counted.filter(|role| !role.counters.is_empty());
        let peer = self.bed.peers().first();
        let passive = peer.map(|peer| peer.welcome().site.clone());
        Ok(Record {
            schema: SCHEMA,
            cell: cell.id(),
            label: None,
            pass: Some(pass),
            figures: Vec::new(),
            program: cell.program.to_owned(),
            device: self.info.reference.clone(),
            params: cell.params.clone(),
            outcome: Outcome::Ok,
            metrics: Some(outcome.metrics),
            roles,
            counters: counted.map(|role| (role.name, role.counters)).collect(),
            provenance: self
                .bed
                .provenance(started, self.info.site.clone(), passive),
        })
    }
}
