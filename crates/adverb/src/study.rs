//! `adverb study`: runs passes over a plan of cells, writes each record when its run ends, then the report.
//!
//! A run is one cell in one pass. On a real device every repetition of a cell is a pass of its own, so that the
//! confidence interval contains the differences between starts of the processes. The model has no such noise:
//! one pass holds all repetitions.

mod planned;

use std::collections::HashSet;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use adverb_experiments::Profile;
use adverb_host::{Busy, now_rfc3339};
use adverb_launch::{
    DeviceChoice, DeviceInfo, Hardware, Interrupt, Mode, Usage, printable, take_what_does_not_fit,
};
use adverb_results::{Outcome, PairRecord, Record, Site, Writer};
use adverb_verbs::PathOptions;
use adverb_workload::pair::{CellSpec, Side};
use anyhow::{Context, bail};
use serde_json::json;

use crate::args::{Format, PlaceArgs, StudyArgs, flags_of};
use crate::folder::{self, Ending, Folder, Meta, Rendered};
use crate::hosts::Bed;
use crate::progress::Progress;
use crate::record::{Measured, Recorder};
use crate::request::Shape;
use crate::{experiments, hosts, report, request, terminal};
use planned::{At, Planned};

/// Runs the study and prints its findings.
pub(crate) fn run(args: &StudyArgs) -> anyhow::Result<ExitCode> {
    if args.list {
        return experiments::list(args.format);
    }
    let out = args.out.clone().unwrap_or_else(default_folder);
    let Begun {
        folder,
        mut meta,
        places,
    } = begin(args, &out)?;
    let plans = planned::plans(args, &mut meta, places)?;
    let (writer, earlier) = if args.resume {
        folder.resume()?
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
    if let Some(not_run) = meta.not_run.filter(|_| is_empty) {
        bail!("{}", not_run.reason);
    }
    let writer = (writer, meta.label.as_deref());
    measure(&mut legs, writer, &interrupt, &mut tally)?;
    conclude(&out, &tally, args)
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
    let bed = match &at.device {
        DeviceChoice::Model(preset) => Bed::Model(Box::new(Hardware::load(preset)?)),
        device => {
            let peers = at.peer.into_iter().collect();
            let launcher = hosts::launcher(vec![device.clone()], peers, &at.place)?;
            Bed::Hosts(Box::new(launcher.with_mode(Mode::Processes)))
        }
    };
    let recorder = Recorder::new(bed, &cells)?;
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
    if legs
        .iter()
        .any(|leg| !leg.is_model && !leg.cells.is_empty())
    {
        note_if_busy(meta);
    }
}

/// A study whose device and places have been checked.
struct Begun {
    folder: Folder,
    meta: Meta,
    /// The device of all figures, then those that it is compared with.
    places: Vec<At>,
}

/// Checks device and places. A server is contacted before a new folder is created, so that an unreachable
/// one leaves no folder.
fn begin(args: &StudyArgs, out: &Path) -> anyhow::Result<Begun> {
    args.device.check_gid()?;
    if args.resume && !out.is_dir() {
        bail!(
            "folder {} does not exist, so there is nothing to resume: leave out --resume",
            out.display()
        );
    }
    let (folder, meta) = if args.resume {
        let folder = Folder::claim(out)?;
        let meta = resumed(args, folder.meta()?)?;
        (Some(folder), meta)
    } else {
        (None, new_meta(args)?)
    };
    if args.repetitions.is_some() && matches!(meta.device, DeviceChoice::Model(_)) {
        let reason = "--repetitions: virtual time has no noise, so a model measures each cell once; leave it out";
        return Err(Usage(reason.to_owned()).into());
    }
    let mut devices = std::iter::once(&meta.device).chain(&meta.beside);
    if let Some(device) = devices.find(|device| matches!(device, DeviceChoice::Tcp(_))) {
        let reason = format!(
            "--device {device}: the studies are of RDMA; `adverb ping` and `adverb blast` run on {device}"
        );
        return Err(Usage(reason).into());
    }
    if args.device.all().len() > 1 {
        let reason =
            "--device: both sides of a study use one device; repeat --device to compare several";
        return Err(Usage(reason.to_owned()).into());
    }
    let mut places = vec![first_place(args, &meta)?];
    for device in &meta.beside {
        places.push(another_place(device, args, &meta)?);
    }
    let folder = folder.map_or_else(|| Folder::claim(out), Ok)?;
    Ok(Begun {
        folder,
        meta,
        places,
    })
}

/// The device of all figures, with the peer of the study.
fn first_place(args: &StudyArgs, meta: &Meta) -> anyhow::Result<At> {
    request::check_places(&meta.device, &args.place, Shape::Pair)?;
    let mut place = args.place.clone();
    place.peer = meta.peer.iter().cloned().collect();
    request::check_places(&meta.device, &place, Shape::Pair)?;
    let info = DeviceInfo::query(&meta.device)?;
    let peer = hosts::peers(&place, &meta.device, &info)?.pop();
    request::check_path(&meta.path, (&meta.device, &info), peer.as_slice())?;
    for rate in &args.rates {
        let at_rate = PathOptions {
            rate: Some(*rate),
            ..PathOptions::default()
        };
        let checked = at_rate.check(&info.port);
        checked.map_err(|refused| Usage(format!("--rates: {refused}")))?;
    }
    if !matches!(meta.device, DeviceChoice::Model(_)) {
        let shared = request::shared_core(&place);
        shared.iter().for_each(|line| terminal::warn(line));
    }
    Ok(At {
        device: meta.device.clone(),
        info,
        peer,
        place,
    })
}

/// A device that the first one is compared with; both sides run on this host.
fn another_place(device: &DeviceChoice, args: &StudyArgs, meta: &Meta) -> anyhow::Result<At> {
    if meta.peer.is_some() {
        return Err(Usage(format!(
            "--device {device}: with --peer a study is of one device; measure this one into a folder of its own, and make one report of both"
        ))
        .into());
    }
    let mut place = args.place.clone();
    if matches!(device, DeviceChoice::Model(_)) {
        place = PlaceArgs::default();
    }
    request::check_places(device, &place, Shape::Pair)?;
    let info = DeviceInfo::query(device)?;
    request::check_path(&meta.path, (device, &info), &[])?;
    Ok(At {
        device: device.clone(),
        info,
        peer: None,
        place,
    })
}

fn new_meta(args: &StudyArgs) -> Result<Meta, Usage> {
    let device = args.device.choice();
    let profile = args.profile.unwrap_or(Profile::Quick);
    let mut meta = Meta::new(
        profile,
        &planned::asked_figures(args)?,
        device,
        args.place.peer.first().cloned(),
    );
    meta.path = args.path.options()?;
    meta.rates.clone_from(&args.rates);
    meta.beside = args.device.beside().cloned().collect();
    meta.label.clone_from(&args.label);
    Ok(meta)
}

/// Returns the folder's parameters with the requested figures added. Other arguments must agree with the
/// folder, except the server's address, which may have changed.
fn resumed(args: &StudyArgs, mut meta: Meta) -> Result<Meta, Usage> {
    let same = |what: &str, typed: Option<String>, there: String| match typed {
        Some(typed) if typed != there => Err(Usage(format!(
            "{what} {typed}: the folder's study has {what} {there}; leave out {what}, or choose another --out"
        ))),
        _ => Ok(()),
    };
    let text = |profile: Profile| profile.to_string();
    same("--profile", args.profile.map(text), text(meta.profile))?;
    let typed = args.device.named().map(|device| device.to_string());
    same("--device", typed, meta.device.to_string())?;
    for device in args.device.beside() {
        if !meta.beside.contains(device) {
            return Err(Usage(format!(
                "--device {device}: not a device of the folder's study; choose another --out, and make one report of both"
            )));
        }
    }
    let or_default = |there: Option<String>| there.unwrap_or_else(|| "the default".to_owned());
    let (now, before) = (flags_of(&args.path.options()?), flags_of(&meta.path));
    for ((flag, typed), (_, there)) in now.into_iter().zip(before) {
        same(flag, typed, or_default(there))?;
    }
    same(
        "--label",
        args.label.clone(),
        or_default(meta.label.clone()),
    )?;
    for rate in &args.rates {
        if !meta.rates.is_empty() && !meta.rates.contains(rate) {
            meta.rates.push(*rate);
        }
    }
    if let Some(peer) = args.place.peer.first() {
        if meta.peer.is_none() {
            return Err(Usage(format!(
                "--peer {peer}: both sides of the folder's study ran on this host; leave out --peer, or choose another --out"
            )));
        }
        meta.peer = Some(peer.clone());
    }
    if !meta.only.is_empty() {
        let known = meta.only.clone();
        let asked = planned::asked_figures(args)?.into_iter();
        meta.only
            .extend(asked.filter(|figure| !known.contains(figure)));
    }
    Ok(meta)
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

/// Warns if this machine is busy, and keeps the highest load for the report.
fn note_if_busy(meta: &mut Meta) {
    if let Some(busy) = Busy::now() {
        terminal::warn(&format!(
            "this machine is busy ({busy}): the figures will be noisy"
        ));
        meta.busy = Some(meta.busy.map_or(busy, |before| before.busier(busy)));
    }
}

fn default_folder() -> PathBuf {
    let stamp = now_rfc3339().replace(['-', ':'], "");
    PathBuf::from(format!("study-{stamp}"))
}

/// Why a study ended before all of its runs.
enum Cut {
    Interrupted,
    /// The server of the passive side cannot be reached any more, for this reason.
    NoPeer(String),
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cut::Interrupted => f.write_str("interrupted"),
            Cut::NoPeer(reason) => write!(f, "{reason}: ended"),
        }
    }
}

/// One pass over the plan.
struct Pass {
    /// From 1; `None` if it is the only one.
    number: Option<u32>,
    /// The cells that are not measured yet.
    cells: Vec<CellSpec>,
}

/// Runs that are already on disk.
struct Done<'a>(HashSet<(&'a str, Option<u32>)>);

impl<'a> Done<'a> {
    fn of(earlier: &'a [Record], recorder: &Recorder) -> Self {
        let measured = earlier
            .iter()
            .filter(|record| record.outcome == Outcome::Ok && recorder.is_of(record));
        Done(measured.map(|r| (r.cell.as_str(), r.pass)).collect())
    }

    /// Whether a cell was measured in this pass; a record without a pass holds all repetitions.
    fn has(&self, cell: &'a CellSpec, pass: Option<u32>) -> bool {
        let is_there = |pass| self.0.contains(&(cell.id.as_str(), pass));
        is_there(None) || is_there(pass)
    }
}

/// Counts of runs by outcome.
#[derive(Default)]
struct Tally {
    planned: usize,
    skipped: usize,
    to_do: usize,
    ok: usize,
    failed: usize,
    first_failure: Option<String>,
    /// Cells that do not fit into memory.
    not_run: Vec<String>,
    /// Why the study ended before all runs.
    cut: Option<Cut>,
}

impl Tally {
    /// Returns the cells of the requested figures that are not measured yet in every pass.
    fn cells_to_do(
        &mut self,
        mut cells: Vec<CellSpec>,
        asked: &HashSet<String>,
        (numbers, done): (&[Option<u32>], &Done<'_>),
    ) -> Vec<CellSpec> {
        cells.retain(|spec| asked.contains(&spec.id));
        self.planned += cells.len() * numbers.len();
        let done_passes = |spec: &CellSpec| {
            let done = numbers.iter().filter(|pass| done.has(spec, **pass));
            done.count()
        };
        self.skipped += cells.iter().map(done_passes).sum::<usize>();
        cells.retain(|spec| done_passes(spec) < numbers.len());
        cells
    }

    /// Returns the passes over these cells, without the runs that are done.
    fn passes(
        &mut self,
        cells: &[CellSpec],
        numbers: &[Option<u32>],
        done: &Done<'_>,
    ) -> Vec<Pass> {
        let pass = |number: &Option<u32>| {
            let cells = cells.iter().filter(|cell| !done.has(cell, *number));
            Pass {
                number: *number,
                cells: cells.cloned().collect(),
            }
        };
        let passes: Vec<Pass> = numbers.iter().map(pass).collect();
        self.to_do += passes.iter().map(|pass| pass.cells.len()).sum::<usize>();
        passes
    }

    fn count(&mut self, record: &PairRecord) {
        match &record.outcome {
            Outcome::Ok => self.ok += 1,
            Outcome::Failed { reason } => {
                self.failed += 1;
                let first = || format!("{}: {reason}", record.cell);
                self.first_failure.get_or_insert_with(first);
            }
        }
    }

    const fn ending(&self) -> Ending {
        match self.cut {
            Some(_) => Ending::Cut,
            None => Ending::Whole,
        }
    }

    /// Returns the number of runs of this invocation that were not started.
    fn missing(&self) -> usize {
        self.to_do - self.ok - self.failed
    }
}

fn measure(
    legs: &mut [Leg],
    (mut writer, label): (Writer, Option<&str>),
    interrupt: &Interrupt,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let all = legs.iter().flat_map(|leg| &leg.passes);
    let all = all.flat_map(|pass| &pass.cells);
    let mut progress = Progress::new(all.map(|spec| spec.estimate().as_secs_f64()).collect());
    'legs: for leg in legs {
        for pass in &leg.passes {
            leg.recorder.in_order(&pass.cells, interrupt, |measured| {
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
                    let mut kept = Record::from(record.as_ref());
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
    let rendered = folder::render(out, tally.ending()).with_context(|| {
        let shown = out.display();
        match folder::read(out, "this") {
            Ok(_) => format!(
                "all records are in {shown}; `adverb report {shown}` writes the report, once it can"
            ),
            Err(_) => format!("the records of the study are no longer in {shown}"),
        }
    })?;
    print(out, tally, &rendered, args.format)?;
    if let Some(cut) = &tally.cut {
        let (missing, planned) = (tally.missing(), tally.planned);
        bail!(
            "{cut} with {missing} of {planned} runs left: continue with `adverb study --resume --out {}`",
            out.display()
        );
    }
    if let Some(first) = &tally.first_failure {
        let (failed, planned) = (tally.failed, tally.planned);
        if tally.ok + tally.skipped == 0 {
            bail!("no cell could be measured; the first one: {first}");
        }
        terminal::warn(&format!(
            "{failed} of {planned} runs failed: the report names them"
        ));
    }
    if args.open {
        report::show(&rendered.path)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(out: &Path, tally: &Tally, rendered: &Rendered, format: Format) -> anyhow::Result<()> {
    let mut stdout = terminal::stdout();
    if format == Format::Json {
        let summary = json!({
            "out": out,
            "report": rendered.path,
            "planned": tally.planned,
            "ok": tally.ok,
            "failed": tally.failed,
            "skipped": tally.skipped,
            "not_run": tally.not_run,
            "interrupted": tally.cut.is_some(),
            "findings": rendered.findings,
            "claims": rendered.claims,
        });
        writeln!(stdout, "{summary}")?;
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
