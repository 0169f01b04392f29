//! Runs programs with several members and prints their records.

use std::ops::RangeInclusive;
use std::sync::mpsc::Sender;
use std::time::Duration;

use adverb_host::PcieCounters;
use adverb_launch::{DeviceChoice, DeviceInfo, Hardware, Interrupt, Peer, Usage};
use adverb_measure::{Backend, JobCell, JobRecorder, Meta, Rendered, Unfinished};
use adverb_patterns::Job;
use adverb_report::format;
use adverb_results::{Impairment, Record, Values, merged};
use adverb_units::Span;
use adverb_workload::{Program, pattern::Schedule};
use anyhow::Context as _;

use super::result::Rows;
use crate::args::{ClientArgs, DeviceArgs, Format, RunsArgs, TargetArgs};
use crate::busy::LoadMonitor;
use crate::hosts;
use crate::progress::Measuring;
use crate::request::{Shape, check_path, check_places};
use crate::resumed::{self, TIME_NOISE};
use crate::section::with_program;
use crate::sink::{Sink, Table};
use crate::terminal;

/// Why a model refuses --repetitions.
pub(crate) const NO_NOISE: &str = "--repetitions: virtual time has no noise, so a model repeats only what loses packets; leave it out";

/// Metric of a point that failed or was interrupted after some of its runs: how many did not end. `--resume` runs them.
const MISSING: &str = "repetitions_missing";

/// Timeout of a program in addition to the time that it measures.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Returns when members warm up and measure.
pub(super) fn schedule(args: &ClientArgs) -> Schedule {
    schedule_on(&args.runs, &args.on.device)
}

/// Returns the same on one of several devices: as typed, or as usual there.
pub(super) fn schedule_on(runs: &RunsArgs, device: &DeviceArgs) -> Schedule {
    let measured = runs.duration.unwrap_or(match device.choice() {
        DeviceChoice::Model(_) => Span::from_ms(1),
        DeviceChoice::Soft(_) | DeviceChoice::Verbs(_) | DeviceChoice::Tcp(_) => Span::from_secs(1),
    });
    Schedule {
        warm_up: measured / 4,
        measured,
    }
}

/// Where and how often the points of a program run, and where their records go.
pub(crate) struct Setting<'a> {
    pub(crate) on: &'a TargetArgs,
    /// Runs of each point.
    pub(crate) repetitions: u32,
    /// Whether their duration was typed: a model keeps to it, also if that is too short for a steady state.
    pub(crate) keeps_duration: bool,
    /// Whether bytes over PCIe are counted on this host.
    pub(crate) pcie_counters: bool,
    /// How records are printed; `None` if they are only kept in the folder.
    pub(crate) prints: Option<Format>,
    /// The router between the hosts, if it has the faults of each point.
    pub(crate) router: Option<&'a Sender<Impairment>>,
    /// The study, if the points are its cells.
    pub(crate) study: Option<&'a Meta>,
}

impl<'a> Setting<'a> {
    /// Without a router.
    pub(crate) fn new(on: &'a TargetArgs, repetitions: u32) -> Self {
        Setting {
            on,
            repetitions,
            keeps_duration: false,
            pcie_counters: false,
            prints: Some(on.format),
            router: None,
            study: None,
        }
    }
}

impl<'a> From<&'a ClientArgs> for Setting<'a> {
    fn from(args: &'a ClientArgs) -> Self {
        Setting {
            keeps_duration: args.runs.duration.is_some(),
            pcie_counters: args.pcie_counters,
            ..Setting::new(&args.on, args.runs.repetitions)
        }
    }
}

/// Runs the points of a program of requests.
///
/// # Errors
/// As for [`measure_as`].
pub(super) fn measure(
    cells: impl Iterator<Item = Result<JobCell, Usage>>,
    args: &ClientArgs,
) -> anyhow::Result<()> {
    measure_as(cells, &args.into(), Rows::of_requests).map(drop)
}

/// The points of a program, measured.
pub(crate) struct Points {
    /// The records of all points in order, with those that a resumed folder had.
    pub(crate) records: Vec<Record>,
    /// Number of records that were measured now.
    pub(crate) new: usize,
    /// The report, if the records are kept in a folder.
    pub(crate) rendered: Option<Rendered>,
}

/// Runs the points of a program on the device and hosts that were named, in order, and prints them as `rows` below a
/// title.
///
/// # Errors
/// A point cannot run there, or fails; the records of earlier points are kept.
pub(crate) fn measure_as<T: Table>(
    cells: impl Iterator<Item = Result<JobCell, Usage>>,
    args: &Setting<'_>,
    rows: impl FnOnce(String) -> T,
) -> anyhow::Result<Points> {
    let cells: Vec<JobCell> = cells.collect::<Result<_, Usage>>()?;
    // The columns of a sweep show the parameters in which its points differ.
    let title = match &cells[..] {
        [one] => one.title.clone(),
        _ => format!("{} points", cells.len()),
    };
    measure_each(&[(args, &cells)], rows(title))
}

/// Runs points on each of several devices, and prints them as rows of one table.
///
/// # Errors
/// As for [`measure_as`].
pub(super) fn measure_each<T: Table>(
    all: &[(&Setting<'_>, &[JobCell])],
    table: T,
) -> anyhow::Result<Points> {
    let interrupt = Interrupt::listen()?;
    let mut recorders = Vec::new();
    for (args, cells) in all {
        args.on.device.check()?;
        let device = args.on.device.choice();
        check_places(&device, &args.on.place, Shape::Many)?;
        let is_model = matches!(device, DeviceChoice::Model(_));
        // Which packets are lost is a matter of chance.
        let differs = |cell: &JobCell| cell.job.path().loses();
        if is_model && args.repetitions > 1 && !cells.iter().any(differs) {
            return Err(Usage(NO_NOISE.to_owned()).into());
        }
        recorders.push(recorder(args, cells)?);
    }
    let points = all.iter().flat_map(|(_, cells)| *cells);
    let points = points.map(|cell| {
        let params = with_program(cell.program, &cell.params);
        (table.section(&cell.figures), params)
    });
    let points: Vec<(&str, Values)> = points.collect();
    let (first, _) = all[0];
    let mut sink = Sink::open(table, &points, (&first.on.out, first.prints))?;
    if let Some(study) = first.study {
        sink.describe(study)?;
    }
    let (mut records, mut new) = (Vec::new(), 0);
    let mut monitors = Vec::new();
    let mut runs = all.iter().zip(&mut recorders);
    let measured = runs.try_for_each(|((args, cells), recorder)| {
        let is_served_here = recorder.backend().is_served_here();
        let device = args.on.device.choice();
        monitors.extend((!is_served_here).then(|| LoadMonitor::from_now(&device)));
        let all = with_remaining_runs(cells, recorder, &mut sink, args);
        let left = all.iter().filter(|(.., passes)| !passes.is_empty());
        let runs = left.clone();
        let runs = runs.map(|(cell, _, passes)| (*cell, passes.clone()));
        let runs: Vec<_> = runs.collect();
        let mut now = Vec::new();
        recorder.in_order(&runs, &interrupt, |measured| {
            for (place, (cell, earlier, passes)) in left.enumerate() {
                if let Some(router) = args.router {
                    let faults = cell.job.path().impairment;
                    let sent = router.send(faults.unwrap_or_default());
                    sent.context("the router between the ends has ended")?;
                }
                let shown = Measuring::point(place, runs.len(), &cell.id());
                let (measured, ended) = finished(measured())?;
                drop(shown);
                let before = *passes.start() as usize - 1;
                let count = before + measured.len();
                let earlier = earlier.as_ref().filter(|_| before > 0);
                let earlier = earlier.map(without_what_is_missing);
                for mut record in merged(earlier.into_iter().chain(measured).collect()) {
                    warn_if_short(&cell.job, (&record, count), args);
                    if ended.is_err() {
                        note_missing(&mut record, count, *passes.end());
                    }
                    now.push(record.clone());
                    sink.take(record)?;
                }
                ended?;
            }
            Ok(())
        })?;
        new += now.len();
        let mut now = now.into_iter();
        let of_device = all.into_iter().map(|(_, kept, passes)| {
            let kept = kept.filter(|_| passes.is_empty());
            kept.or_else(|| now.next())
        });
        records.extend(of_device.flatten());
        Ok(())
    });
    let rendered = sink.finish(measured)?;
    for monitor in monitors {
        monitor.warn();
    }
    Ok(Points {
        records,
        new,
        rendered,
    })
}

/// A point, what a resumed folder has of it, and the numbers of the runs that remain.
type PointToRun<'c> = (&'c JobCell, Option<Record>, RangeInclusive<u32>);

/// Returns what is to be run of each point, and says what a resumed folder has.
fn with_remaining_runs<'c, T>(
    cells: &'c [JobCell],
    recorder: &JobRecorder,
    sink: &mut Sink<T>,
    args: &Setting<'_>,
) -> Vec<PointToRun<'c>> {
    let all = cells.iter().map(|cell| {
        let earlier = sink.earlier(|record| recorder.is_of(cell, record)).cloned();
        let asked = recorder.repetitions(cell, args.repetitions);
        let passes = remaining(earlier.as_ref(), asked);
        (cell, earlier, passes)
    });
    let all: Vec<PointToRun<'_>> = all.collect();
    let kept = all.iter().filter(|(.., passes)| passes.is_empty());
    let kept: Vec<&Record> = kept.filter_map(|(_, kept, _)| kept.as_ref()).collect();
    sink.reuse(&kept);
    for (cell, earlier, _) in &all {
        warn_of_another_duration(&cell.job, earlier.as_ref(), args);
    }
    all
}

/// Returns the numbers of the runs of a point that remain after those that an `earlier` record has; empty if it is whole.
fn remaining(earlier: Option<&Record>, asked: u32) -> RangeInclusive<u32> {
    let Some(earlier) = earlier else {
        return 1..=asked;
    };
    let missing = earlier.metric(MISSING).unwrap_or(0.0) as u32;
    match earlier.repetition_count() as u32 {
        // The record of a program without figures of repetitions does not say how many it has: they are all there.
        0 if missing == 0 => asked + 1..=asked,
        0 => 1..=asked,
        done => done + 1..=asked.max(done + missing),
    }
}

/// Returns the record of the first runs of a point, to be merged with the others.
fn without_what_is_missing(record: &Record) -> Record {
    let mut record = record.clone();
    // The output adds the label to what it keeps.
    record.label = None;
    if let Some(metrics) = &mut record.metrics {
        metrics.shift_remove(MISSING);
    }
    record
}

/// Warns if a point was measured for another time than is typed now: the folder keeps its figures.
fn warn_of_another_duration(job: &Job, earlier: Option<&Record>, args: &Setting<'_>) {
    let elapsed = earlier.and_then(|record| {
        let runs = record.repetition_count().max(1);
        Some((record, record.metric("elapsed_ns")? / runs as f64))
    });
    let Some((record, elapsed)) = elapsed.filter(|_| args.keeps_duration) else {
        return;
    };
    let asked = job.asked();
    let factor = elapsed / asked.as_ns_f64();
    if !(1.0 / TIME_NOISE..TIME_NOISE).contains(&factor) {
        let measured = format::time(elapsed);
        resumed::warn((record, &measured), &format!("--duration {asked}"));
    }
}

/// Returns the records of the runs of a point that ended, and why there are no more.
fn finished(
    measured: anyhow::Result<Vec<Record>>,
) -> anyhow::Result<(Vec<Record>, anyhow::Result<()>)> {
    match measured {
        Ok(records) => Ok((records, Ok(()))),
        Err(error) => {
            let Unfinished { records, cause } = error.downcast()?;
            Ok((records, Err(cause)))
        }
    }
}

/// Notes in the record of a point that only `ended` of its runs have ended.
fn note_missing(record: &mut Record, ended: usize, repetitions: u32) {
    let missing = u64::from(repetitions).saturating_sub(ended as u64);
    if let Some(metrics) = &mut record.metrics {
        metrics.insert(MISSING.to_owned(), missing.into());
    }
    terminal::warn(&format!(
        "{}: {ended} of {repetitions} repetitions have ended",
        record.cell
    ));
}

/// Warns if too few requests ended in the measured time of each of the runs.
fn warn_if_short(job: &Job, (record, runs): (&Record, usize), args: &Setting<'_>) {
    let of_run = |name| Some(record.metric(name)? / runs as f64);
    let (Some(requests), Some(elapsed)) = (of_run("requests"), of_run("elapsed_ns")) else {
        return;
    };
    if requests == 0.0 {
        // Without --duration a model has measured for longer than it began with.
        let within = match args.keeps_duration {
            true => job.asked().to_string(),
            false => "the measured time".to_owned(),
        };
        return terminal::warn(&format!(
            "{}: no request ended within {within}: choose a longer --duration",
            record.cell
        ));
    }
    let within = format::time(elapsed);
    let wait = job.longest_wait();
    if let Some(wait) = wait.filter(|wait| elapsed < wait.as_ns_f64()) {
        let or = match job.is_stream() {
            true => "",
            false => ", or a shorter --timeout",
        };
        terminal::warn(&format!(
            "a lost packet is sent again after up to {wait}, and {within} were measured: rates and latencies lack the requests that waited for that; choose a --duration of several times as long{or}"
        ));
    } else if let Some(enough) = job.steady_requests().filter(|n| requests < *n as f64) {
        terminal::warn(&format!(
            "{requests:.0} requests ended within {within}, too few for a steady state: choose a --duration in which {enough} end, four times the number outstanding"
        ));
    }
}

/// Returns a recorder for these points; peers are connected and checked before anything runs.
fn recorder(args: &Setting<'_>, cells: &[JobCell]) -> anyhow::Result<JobRecorder> {
    let device = args.on.device.choice();
    if args.pcie_counters {
        check_pcie_counters(&device)?;
    }
    let longest = cells.iter().map(|cell| cell.job.asked()).max();
    let timeout = TIMEOUT + Duration::from(longest.unwrap_or_default() * 2);
    let check = |caps: &adverb_verbs::DeviceCaps| -> Result<(), Usage> {
        let mut all = cells.iter();
        all.try_for_each(|cell| Program::check(&cell.job, caps).map_err(Usage))
    };
    let check_paths = |at: (&DeviceChoice, &DeviceInfo), peers: &[Peer]| {
        cells.iter().try_for_each(|cell| {
            check_transports(cell, at)?;
            check_path(cell.job.path(), at, peers)
        })
    };
    if let DeviceChoice::Model(preset) = &device {
        let hardware = Hardware::load(preset)?;
        check(&hardware.limits()?.caps)?;
        cells
            .iter()
            .try_for_each(|cell| hardware.check(&cell.job))?;
        let info = DeviceInfo::of_model(&hardware)?;
        check_paths((&device, &info), &[])?;
        let backend = Backend::Model(Box::new(hardware));
        let recorder = JobRecorder::new(backend, info, timeout);
        return Ok(recorder.keeping_duration(args.keeps_duration));
    }
    let launcher = hosts::launcher(args.on.device.all(), Vec::new(), &args.on.place)?;
    for cell in cells {
        launcher.check_device(&cell.job)?;
    }
    let info = DeviceInfo::query(&device)?;
    let peers = hosts::peers(&args.on.place, &device, &info)?;
    check_paths((&device, &info), &peers)?;
    let common = |caps, peer: &Peer| peer.common_limits(&caps);
    check(&peers.iter().fold(info.caps.clone(), common))?;
    let launcher = launcher.with_peers(peers);
    cells
        .iter()
        .try_for_each(|cell| launcher.check(&cell.job))?;
    let info = DeviceInfo::query(&launcher.device())?;
    let local = launcher.is_within_memory().then_some(DeviceChoice::SOFT);
    let local = local.as_ref().map(DeviceInfo::query).transpose()?;
    let at = launcher.device();
    let recorder = JobRecorder::new(Backend::Hosts(Box::new(launcher)), info, timeout);
    let recorder = recorder.within_memory(local);
    if cells
        .iter()
        .any(|cell| recorder.is_within_memory(&cell.job))
    {
        terminal::warn(&format!(
            "all members are at {at} and share memory: this measures the local port, as device soft; for UDP name an address for each host (--device soft@ADDR,soft@ADDR or --peer)"
        ));
    }
    Ok(recorder.counting_pcie(args.pcie_counters))
}

/// Refuses a program of UC or UD queue pairs on a device that has only RC.
fn check_transports(
    cell: &JobCell,
    (device, info): (&DeviceChoice, &DeviceInfo),
) -> Result<(), Usage> {
    let link = info.port.link_layer;
    if link.has_all_transports() || !cell.job.needs_all_transports() {
        return Ok(());
    }
    let (name, params) = (cell.program, cell.params.get("by"));
    let by = adverb_results::word(params).map(|by| format!(" --by {by}"));
    let program = name.to_owned() + &by.unwrap_or_default();
    Err(Usage(format!(
        "{program} needs UC and UD queue pairs, and {device} ({link}) has only RC; use a RoCE or InfiniBand device, or `adverb rpc --transport rc`"
    )))
}

/// Refuses to count bytes over PCIe on a device that uses none, and where the processor's counters cannot be read.
fn check_pcie_counters(device: &DeviceChoice) -> Result<(), Usage> {
    let why = match device {
        DeviceChoice::Model(_) => {
            "a model counts cache lines over PCIe without it (pcie_lines_per_request in --json); leave it out"
                .to_owned()
        }
        DeviceChoice::Soft(_) | DeviceChoice::Tcp(_) => {
            format!("{device} has no PCIe device; name an RDMA device, verbs:NAME")
        }
        DeviceChoice::Verbs(_) => match PcieCounters::open() {
            Ok(_) => return Ok(()),
            Err(why) => why.to_string(),
        },
    };
    Err(Usage(format!("--pcie-counters: {why}")))
}
