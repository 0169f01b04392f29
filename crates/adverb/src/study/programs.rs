//! `adverb study --study wan`, `numa` and `guidelines`: studies whose cells are programs of several roles.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::Sender;

use adverb_experiments::{Abilities, Profile, ProgramStudy};
use adverb_host::{nodes, resolve, usable_cores};
use adverb_launch::{DeviceChoice, DeviceInfo, Hardware, SoftAddress, TcpAddress, Usage};
use adverb_measure::{JobCell, Rendered};
use adverb_results::{Impairment, Record};
use adverb_units::Span;
use adverb_verbs::{NodeChoice, PathOptions};
use anyhow::Context as _;
use serde_json::json;

use super::ends::{self, behind_degen};
use super::planned::asked_figures;
use super::{folder, summary};
use crate::args::{DeviceArgs, Format, OutArgs, StudyArgs, TargetArgs};
use crate::services::{Setting, measure_as};
use crate::sink::Table;
use crate::{report, terminal};

/// Measures the study's cells on each device, and writes the report.
pub(super) fn run(study: &'static ProgramStudy, args: &StudyArgs) -> anyhow::Result<ExitCode> {
    refuse(study, args)?;
    let out = folder(args);
    let devices = devices(args)?;
    let measured = match args.degen {
        true => behind_degen(|router| measure(study, args, (&devices, &out), Some(router)))?,
        false => measure(study, args, (&devices, &out), None)?,
    };
    let (planned, ok, rendered) = measured;
    let rendered = rendered.context("a study has a device")?;
    let mut stdout = terminal::stdout();
    match args.format {
        Format::Json => {
            // A cell that fails ends the study.
            let counts = json!({
                "planned": planned, "ok": ok, "failed": 0, "skipped": planned - ok, "interrupted": false,
            });
            writeln!(stdout, "{}", summary(&out, &rendered, counts))?;
        }
        Format::Text => {
            for finding in &rendered.findings {
                writeln!(stdout, "{}", terminal::item(finding))?;
            }
        }
    }
    if args.open {
        report::show(&rendered.path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures the study's cells on each device, in a folder. `router` is what is between the hosts. Returns the number of
/// cells, and of those that were measured now, and the last report.
fn measure(
    study: &'static ProgramStudy,
    args: &StudyArgs,
    (devices, out): (&[DeviceArgs], &Path),
    router: Option<&Sender<Impairment>>,
) -> anyhow::Result<(usize, usize, Option<Rendered>)> {
    let mut place = args.place.clone();
    place.peer.extend(router.map(|_| ends::peer()));
    let mut is_first = true;
    let (mut planned, mut measured, mut last) = (0, 0, None);
    for device in devices {
        let on = TargetArgs {
            device: device.clone(),
            place: place.clone(),
            path: args.path,
            out: OutArgs {
                out: Some(out.to_owned()),
                // The first device has begun the folder.
                resume: args.resume || !is_first,
                label: args.label.clone(),
                ..OutArgs::default()
            },
            format: args.format,
        };
        is_first = false;
        let setting = Setting {
            router,
            prints: (args.format == Format::Text).then_some(Format::Text),
            ..Setting::new(&on, args.repetitions.unwrap_or(1), Span::from_secs(10))
        };
        let cells = cells(study, args, device)?;
        planned += cells.len();
        let cells = cells.into_iter().map(Ok);
        let (records, rendered) = measure_as(cells, &setting, |_| Rows(study))?;
        measured += records.len();
        last = rendered;
    }
    Ok((planned, measured, last))
}

/// Returns the devices to measure: the named ones, or both devices of the near end of a path.
fn devices(args: &StudyArgs) -> Result<Vec<DeviceArgs>, Usage> {
    if !args.degen {
        return Ok(args.device.each());
    }
    let soft = DeviceChoice::Soft(SoftAddress::At(ends::NEAR.into()));
    let tcp = DeviceChoice::Tcp(TcpAddress::default());
    if args.device.named().is_none() {
        return Ok([soft, tcp].map(DeviceArgs::of).into());
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

/// Returns the cells of a study on a device; says which parts of it are left out there.
fn cells(
    study: &ProgramStudy,
    args: &StudyArgs,
    device: &DeviceArgs,
) -> anyhow::Result<Vec<JobCell>> {
    let device = device.choice();
    let is_virtual = matches!(device, DeviceChoice::Model(_));
    let known = abilities(&device)?;
    let abilities = Abilities {
        delay: args.degen || known.delay,
        ..known
    };
    let options = path_options(args, &device)?;
    let asked = asked_figures(args)?;
    let is_asked = |id: &str| asked.iter().any(|figure| figure.as_str() == id);
    let points = (study.plan)(args.profile.unwrap_or(Profile::Quick), abilities).into_iter();
    let points = points.filter(|point| point.figures.iter().any(|id| is_asked(id)));
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
    let cells: Vec<JobCell> = cells.collect();
    if cells.is_empty() {
        return Err(Usage(format!(
            "{device}: no cell of --study {} runs there",
            study.id
        ))
        .into());
    }
    let shown = |figure: &str| {
        cells
            .iter()
            .any(|cell| cell.figures.iter().any(|id| id == figure))
    };
    let wanted = study.figures.iter().filter(|figure| is_asked(figure.id));
    let absent = wanted.filter(|figure| !shown(figure.id));
    absent.for_each(|figure| terminal::say(&format!("left out: {}", figure.name)));
    if let Some(reason) = (study.left_out)(abilities) {
        terminal::say(&format!("left out: {reason}"));
    }
    Ok(cells)
}

/// Returns the typed options of paths. Behind degen, TCP has only what the router does of them.
fn path_options(args: &StudyArgs, device: &DeviceChoice) -> Result<PathOptions, Usage> {
    let typed = args.path.options()?;
    Ok(match device {
        DeviceChoice::Tcp(_) if args.degen => PathOptions {
            impairment: typed.impairment,
            ..PathOptions::default()
        },
        _ => typed,
    })
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
            let params = Hardware::load(preset)?.preset.params;
            let cpu = params.cpu;
            Abilities {
                queue_pairs: true,
                sockets: true,
                delay,
                is_virtual: true,
                other_node: true,
                cpus: cpu.cores * cpu.threads_per_core,
                switches: params.link.switches,
            }
        }
        _ => Abilities {
            queue_pairs: !is_tcp,
            sockets: is_tcp,
            delay,
            is_virtual: false,
            other_node: nodes().len() > 1 && has_node(device),
            cpus: usable_cores().len() as u32,
            switches: 0,
        },
    })
}

/// Whether the node of a device is known.
fn has_node(device: &DeviceChoice) -> bool {
    let info = DeviceInfo::query(device);
    let node = info.ok().and_then(|info| info.numa_node);
    resolve(NodeChoice::Nic, node).is_ok()
}

/// A row for each cell: its id and the metrics that figures show.
struct Rows(&'static ProgramStudy);

impl Table for Rows {
    fn title(&self, record: &Record) -> String {
        format!("study {} on {}", self.0.id, record.device)
    }

    fn columns(&self) -> Vec<(&'static str, usize)> {
        let shown = self.0.shown.iter().map(|shown| (shown.metric, 12));
        let words = self.0.words.iter().map(|(name, width, _)| (*name, *width));
        let first = std::iter::once(("program     ", 12));
        first.chain(shown).chain(words).collect()
    }

    fn rows(&self, record: &Record) -> Vec<Vec<Option<String>>> {
        let shown = self.0.shown.iter();
        let shown = shown.map(|shown| record.metric(shown.metric).map(|v| shown.quantity.show(v)));
        let program = format!("{:<12}", record.program);
        let words = self.0.words.iter().map(|(.., of)| of(record));
        let first = std::iter::once(Some(program));
        vec![first.chain(shown).chain(words).collect()]
    }
}
