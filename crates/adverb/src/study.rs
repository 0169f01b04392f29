//! `adverb study`: runs passes over a plan of cells, writes each record when its run ends, then the report.

mod begin;
mod ends;
mod planned;
mod programs;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use adverb_host::{Busy, now_rfc3339};
use adverb_launch::{DeviceChoice, Hardware, Interrupt, Mode, printable, take_what_does_not_fit};
use adverb_measure::{
    Backend, Cut, Done, Folder, Measured, Meta, Pass, Recorder, Rendered, Tally, kept, read, render,
};
use adverb_results::{Outcome, Record, Site, Writer};
use adverb_workload::pair::{CellSpec, Side};
use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::args::{Format, StudyArgs};
use crate::busy::LoadMonitor;
use crate::progress::Progress;
use crate::{experiments, hosts, report, terminal};
use begin::{parameters, places};
use planned::Planned;

/// Runs the study and prints its findings.
pub(crate) fn run(args: &StudyArgs) -> anyhow::Result<ExitCode> {
    if args.list {
        return experiments::list(args.format, args.study);
    }
    let out = folder(args);
    let (folder, mut meta) = parameters(args, &out)?;
    if let Some(study) = meta.programs() {
        // It is locked again for the records.
        drop(folder);
        return programs::run(study, args, meta, &out);
    }
    if args.degen {
        return Err(ends::only_wan().into());
    }
    let places = places(args, &meta)?;
    let plans = planned::plans(args, &mut meta, places)?;
    let folder = folder.map_or_else(|| Folder::claim(&out), Ok)?;
    let (writer, earlier) = if args.resume {
        folder.resume(hosts::log)?
    } else {
        (folder.start()?, Vec::new())
    };
    let interrupt = Interrupt::listen()?;
    let mut tally = Tally::default();
    meta.planned.clear();
    let legs = plans.into_iter().map(|planned| {
        if let Some(peer) = &planned.at.peer {
            warn_of_another_host(&earlier, &peer.welcome().site);
        }
        leg(planned, &mut meta, &earlier, &mut tally)
    });
    let mut legs: Vec<Leg> = legs.collect::<anyhow::Result<_>>()?;
    announce(&legs, &tally, &mut meta);
    folder.write_meta(&meta)?;
    let is_empty = legs.iter().all(|leg| leg.cells.is_empty());
    if let Some(not_run) = meta.not_run.as_ref().filter(|_| is_empty) {
        bail!("{}", not_run.reason);
    }
    let is_real = legs.iter().any(Leg::is_real);
    let monitor = is_real.then(LoadMonitor::of_this_machine);
    let writer = (writer, meta.label.as_deref());
    measure(&mut legs, writer, &interrupt, &mut tally)?;
    if let Some(others) = monitor.and_then(LoadMonitor::warn) {
        note(&mut meta, Busy::during(others));
        folder.write_meta(&meta)?;
    }
    conclude(&out, &tally, args)
}

/// Returns the folder that was named, or a new one.
fn folder(args: &StudyArgs) -> PathBuf {
    let default_folder = || {
        let stamp = now_rfc3339().replace(['-', ':'], "");
        PathBuf::from(format!("study-{stamp}"))
    };
    args.out.clone().unwrap_or_else(default_folder)
}

/// What a study measures on one device.
struct Leg {
    recorder: Recorder,
    /// The cells that are not measured in all passes yet.
    cells: Vec<CellSpec>,
    passes: Vec<Pass>,
    /// Runs of a cell that were asked for.
    repetitions: usize,
    is_model: bool,
}

impl Leg {
    /// Whether there is something to measure on a real device.
    fn is_real(&self) -> bool {
        !self.is_model && !self.cells.is_empty()
    }

    /// Returns the expected time of each run, in seconds.
    fn expected(&self) -> impl Iterator<Item = f64> {
        let cells = self.passes.iter().flat_map(|pass| &pass.cells);
        cells.map(|spec| match self.is_model {
            true => spec.simulation().as_secs_f64(),
            false => spec.estimate().as_secs_f64(),
        })
    }
}

/// Prepares the runs on one device.
fn leg(
    planned: Planned,
    meta: &mut Meta,
    earlier: &[Record],
    tally: &mut Tally,
) -> anyhow::Result<Leg> {
    let Planned {
        at,
        cells,
        asked,
        numbers,
    } = planned;
    let is_model = at.is_model();
    let device = at.device.clone();
    let backend = match &at.device {
        DeviceChoice::Model(preset) => Backend::Model(Box::new(Hardware::load(preset)?)),
        device => {
            let peers = at.peer.into_iter().collect();
            let launcher = hosts::launcher(vec![device.clone()], peers, &at.place)?;
            Backend::Hosts(Box::new(launcher.with_mode(Mode::Processes)))
        }
    };
    let recorder = Recorder::new(backend, &cells, hosts::log)?;
    meta.planned
        .extend(cells.iter().map(|cell| cell.id.clone()));
    let done = Done::of(earlier, &recorder);
    let mut cells = tally.cells_to_do(cells, &asked, (&numbers, &done));
    leave_out_what_does_not_fit(&mut cells, (meta, &device), tally)?;
    let passes = tally.passes(&cells, &numbers, &done);
    Ok(Leg {
        recorder,
        cells,
        passes,
        repetitions: numbers.len(),
        is_model,
    })
}

/// Says what is going to be measured, what cannot be, and whether the machine is busy.
fn announce(legs: &[Leg], tally: &Tally, meta: &mut Meta) {
    if tally.skipped == tally.planned {
        let planned: usize = tally.planned / legs.first().map_or(1, |leg| leg.repetitions.max(1));
        terminal::say(&format!(
            "all {planned} cells have been measured: nothing to do"
        ));
        return;
    }
    experiments::announce(legs.iter().flat_map(|leg| &leg.cells));
    for unfilled in &meta.unfilled {
        let (figure, reason) = (&unfilled.figure, &unfilled.reason);
        terminal::say(&format!("left out: {figure}: {reason}"));
    }
    if legs.iter().any(Leg::is_real) {
        note_if_busy(meta);
    }
}

/// Removes cells that would fail because they need more shared memory than is free, with a warning.
fn leave_out_what_does_not_fit(
    cells: &mut Vec<CellSpec>,
    (meta, device): (&mut Meta, &DeviceChoice),
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let sides: &[Side] = match meta.peer {
        None => &[Side::Active, Side::Passive],
        Some(_) => &[Side::Active],
    };
    let not_run = take_what_does_not_fit(cells, (device, sides))
        .context("cannot read how much shared memory is free")?;
    if let Some(not_run) = not_run {
        if !cells.is_empty() {
            terminal::warn(&not_run.reason);
            tally.not_run.clone_from(&not_run.cells);
        }
        meta.not_run = Some(not_run);
    }
    Ok(())
}

/// Warns if the passive side of earlier records was on another host: they may not be comparable.
fn warn_of_another_host(earlier: &[Record], site: &Site) {
    let before = earlier
        .iter()
        .find_map(|record| record.provenance.passive.as_ref());
    if let Some(before) = before.filter(|before| before.host != site.host) {
        terminal::warn(&format!(
            "the passive side of earlier cells ran at {}, now at {}: figures may not be comparable",
            printable(&before.host),
            printable(&site.host)
        ));
    }
}

/// Keeps what other programs did for the report.
fn note(meta: &mut Meta, busy: Busy) {
    meta.busy = Some(meta.busy.map_or(busy, |before| before.busier(busy)));
}

/// Warns if this machine is busy.
fn note_if_busy(meta: &mut Meta) {
    if let Some(busy) = Busy::now() {
        terminal::warn(&format!(
            "this machine is busy ({busy}): the figures will be noisy"
        ));
        note(meta, busy);
    }
}

fn measure(
    legs: &mut [Leg],
    (mut writer, label): (Writer, Option<&str>),
    interrupt: &Interrupt,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let mut progress = Progress::new(legs.iter().flat_map(Leg::expected).collect());
    'legs: for leg in legs {
        for pass in &leg.passes {
            let run = (pass.number.unwrap_or(1), interrupt);
            leg.recorder.in_order(&pass.cells, run, |measured| {
                for spec in &pass.cells {
                    progress.begin(&spec.id);
                    let record = match measured()? {
                        Measured::Record(record) => record,
                        Measured::Interrupted => {
                            tally.cut = Some(Cut::Interrupted);
                            break;
                        }
                        Measured::NoPeer(reason) => {
                            tally.cut = Some(Cut::NoPeer(reason));
                            break;
                        }
                    };
                    let mut kept = kept(spec, &record);
                    (kept.label, kept.pass) = (label.map(str::to_owned), pass.number);
                    writer.append(&kept)?;
                    tally.count(&record);
                    if let Outcome::Failed { reason } = &record.outcome {
                        progress.note(&format!("{}: {reason}", spec.id));
                    }
                    progress.end();
                }
                Ok(())
            })?;
            if tally.cut.is_some() {
                break 'legs;
            }
        }
    }
    progress.finish();
    Ok(writer.close()?)
}

/// Writes the report and reports how the study ended.
fn conclude(out: &Path, tally: &Tally, args: &StudyArgs) -> anyhow::Result<ExitCode> {
    if tally.skipped + tally.ok + tally.failed == 0 {
        let cut = tally.cut.as_ref().unwrap_or(&Cut::Interrupted);
        bail!(
            "{cut} before the first cell ended: start again with `adverb study --resume --out {}`",
            out.display()
        );
    }
    let rendered = render(out, tally.ending()).with_context(|| {
        let shown = out.display();
        match read(out, "this") {
            Ok(_) => format!(
                "all records are in {shown}; `adverb report {shown}` writes the report, once it can"
            ),
            Err(_) => format!("the records of the study are no longer in {shown}"),
        }
    })?;
    let counts = json!({
        "planned": tally.planned,
        "ok": tally.ok,
        "failed": tally.failed,
        "skipped": tally.skipped,
        "not_run": tally.not_run,
        "interrupted": tally.cut.is_some(),
    });
    print(out, &rendered, (args.format, counts))?;
    if let Some(cut) = &tally.cut {
        let (missing, planned) = (tally.missing(), tally.planned);
        bail!(
            "{cut} with {missing} of {planned} runs left: continue with `adverb study --resume --out {}`",
            out.display()
        );
    }
    let first = tally.first_failure.as_ref();
    if let Some(first) = first.filter(|_| tally.ok + tally.skipped == 0) {
        bail!("no cell could be measured; the first one: {first}");
    }
    if args.open {
        report::show(&rendered.path)?;
    }
    match first {
        None => Ok(ExitCode::SUCCESS),
        Some(first) => bail!(
            "{} of {} runs failed, which the report names, the first one: {first}; try again with `adverb study --resume --out {}`",
            tally.failed,
            tally.planned,
            out.display()
        ),
    }
}

/// Returns the object that `--json` prints.
fn summary(out: &Path, rendered: &Rendered, counts: Value) -> Value {
    let ends = [
        json!({ "out": out, "report": rendered.path }),
        counts,
        json!({ "findings": rendered.findings, "claims": rendered.claims }),
    ];
    let fields = ends.into_iter().filter_map(|end| match end {
        Value::Object(fields) => Some(fields),
        _ => None,
    });
    Value::Object(fields.flatten().collect())
}

/// Prints the findings, how many claims hold, and the path of the report; with `--json` an object that also has the counts.
fn print(out: &Path, rendered: &Rendered, (format, counts): (Format, Value)) -> anyhow::Result<()> {
    let mut stdout = terminal::stdout();
    if format == Format::Json {
        writeln!(stdout, "{}", summary(out, rendered, counts))?;
        return Ok(());
    }
    for finding in &rendered.findings {
        writeln!(stdout, "{}", terminal::item(finding))?;
    }
    if !rendered.claims.is_empty() {
        writeln!(stdout)?;
        for claims in &rendered.claims {
            writeln!(stdout, "{}", terminal::item(claims))?;
        }
        let out = out.display();
        writeln!(stdout, "  `adverb claims {out}` lists them.")?;
    }
    writeln!(stdout, "\n{}", rendered.path.display())?;
    Ok(())
}
