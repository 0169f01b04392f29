//! `adverb study --study wan`, `numa` and `guidelines`: studies whose cells are programs of several roles.

use std::path::Path;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::sync::mpsc::Sender;

use adverb_experiments::{Abilities, FigureId, Part, ProgramStudy, Unfilled, Words};
use adverb_host::{nodes, resolve, usable_cores};
use adverb_launch::{DeviceChoice, DeviceInfo, Hardware, SoftAddress, TcpAddress, Usage};
use adverb_measure::{JobCell, Meta, Rendered};
use adverb_report::{FigureSpec, Plots, RecordPanel};
use adverb_results::{DeviceKind, Impairment, Record};
use adverb_units::Span;
use adverb_verbs::{AtomicCap, NodeChoice, PathOptions};
use anyhow::{Context as _, anyhow};
use serde_json::json;

use super::ends::{self, behind_degen};
use super::planned::asked_figures;
use super::print;
use crate::args::{DeviceArgs, Format, OutArgs, StudyArgs, TargetArgs};
use crate::failure::after_signal;
use crate::services::{Setting, measure_as};
use crate::sink::Table;
use crate::{report, terminal};

/// Width of a column of a metric, at least.
const METRIC: usize = 10;

/// NUMA nodes of this machine.
static NODES: LazyLock<Vec<u32>> = LazyLock::new(nodes);

/// Measures the study's cells on each device, and writes the report.
pub(super) fn run(
    study: &'static ProgramStudy,
    args: &StudyArgs,
    mut meta: Meta,
    out: &Path,
) -> anyhow::Result<ExitCode> {
    refuse(study, args)?;
    let devices = devices(args, &meta)?;
    let work = |router: Option<&Sender<Impairment>>| {
        // The devices at the near end of a path can be queried only now.
        let plans = device_plans(study, args, &mut meta, devices)?;
        measure(plans, (args, &meta, out), router)
    };
    let measured = match args.degen {
        true => behind_degen(|router| work(Some(router))),
        false => work(None),
    };
    let degen = if args.degen { " --degen" } else { "" };
    let (planned, ok, rendered) = measured.map_err(|error| match after_signal() {
        Some(_) => anyhow!(
            "{error:#}: continue with `adverb study --resume{degen} --out {}`",
            out.display()
        ),
        None => error,
    })?;
    let rendered = rendered.context("a study has a device")?;
    // A cell that fails ends the study.
    let counts = json!({
        "planned": planned, "ok": ok, "failed": 0, "skipped": planned - ok, "interrupted": false,
    });
    print(out, &rendered, (args.format, counts))?;
    if args.open {
        report::show(&rendered.path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is measured on a device.
struct DevicePlan {
    device: DeviceArgs,
    rows: Rows,
    cells: Vec<JobCell>,
}

/// Plans the cells of each device, and describes them in `meta`; says which parts are left out.
fn device_plans(
    study: &'static ProgramStudy,
    args: &StudyArgs,
    meta: &mut Meta,
    devices: Vec<DeviceArgs>,
) -> anyhow::Result<Vec<DevicePlan>> {
    meta.set_devices(devices.iter().map(DeviceArgs::all).collect());
    meta.planned.clear();
    meta.unfilled.clear();
    let asked = match asked_figures(args)? {
        asked if asked.is_empty() => meta.only.clone(),
        asked => asked,
    };
    let of_folder = Rows::of(study, &meta.only);
    let mut plans = Vec::new();
    for device in devices {
        let cells = cells(&of_folder, (args, meta), &device)?;
        meta.planned.extend(cells.iter().map(JobCell::id));
        let rows = Rows::of(study, &asked);
        let is_asked = |cell: &JobCell| rows.figure(&cell.figures).is_some();
        let cells = cells.into_iter().filter(is_asked).collect();
        plans.push(DevicePlan {
            device,
            rows,
            cells,
        });
    }
    Ok(plans)
}

/// Measures the cells of each device, in a folder. `router` is what is between the hosts. Returns the number of
/// cells, and of those that were measured now, and the last report.
fn measure(
    plans: Vec<DevicePlan>,
    (args, meta, out): (&StudyArgs, &Meta, &Path),
    router: Option<&Sender<Impairment>>,
) -> anyhow::Result<(usize, usize, Option<Rendered>)> {
    let mut place = args.place.clone();
    if place.peer.is_empty() {
        place.peer.extend(meta.peer.clone());
    }
    place.peer.extend(router.map(|_| ends::peer()));
    let mut is_first = true;
    let (mut planned, mut measured, mut last) = (0, 0, None);
    for DevicePlan {
        device,
        rows,
        cells,
    } in plans
    {
        let on = TargetArgs {
            device,
            place: place.clone(),
            path: args.path,
            out: OutArgs {
                out: Some(out.to_owned()),
                // The first device has begun the folder.
                resume: args.resume || !is_first,
                label: meta.label.clone(),
                ..OutArgs::default()
            },
            format: args.format,
        };
        is_first = false;
        let setting = Setting {
            router,
            study: Some(meta),
            prints: (args.format == Format::Text).then_some(Format::Text),
            ..Setting::new(&on, args.repetitions.unwrap_or(1))
        };
        planned += cells.len();
        let cells = cells.into_iter().map(Ok);
        let points = measure_as(cells, &setting, |_| rows)?;
        measured += points.new;
        last = points.rendered;
    }
    Ok((planned, measured, last))
}

/// Returns the devices to measure: as typed, as in the folder that is resumed, or both devices at the near end of a path.
fn devices(args: &StudyArgs, meta: &Meta) -> Result<Vec<DeviceArgs>, Usage> {
    if args.resume && args.device.named().is_none() {
        return Ok(meta.devices().into_iter().map(DeviceArgs::of).collect());
    }
    if !args.degen {
        return Ok(args.device.each());
    }
    let soft = DeviceChoice::Soft(SoftAddress::At(ends::NEAR.into()));
    let tcp = DeviceChoice::Tcp(TcpAddress::default());
    if args.device.named().is_none() {
        return Ok([soft, tcp]
            .map(|device| DeviceArgs::of(vec![device]))
            .into());
    }
    let named = args.device.each();
    let elsewhere = named.iter().map(DeviceArgs::choice);
    let elsewhere = elsewhere.filter(|device| ![&soft, &tcp].contains(&device));
    match elsewhere.into_iter().next() {
        Some(device) => Err(Usage(format!(
            "--degen: {device} is not at an end of the path; use --device {soft} or tcp, or leave out --device for both"
        ))),
        None => Ok(named),
    }
}

/// Refuses options of the other studies.
fn refuse(study: &ProgramStudy, args: &StudyArgs) -> Result<(), Usage> {
    let reason = match (args.rates.is_empty(), args.degen && study.id != "wan") {
        (false, _) => format!(
            "--rates with --study {}: it compares no speeds of links; leave it out",
            study.id
        ),
        (true, true) => return Err(ends::only_wan()),
        (true, false) => return Ok(()),
    };
    Err(Usage(reason))
}

/// Returns the cells of a study on a device, by figure; says and keeps which parts of it are left out there.
fn cells(
    rows: &Rows,
    (args, meta): (&StudyArgs, &mut Meta),
    device: &DeviceArgs,
) -> anyhow::Result<Vec<JobCell>> {
    let (study, device) = (rows.study, device.choice());
    let is_virtual = matches!(device, DeviceChoice::Model(_));
    let known = abilities(&device)?;
    let abilities = Abilities {
        delay: args.degen || known.delay,
        ..known
    };
    let options = path_options(meta.path, args.degen, &device);
    let points = (study.plan)(meta.profile, abilities).into_iter();
    let cells = points.map(|mut point| {
        let own = *point.job.path();
        let mut path = own.or(options);
        // Two ends at one address use UDP only if their ports inject faults, or none on request.
        let none = Impairment {
            seed: 1,
            ..Impairment::default()
        };
        let over_udp = (abilities.delay && !is_virtual).then_some(none);
        path.impairment = path.impairment.or(over_udp);
        path.routed = args.degen;
        *point.job.path_mut() = path;
        let title = point.program.to_owned();
        let mut cell = JobCell::new(point.program, &point.params, title, point.job);
        cell.figures = point.figures.into_iter().map(str::to_owned).collect();
        cell
    });
    let place = |cell: &JobCell| {
        let figure = rows.figure(&cell.figures)?;
        rows.asked.iter().position(|spec| spec.id == figure.id)
    };
    let mut cells: Vec<JobCell> = cells.filter(|cell| place(cell).is_some()).collect();
    cells.sort_by_key(place);
    let left_out = || {
        study
            .left_out(&abilities)
            .filter(|part| rows.is_of(part.what))
    };
    if cells.is_empty() {
        let reasons = left_out().map(|part| format!("; {}: {}", part.what, part.why));
        let reasons: String = reasons.collect();
        let id = study.id;
        let reason = format!("{device}: no cell of --study {id} runs there{reasons}");
        return Err(Usage(reason).into());
    }
    let is_shown = |spec: &FigureSpec| {
        let mut ids = cells.iter().flat_map(|cell| &cell.figures);
        ids.any(|id| id == spec.id)
    };
    let has_reason = |spec: &FigureSpec| {
        left_out().any(|part| matches!(part.what, Part::Figure(own) if own.id == spec.id))
    };
    let absent = rows
        .asked
        .iter()
        .filter(|spec| !is_shown(spec) && !has_reason(spec));
    absent.for_each(|spec| terminal::say(&format!("left out: {}", Part::Figure(spec))));
    for part in left_out() {
        terminal::say(&format!("left out: {}: {}", part.what, part.why));
        if let Part::Figure(spec) = part.what {
            let (figure, reason) = (spec.id.to_owned(), part.why.to_owned());
            meta.unfilled.push(Unfilled { figure, reason });
        }
    }
    Ok(cells)
}

/// Returns the typed options of paths. Behind degen, TCP has only what the router does of them.
fn path_options(typed: PathOptions, degen: bool, device: &DeviceChoice) -> PathOptions {
    match device {
        DeviceChoice::Tcp(_) if degen => PathOptions {
            impairment: typed.impairment,
            ..PathOptions::default()
        },
        _ => typed,
    }
}

fn abilities(device: &DeviceChoice) -> anyhow::Result<Abilities> {
    let delay = Impairment {
        delay: Span::from_ms(1),
        seed: 1,
        ..Impairment::default()
    };
    let is_tcp = matches!(device, DeviceChoice::Tcp(_));
    let delay = device.check_impairment(Some(&delay)).is_ok();
    Ok(match device {
        DeviceChoice::Model(preset) => {
            let hardware = Hardware::load(preset)?;
            let info = DeviceInfo::of_model(&hardware)?;
            let params = hardware.preset.params;
            let cpu = params.cpu;
            Abilities {
                all_transports: info.port.link_layer.has_all_transports(),
                atomics: info.caps.atomics != AtomicCap::None,
                delay,
                cpus: cpu.cores * cpu.threads_per_core,
                switches: params.link.switches,
                ..Abilities::MODEL
            }
        }
        _ => {
            let info = DeviceInfo::query(device)?;
            let is_known = resolve(NodeChoice::Nic, info.numa_node).is_ok();
            Abilities {
                queue_pairs: !is_tcp,
                all_transports: info.port.link_layer.has_all_transports(),
                atomics: info.caps.atomics != AtomicCap::None,
                sockets: is_tcp,
                delay,
                is_virtual: false,
                other_node: NODES.len() > 1 && is_known,
                nodes: &NODES,
                cpus: usable_cores().len() as u32,
                switches: 0,
            }
        }
    })
}

/// A section for each figure, with a row for each cell: the metrics that the figure shows.
struct Rows {
    study: &'static ProgramStudy,
    /// The figures that were asked for.
    asked: Vec<&'static FigureSpec>,
}

impl Rows {
    fn of(study: &'static ProgramStudy, asked: &[FigureId]) -> Self {
        let is_asked = |spec: &&FigureSpec| asked.iter().any(|id| id.as_str() == spec.id);
        let asked = study.figures.iter().copied().filter(is_asked).collect();
        Rows { study, asked }
    }

    /// Returns the first of the asked figures that show a cell.
    fn figure(&self, figures: &[String]) -> Option<&'static FigureSpec> {
        let mut asked = self.asked.iter().copied();
        asked.find(|spec| figures.iter().any(|id| id == spec.id))
    }

    /// Whether a part is one of the asked figures, or in words.
    fn is_of(&self, part: Part) -> bool {
        match part {
            Part::Figure(own) => self.asked.iter().any(|spec| spec.id == own.id),
            Part::Words(_) => true,
        }
    }

    /// Returns the panels of a record's section, the first of each metric.
    fn panels(&self, record: &Record) -> Vec<&'static RecordPanel> {
        let all: &[RecordPanel] = match self.figure(&record.figures).map(|spec| &spec.plots) {
            Some(Plots::Records(panels, _)) => panels,
            _ => &[],
        };
        let mut first: Vec<&RecordPanel> = Vec::new();
        for panel in all {
            if first.iter().all(|other| other.y.0 != panel.y.0) {
                first.push(panel);
            }
        }
        first
    }

    /// Returns the columns of words of a record's device: only a model has some.
    fn words(&self, record: &Record) -> &'static [Words] {
        match record.device.kind {
            DeviceKind::Model => self.study.words,
            _ => &[],
        }
    }
}

impl Table for Rows {
    fn title(&self, record: &Record) -> String {
        let figure = self.figure(&record.figures);
        let figure = figure.map(|spec| format!("{}: {}", spec.name, spec.title));
        format!("{}, on {}", figure.unwrap_or_default(), record.device)
    }

    fn section(&self, figures: &[String]) -> &'static str {
        self.figure(figures).map_or("", |spec| spec.id)
    }

    fn columns(&self, record: &Record) -> Vec<(&'static str, usize)> {
        let metrics = self.panels(record).into_iter();
        let metrics = metrics.map(|panel| (panel.y.0, panel.y.0.len().max(METRIC)));
        let words = self.words(record).iter();
        metrics.chain(words.map(|(name, _)| (*name, 0))).collect()
    }

    fn rows(&self, record: &Record) -> Vec<Vec<Option<String>>> {
        let metrics = self.panels(record).into_iter();
        let metrics = metrics.map(|panel| Some(panel.y.1.show(panel.value(record)?)));
        let words = self.words(record).iter().map(|(_, of)| of(record));
        vec![metrics.chain(words).collect()]
    }
}
