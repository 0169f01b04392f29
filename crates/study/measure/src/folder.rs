//! The folder of a study: its parameters (`study.json`), records and report.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use adverb_experiments::{FigureId, Profile, ProgramStudy, Unfilled};
use adverb_host::{Busy, Machine, now_rfc3339};
use adverb_launch::{DeviceChoice, Event, Log, NotRun, PeerAddress, Usage};
use adverb_report::claims::Assessment;
use adverb_report::{Report, matrix::is_between_hosts};
use adverb_results::{
    DeviceRef, Outcome, PairRecord, RESULTS_CSV, RESULTS_JSONL, Record, Writer, failed_passes,
    merged, read_records, write_csv,
};
use adverb_verbs::{LinkRate, PathOptions};
use anyhow::{Context, bail};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Name of the report.
const REPORT_HTML: &str = "report.html";
const STUDY_JSON: &str = "study.json";
/// Layout of `study.json`.
const SCHEMA: u32 = 1;

/// Parameters and environment of a study: `study.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// Layout, [`SCHEMA`].
    schema: u32,
    /// Version and revision of Adverb.
    pub adverb: String,
    /// The command line.
    pub command: Vec<String>,
    /// How much is measured.
    pub profile: Profile,
    /// Only these figures; all if empty.
    pub only: Vec<FigureId>,
    /// The device.
    pub device: DeviceChoice,
    /// Further devices, for figures that compare devices.
    #[serde(default, alias = "beside", skip_serializing_if = "Vec::is_empty")]
    pub other_devices: Vec<DeviceChoice>,
    /// The addresses of each of these devices, if this machine acts as several hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Vec<DeviceChoice>>,
    /// The server of the passive side; `None` if both sides run here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerAddress>,
    /// Options of the path.
    #[serde(flatten)]
    pub path: PathOptions,
    /// Speeds of links that are compared; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<LinkRate>,
    /// Name of the study in its records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Ids of the planned cells, in order.
    pub planned: Vec<String>,
    /// Host, kernel, CPU.
    pub machine: Machine,
    /// Start, RFC 3339, UTC.
    pub started: String,
    /// Load by other programs when cells were measured; `None` if negligible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Busy>,
    /// Planned cells that were not run, and why; `None` if all were run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_run: Option<NotRun>,
    /// Figures that were asked for and that the device cannot fill, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfilled: Vec<Unfilled>,
}

impl Meta {
    /// Describes a study that begins now; its cells are not known yet.
    pub fn new(
        profile: Profile,
        only: &[FigureId],
        device: DeviceChoice,
        peer: Option<PeerAddress>,
    ) -> Self {
        Meta {
            schema: SCHEMA,
            adverb: crate::VERSION.to_owned(),
            command: std::env::args_os()
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            profile,
            only: only.to_vec(),
            device,
            other_devices: Vec::new(),
            addresses: Vec::new(),
            peer,
            path: PathOptions::default(),
            rates: Vec::new(),
            label: None,
            planned: Vec::new(),
            machine: Machine::this(),
            started: now_rfc3339(),
            busy: None,
            not_run: None,
            unfilled: Vec::new(),
        }
    }

    /// Returns all devices, each with its addresses on the hosts that this machine acts as.
    pub fn devices(&self) -> Vec<Vec<DeviceChoice>> {
        if !self.addresses.is_empty() {
            return self.addresses.clone();
        }
        let all = std::iter::once(&self.device).chain(&self.other_devices);
        all.map(|device| vec![device.clone()]).collect()
    }

    /// Sets all devices, as [`Meta::devices`] returns them.
    pub fn set_devices(&mut self, devices: Vec<Vec<DeviceChoice>>) {
        let mut first = devices.iter().filter_map(|hosts| hosts.first()).cloned();
        if let Some(device) = first.next() {
            self.device = device;
        }
        self.other_devices = first.collect();
        let is_one_host = devices.iter().all(|hosts| hosts.len() == 1);
        self.addresses = if is_one_host { Vec::new() } else { devices };
    }

    /// Returns the study if its cells are programs of several roles.
    pub fn programs(&self) -> Option<&'static ProgramStudy> {
        self.only.first()?.of_programs()
    }

    /// Returns the command line as it would be typed.
    fn command_line(&self) -> String {
        let typed = self.command.iter().skip(1);
        let typed = typed.map(|word| match word.contains(char::is_whitespace) {
            true => format!("'{word}'"),
            false => word.clone(),
        });
        let program = std::iter::once("adverb".to_owned());
        program.chain(typed).collect::<Vec<_>>().join(" ")
    }

    fn read(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(STUDY_JSON);
        let (dir, file) = (dir.display(), path.display());
        let text = fs::read_to_string(&path)
            .with_context(|| match path.with_file_name(RESULTS_JSONL).exists() {
                true => format!("{dir} was not made by `adverb study`: continue with the command that made it, or choose another --out"),
                false => format!("{dir} contains no study to resume: leave out --resume"),
            })?;
        serde_json::from_str(&text)
            .with_context(|| format!("{file} is damaged: start a new study with another --out"))
    }
}

/// A study's folder, locked for this process until dropped.
pub struct Folder {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
}

impl Folder {
    /// Creates and locks the folder; refuses one that another study is writing.
    pub fn claim(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        fs::create_dir_all(path).with_context(|| {
            format!("cannot make the folder {shown}: choose another one with --out")
        })?;
        let lock = File::open(path).with_context(|| format!("cannot open the folder {shown}"))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => bail!(
                "another `adverb study` is writing {shown}: wait for it, or choose another --out"
            ),
            locked => locked.with_context(|| {
                format!("cannot lock the folder {shown}: choose one on a local disk with --out")
            })?,
        }
        Ok(Folder {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// Reads the parameters of the study that is resumed.
    pub fn meta(&self) -> anyhow::Result<Meta> {
        Meta::read(&self.path)
    }

    /// Writes `study.json`.
    pub fn write_meta(&self, meta: &Meta) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec_pretty(meta)?;
        text.push(b'\n');
        replace(&self.path.join(STUDY_JSON), &text)
    }

    /// Creates the file of records; refuses a folder that already contains records.
    pub fn start(&self) -> anyhow::Result<Writer> {
        let path = self.results();
        if fs::metadata(&path).is_ok_and(|m| m.len() > 0) {
            let out = self.path.display();
            return Err(Usage(format!(
                "{out} contains the results of an earlier study: add --resume to continue it, or choose another --out"
            )).into());
        }
        Ok(Writer::create(&path)?)
    }

    /// Opens the file of records for appending; also returns its records, each pass of a cell separately.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn resume(&self, log: Log) -> anyhow::Result<(Writer, Vec<Record>)> {
        let (writer, outcome) = Writer::resume(&self.results())?;
        if let Some(cut) = &outcome.warning {
            log(Event::Warning(format!(
                "{}:{}: the last record was cut while it was written: it is measured again",
                cut.path.display(),
                cut.line
            )));
        }
        Ok((writer, outcome.records))
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn results(&self) -> PathBuf {
        self.path.join(RESULTS_JSONL)
    }
}

/// How the measurement of a folder's records ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the last cell, or unknown.
    Whole,
    /// Before the last cell.
    Cut,
}

/// Writes the report and the table of the records in a folder.
pub fn render(dir: &Path, ending: Ending) -> anyhow::Result<Rendered> {
    let (records, mut warnings) = read(dir, "this")?;
    let mut csv = Vec::new();
    write_csv(&records, &mut csv).context("cannot make the table")?;
    replace(&dir.join(RESULTS_CSV), &csv)?;

    // A folder without `study.json` still has records to show.
    let study = Meta::read(dir).ok();
    let not_run = study.as_ref().and_then(|meta| meta.not_run.as_ref());
    let unfilled = study.iter().flat_map(|meta| &meta.unfilled);
    let unfilled = unfilled.map(|figure| (figure.figure.clone(), figure.reason.clone()));
    let only = study.iter().flat_map(|meta| &meta.only);
    let only = only.map(|figure| figure.whole());
    warnings.extend(not_run.map(|not_run| format!("{}.", not_run.reason)));
    let meta = adverb_report::Meta {
        command: study.as_ref().map(Meta::command_line),
        profile: study.as_ref().map(|meta| meta.profile.to_string()),
        planned_cells: study.as_ref().map(|meta| meta.planned.len()),
        interrupted: ending == Ending::Cut,
        generated: Some(now_rfc3339()),
        warnings,
        folders: Vec::new(),
        only: only.map(str::to_owned).collect(),
        unfilled: unfilled.collect(),
    };
    write(&records, &meta, &dir.join(REPORT_HTML))
}

/// Writes one report of the records in several folders.
pub fn render_together(dirs: &[PathBuf], out: &Path) -> anyhow::Result<Rendered> {
    let (mut records, mut warnings) = (Vec::new(), Vec::new());
    for dir in dirs {
        let (found, wrong) = read(dir, &dir.display().to_string())?;
        records.extend(found);
        warnings.extend(wrong);
    }
    let all = records.len();
    let records = merged(records);
    let twice = all - records.len();
    if twice > 0 {
        warnings.push(format!(
            "{twice} cells of a device are in several folders: the ones in the last folder are shown."
        ));
    }
    let meta = adverb_report::Meta {
        generated: Some(now_rfc3339()),
        folders: dirs.iter().map(|dir| dir.display().to_string()).collect(),
        warnings,
        ..adverb_report::Meta::default()
    };
    write(&records, &meta, out)
}

/// Reads the records of a folder, called `name` in the returned warnings.
pub fn read(dir: &Path, name: &str) -> anyhow::Result<(Vec<Record>, Vec<String>)> {
    if !dir.is_dir() {
        bail!(
            "folder {} does not exist: name one that `adverb study` wrote",
            dir.display()
        );
    }
    let outcome = read_records(&dir.join(RESULTS_JSONL))?;
    let warnings = outcome.warning.iter().map(ToString::to_string);
    let mut warnings: Vec<String> = warnings.collect();
    if !outcome.unknown.is_empty() {
        let names: Vec<&str> = outcome.unknown.iter().map(String::as_str).collect();
        warnings.push(format!(
            "Records of {name} have fields that this version of Adverb does not know and leaves out: {}.",
            names.join(", ")
        ));
    }
    if let Some(busy) = Meta::read(dir).ok().and_then(|meta| meta.busy) {
        warnings.push(format!(
            "The machine was busy when {name} was measured ({busy}): these results include interference from other load. Measure again when the machine is idle."
        ));
    }
    let failed = failed_passes(&outcome.records);
    if let Some((first, number)) = failed.first().and_then(|r| Some((r, r.pass?)))
        && let Outcome::Failed { reason } = &first.outcome
    {
        let (count, cell) = (failed.len(), &first.cell);
        let runs = if count == 1 { "run" } else { "runs" };
        warnings.push(format!(
            "{count} {runs} of cells that were measured in another pass failed, the first one in pass {number} of {cell}: {reason}. The figures of these cells are from fewer repetitions."
        ));
    }
    Ok((merged(outcome.records), warnings))
}

/// Returns the records of `ping` and `blast`, except for records between hosts, which are shown in a matrix.
pub fn pair_records(records: &[Record]) -> Vec<PairRecord> {
    let alone = records.iter().filter(|record| !is_between_hosts(record));
    alone.filter_map(PairRecord::of).collect()
}

/// Returns the records with their label in the name of the device, if records of a device have different labels: then
/// figures, tables and findings keep the measurements apart, as they do with devices. Matrices of hosts name the label
/// themselves.
fn by_label(records: &[Record]) -> Cow<'_, [Record]> {
    let mut labels: BTreeMap<DeviceRef, BTreeSet<Option<String>>> = BTreeMap::new();
    for record in records.iter().filter(|record| !is_between_hosts(record)) {
        let of_device = labels.entry(record.device.clone()).or_default();
        of_device.insert(record.label.clone());
    }
    labels.retain(|_, all| all.len() > 1);
    if labels.is_empty() {
        return Cow::Borrowed(records);
    }
    let mut records = records.to_vec();
    for record in &mut records {
        let differ = !is_between_hosts(record) && labels.contains_key(&record.device);
        if let Some(label) = record.label.as_ref().filter(|_| differ) {
            record.device.name += &format!(" ({label})");
        }
    }
    Cow::Owned(records)
}

fn write(records: &[Record], meta: &adverb_report::Meta, path: &Path) -> anyhow::Result<Rendered> {
    let records = &by_label(records);
    let pairs = pair_records(records);
    let published = adverb_predict::published_points(&pairs);
    let report = Report::from_records(&pairs, meta, adverb_experiments::chapters())
        .with_published(&published)
        .with_sweeps(records);
    replace(path, report.html().as_bytes())?;
    let findings = report.findings().into_iter();
    Ok(Rendered {
        path: path.to_owned(),
        findings: findings
            .map(|finding| finding.to_string())
            .chain(report.sweep_findings())
            .collect(),
        claims: report.claims().iter().map(Assessment::summary).collect(),
        warnings: meta.warnings.clone(),
    })
}

/// A report that was written.
pub struct Rendered {
    /// The report.
    pub path: PathBuf,
    /// The findings as sentences.
    pub findings: Vec<String>,
    /// How many claims of the studies hold, a sentence for each study and device.
    pub claims: Vec<String>,
    /// Warnings for readers of the records.
    pub warnings: Vec<String>,
}

/// Replaces a file atomically: readers see the old content or the new one. What is not a regular file, such as a pipe, is
/// written to.
pub fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let shown = path.display();
    // A symbolic link stays: its target is replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::write(path, bytes).with_context(|| format!("cannot write {shown}"));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let partial = path.with_file_name(format!(".{name}.partial"));
    let written = File::create(&partial)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&partial, path));
    if written.is_err() {
        // The first error matters; the partial file may not even exist.
        let _ = fs::remove_file(&partial);
    }
    written.with_context(|| format!("cannot write {shown}"))
}
