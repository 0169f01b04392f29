//! `adverb study`: a plan of cells, each on disk the moment it ends; then the report.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use adverb_host::{now_rfc3339, usable_cores};
use adverb_results::{FigureId, Outcome, Record, Writer};
use adverb_studies::{CellSpec, Plan, Profile};
use anyhow::bail;
use serde_json::json;

use crate::args::{ProfileChoice, StudyArgs};
use crate::device::{DeviceChoice, DeviceInfo};
use crate::failure::Usage;
use crate::folder::{self, Folder, Meta, Rendered};
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::record::Recorder;
use crate::{request, terminal};

/// Runs the study and prints its findings.
pub(crate) fn run(args: &StudyArgs) -> anyhow::Result<ExitCode> {
    let cores = request::cores(&args.cores)?;
    let out = args.out.clone().unwrap_or_else(default_folder);
    if args.resume && !out.is_dir() {
        bail!(
            "there is no folder {} to resume: leave out --resume",
            out.display()
        );
    }
    let folder = Folder::claim(&out)?;
    let mut meta = if args.resume {
        resumed(args, folder.meta()?)?
    } else {
        let device = args.device.clone().unwrap_or(DeviceChoice::Soft);
        Meta::new(
            args.profile.unwrap_or(ProfileChoice::Quick),
            &args.only,
            device,
        )
    };
    let info = DeviceInfo::query(&meta.device)?;
    let plan = Plan::study(meta.profile.into(), &meta.only, &info.caps);
    let (writer, earlier) = if args.resume {
        folder.resume()?
    } else {
        (folder.start()?, Vec::new())
    };
    let interrupt = Interrupt::listen()?;
    let recorder = Recorder::new(meta.device.clone(), &info, cores);
    meta.planned = plan.cells.iter().map(|cell| cell.id.clone()).collect();
    folder.write_meta(&meta)?;

    warn_if_busy();
    let mut tally = Tally::default();
    let cells = tally.cells_to_do(plan.cells, args, &earlier, &recorder);
    measure(&cells, writer, &recorder, &interrupt, &mut tally)?;
    conclude(&out, &tally, args.json)
}

/// What the folder remembers, with figures added; what else was typed has to agree with it.
fn resumed(args: &StudyArgs, mut meta: Meta) -> Result<Meta, Usage> {
    let same = |what: &str, typed: Option<String>, there: String| match typed {
        Some(typed) if typed != there => Err(Usage(format!(
            "{what} {typed}: the folder's study is of {what} {there}; leave out {what}, or choose another --out"
        ))),
        _ => Ok(()),
    };
    let text = |profile: ProfileChoice| profile.to_string();
    same("--profile", args.profile.map(text), text(meta.profile))?;
    let typed = args.device.as_ref().map(DeviceChoice::to_string);
    same("--device", typed, meta.device.to_string())?;
    if !meta.only.is_empty() {
        let new = args
            .only
            .iter()
            .filter(|figure| !meta.only.contains(figure));
        let new: Vec<FigureId> = new.copied().collect();
        meta.only.extend(new);
    }
    Ok(meta)
}

/// Who measures beside other work measures the other work.
fn warn_if_busy() {
    let load = load_average();
    let cores = usable_cores().len();
    if let Some(load) = load.filter(|load| *load > 0.5 * cores as f64) {
        terminal::warn(&format!(
            "this machine is busy (load {load:.1} on {cores} cores): the figures will be noisy"
        ));
    }
}

/// Processes that wanted to run in the last minute.
fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn default_folder() -> PathBuf {
    let stamp: String = now_rfc3339()
        .chars()
        .filter(|c| !matches!(c, '-' | ':'))
        .collect();
    PathBuf::from(format!("study-{stamp}"))
}

impl From<ProfileChoice> for Profile {
    fn from(choice: ProfileChoice) -> Profile {
        match choice {
            ProfileChoice::Quick => Profile::Quick,
            ProfileChoice::Full => Profile::Full,
        }
    }
}

/// How many cells went which way.
#[derive(Default)]
struct Tally {
    planned: usize,
    skipped: usize,
    ok: usize,
    failed: usize,
    first_failure: Option<String>,
    interrupted: bool,
}

impl Tally {
    /// Of the cells of the figures that were asked for, those that are not measured yet on this
    /// device.
    fn cells_to_do(
        &mut self,
        mut cells: Vec<CellSpec>,
        args: &StudyArgs,
        earlier: &[Record],
        recorder: &Recorder,
    ) -> Vec<CellSpec> {
        let asked = |spec: &CellSpec| {
            args.only.is_empty() || spec.figures.iter().any(|f| args.only.contains(f))
        };
        cells.retain(asked);
        self.planned = cells.len();
        let is_done = |spec: &CellSpec| {
            earlier.iter().any(|record| {
                record.cell == spec.id
                    && record.device == *recorder.device()
                    && record.outcome == Outcome::Ok
            })
        };
        cells.retain(|spec| !is_done(spec));
        self.skipped = self.planned - cells.len();
        cells
    }

    fn count(&mut self, record: &Record) {
        match &record.outcome {
            Outcome::Ok => self.ok += 1,
            Outcome::Failed { reason } => {
                self.failed += 1;
                let first = || format!("{}: {reason}", record.cell);
                self.first_failure.get_or_insert_with(first);
            }
        }
    }

    /// Cells that are not there and did not fail.
    const fn missing(&self) -> usize {
        self.planned - self.skipped - self.ok - self.failed
    }
}

fn measure(
    cells: &[CellSpec],
    mut writer: Writer,
    recorder: &Recorder,
    interrupt: &Interrupt,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let expected = cells.iter().map(|spec| spec.estimate().as_secs_f64());
    let mut progress = Progress::new(expected.collect());
    for spec in cells {
        progress.begin(&spec.id);
        let Some(record) = recorder.measure(spec, interrupt)? else {
            tally.interrupted = true;
            break;
        };
        writer.append(&record)?;
        tally.count(&record);
        if let Outcome::Failed { reason } = &record.outcome {
            progress.note(&format!("{}: {reason}", spec.id));
        }
        progress.end();
    }
    progress.finish();
    Ok(writer.close()?)
}

/// Writes the report of what is there, says how the study ended.
fn conclude(out: &Path, tally: &Tally, as_json: bool) -> anyhow::Result<ExitCode> {
    if tally.skipped + tally.ok + tally.failed == 0 {
        bail!(
            "interrupted before the first cell ended: start again with `adverb study --resume --out {}`",
            out.display()
        );
    }
    let rendered = folder::render(out, tally.interrupted)?;
    print(out, tally, &rendered, as_json)?;
    if tally.interrupted {
        let (missing, planned) = (tally.missing(), tally.planned);
        bail!(
            "interrupted with {missing} of {planned} cells to go: continue with `adverb study --resume --out {}`",
            out.display()
        );
    }
    if let Some(first) = &tally.first_failure {
        let (failed, planned) = (tally.failed, tally.planned);
        if tally.ok + tally.skipped == 0 {
            bail!("no cell could be measured; the first one: {first}");
        }
        terminal::warn(&format!(
            "{failed} of {planned} cells failed: the report names them"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn print(out: &Path, tally: &Tally, rendered: &Rendered, as_json: bool) -> anyhow::Result<()> {
    let mut stdout = anstream::stdout().lock();
    if as_json {
        let summary = json!({
            "out": out,
            "report": rendered.path,
            "planned": tally.planned,
            "ok": tally.ok,
            "failed": tally.failed,
            "skipped": tally.skipped,
            "interrupted": tally.interrupted,
            "findings": rendered.findings,
        });
        writeln!(stdout, "{summary}")?;
        return Ok(());
    }
    for finding in &rendered.findings {
        writeln!(stdout, "{}", terminal::item(finding))?;
    }
    writeln!(stdout, "\n{}", rendered.path.display())?;
    Ok(())
}
