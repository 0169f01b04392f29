//! `adverb study --study wan`: a study whose cells are programs of several roles.

use std::io::Write;
use std::process::ExitCode;

use adverb_experiments::Profile;
use adverb_experiments::wan::{Abilities, plan};
use adverb_launch::{DeviceChoice, Usage};
use adverb_measure::{Ending, JobCell, render};
use adverb_patterns::Job;
use adverb_results::{Impairment, Record};
use adverb_units::Span;

use super::folder;
use crate::args::{DeviceArgs, Format, OutArgs, StudyArgs, TargetArgs};
use crate::services::{Setting, measure_as};
use crate::sink::Table;
use crate::{report, table, terminal};

/// Measures the study's cells on each device, and writes the report.
pub(super) fn run(args: &StudyArgs) -> anyhow::Result<ExitCode> {
    refuse(args)?;
    let out = folder(args);
    let mut is_first = true;
    for device in args.device.each() {
        let on = TargetArgs {
            device: device.clone(),
            place: args.place.clone(),
            path: args.path,
            out: OutArgs {
                out: Some(out.clone()),
                // The first device has begun the folder.
                resume: args.resume || !is_first,
                label: args.label.clone(),
                ..OutArgs::default()
            },
            format: args.format,
        };
        is_first = false;
        let setting = Setting {
            on: &on,
            repetitions: args.repetitions.unwrap_or(1),
            duration: Span::from_secs(10),
        };
        let cells = cells(args, &device)?;
        measure_as(cells.into_iter().map(Ok), &setting, |_| Rows)?;
    }
    if args.format == Format::Text {
        let mut stdout = terminal::stdout();
        for finding in render(&out, Ending::Whole)?.findings {
            writeln!(stdout, "{}", terminal::item(&finding))?;
        }
    }
    if args.open {
        report::show(&out.join("report.html"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses options of the other studies.
fn refuse(args: &StudyArgs) -> Result<(), Usage> {
    let refused = [
        (
            !args.only.is_empty(),
            "--only",
            "its figures are measured together",
        ),
        (
            !args.rates.is_empty(),
            "--rates",
            "it compares no speeds of links",
        ),
    ];
    match refused.into_iter().find(|(given, ..)| *given) {
        Some((_, flag, why)) => Err(Usage(format!(
            "{flag} with --study wan: {why}; leave it out"
        ))),
        None => Ok(()),
    }
}

fn cells(args: &StudyArgs, device: &DeviceArgs) -> anyhow::Result<Vec<JobCell>> {
    let device = device.choice();
    let delay = Impairment {
        delay: Span::from_ms(1),
        seed: 1,
        ..Impairment::default()
    };
    let no_delay = device.check_impairment(Some(&delay)).err();
    if let Some(reason) = &no_delay {
        terminal::say(&format!("left out: cells with a delay: {reason}"));
    }
    let is_virtual = matches!(device, DeviceChoice::Model(_));
    let is_tcp = matches!(device, DeviceChoice::Tcp(_));
    let abilities = Abilities {
        queue_pairs: !is_tcp,
        sockets: is_tcp || is_virtual,
        delay: no_delay.is_none(),
        is_virtual,
    };
    let options = args.path.options()?;
    let points = plan(args.profile.unwrap_or(Profile::Quick), abilities).into_iter();
    let cells = points.map(|mut point| {
        let own = point.job.path.impairment;
        point.job.path = options;
        // Two ends at one address use UDP only if their ports inject faults, or none on request.
        let none = Impairment {
            seed: 1,
            ..Impairment::default()
        };
        let over_udp = (no_delay.is_none() && !is_virtual).then_some(none);
        point.job.path.impairment = own.or(options.impairment).or(over_udp);
        let title = point.program.to_owned();
        let mut cell = JobCell::new(point.program, &point.params, title, Job::Wan(point.job));
        cell.figures = point.figures.into_iter().map(str::to_owned).collect();
        cell
    });
    Ok(cells.collect())
}

/// A row for each cell: its id and the metric that figures show.
struct Rows;

/// Formats a metric.
type Show = fn(f64) -> String;

/// The metrics that figures show. A record has one or two of them.
const SHOWN: [(&str, Show); 5] = [
    ("one_way_ns.p50", table::ns),
    ("overlap_ratio", table::two_places),
    ("slowdown", table::two_places),
    ("communication_ns.p50", table::ns),
    ("latency_ns.p50", table::ns),
];

impl Table for Rows {
    fn title(&self, record: &Record) -> String {
        format!("study wan on {}", record.device)
    }

    fn columns(&self) -> Vec<(&'static str, usize)> {
        let shown = SHOWN.iter().map(|(path, _)| (*path, 12));
        std::iter::once(("program     ", 12)).chain(shown).collect()
    }

    fn rows(&self, record: &Record) -> Vec<Vec<Option<String>>> {
        let shown = SHOWN.iter();
        let shown = shown.map(|(path, show)| record.metric(path).map(show));
        let program = format!("{:<12}", record.program);
        vec![std::iter::once(Some(program)).chain(shown).collect()]
    }
}
