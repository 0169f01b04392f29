//! Studies whose cells are programs of several roles: each has a plan of its own.

use std::collections::BTreeMap;
use std::fmt;

use adverb_patterns::Job;
use adverb_report::{Chapter, FigureSpec, Quantity, RecordPanel, X};
use adverb_results::{DeviceKind, Record};
use serde_json::Value;

use crate::{Profile, guidelines, ledger, numa, wan};

/// The studies, in the order of a report.
pub static PROGRAM_STUDIES: [ProgramStudy; 3] = [wan::STUDY, numa::STUDY, guidelines::STUDY];

/// A study of programs of several roles.
pub struct ProgramStudy {
    /// Name on the command line.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// The publication that it repeats.
    pub source: &'static str,
    /// Its figures, in the order of a report.
    pub figures: &'static [&'static FigureSpec],
    /// What a table says about a record of a model in addition to the metrics of its figure.
    pub words: &'static [Words],
    /// The claims of the publication, as TOML.
    pub(crate) claims: &'static str,
    /// Returns what records show, device by device.
    pub(crate) sentences: fn(&[Record]) -> Vec<String>,
    /// What is left out on some devices.
    pub(crate) left_out: &'static [LeftOut],
    /// Returns the cells that a device can run.
    pub plan: fn(Profile, Abilities) -> Vec<Point>,
}

/// A part of a study that some devices cannot fill.
pub struct LeftOut {
    /// Whether a device lacks what the part needs.
    pub(crate) when: fn(&Abilities) -> bool,
    /// The part.
    pub what: Part,
    /// Why.
    pub why: &'static str,
}

impl LeftOut {
    /// A figure of atomic operations.
    pub(crate) const fn needs_atomics(figure: &'static FigureSpec) -> Self {
        LeftOut {
            when: |abilities| abilities.queue_pairs && !abilities.atomics,
            what: Part::Figure(figure),
            why: "this device has no atomic operations",
        }
    }

    /// A figure of UC or UD queue pairs.
    pub(crate) const fn needs_all_transports(figure: &'static FigureSpec) -> Self {
        LeftOut {
            when: |abilities| abilities.queue_pairs && !abilities.all_transports,
            what: Part::Figure(figure),
            why: "this device has only RC queue pairs",
        }
    }
}

/// A part of a study.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// A figure.
    Figure(&'static FigureSpec),
    /// In words.
    Words(&'static str),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Figure(spec) => write!(f, "{} ({})", spec.name, spec.title),
            Part::Words(words) => f.write_str(words),
        }
    }
}

/// A column of words at the end of a table: its heading, and the words for a record.
pub type Words = (&'static str, fn(&Record) -> Option<String>);

impl ProgramStudy {
    /// Returns what is left out on a device.
    pub fn left_out(&self, abilities: &Abilities) -> impl Iterator<Item = &'static LeftOut> {
        let all = self.left_out.iter();
        all.filter(|part| (part.when)(abilities))
    }

    /// Returns what a report shows of it.
    pub(crate) fn chapter(&self) -> Chapter {
        Chapter {
            title: self.title,
            source: self.source,
            figures: self.figures.to_vec(),
            topics: &[],
            ledger: ledger::of(self.id),
            sentences: Some(self.sentences),
        }
    }
}

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// It has queue pairs.
    pub queue_pairs: bool,
    /// It has UC and UD queue pairs.
    pub all_transports: bool,
    /// It has atomic operations.
    pub atomics: bool,
    /// It has sockets.
    pub sockets: bool,
    /// It delays packets on request.
    pub delay: bool,
    /// Its time is virtual: nothing varies, and each role has a core.
    pub is_virtual: bool,
    /// Its hosts have a NUMA node without the NIC.
    pub other_node: bool,
    /// NUMA nodes of this machine; none if the device is a model.
    pub nodes: &'static [u32],
    /// CPUs of a node.
    pub cpus: u32,
    /// Switches between two hosts, if it is a model.
    pub switches: u32,
}

impl Abilities {
    /// A model whose hosts have two NUMA nodes of 24 CPUs, without a switch between them.
    pub const MODEL: Abilities = Abilities {
        queue_pairs: true,
        all_transports: true,
        atomics: true,
        sockets: true,
        delay: true,
        is_virtual: true,
        other_node: true,
        nodes: &[],
        cpus: 24,
        switches: 0,
    };
}

/// A cell: a program with its parameters, and the figures that show it.
#[derive(Clone, Debug)]
pub struct Point {
    /// Name of the program on the command line.
    pub program: &'static str,
    /// Parameters of its record, by name, except for the path.
    pub params: Value,
    /// The program.
    pub job: Job,
    /// The figures that show it.
    pub figures: Vec<&'static str>,
}

/// A sentence about the records of one device, if they show it.
pub(crate) type Find = fn(&[&Record]) -> Option<String>;

/// Returns what the records of a study's figures show, device by device.
pub(crate) fn of_each_device(
    figures: &[&FigureSpec],
    records: &[Record],
    all: &[Find],
) -> Vec<String> {
    let devices = of_device(figures, records);
    let of_each = devices.iter().flat_map(|(device, records)| {
        let found = all.iter().filter_map(|find| find(records));
        found.map(move |sentence| format!("On {}, {sentence}", with_caution(device, records)))
    });
    of_each.collect()
}

/// Returns the name of a device, and whether nothing is known about the noise of its records.
pub(crate) fn with_caution(device: &str, records: &[&Record]) -> String {
    let is_measured = |record: &&Record| record.device.kind != DeviceKind::Model;
    let is_single = |record: &&Record| record.repetition_count() < 2;
    match records.iter().any(is_measured) && records.iter().all(is_single) {
        true => format!("{device} (each cell measured once)"),
        false => device.to_owned(),
    }
}

/// Returns where a record was measured: on its device, or at the ends of a path through `degen`, whose devices are
/// compared with each other.
pub(crate) fn place(record: &Record) -> String {
    match record.params.get("routed") {
        Some(_) => "soft@ADDR and tcp behind degen".to_owned(),
        None => record.device.to_string(),
    }
}

/// Returns the measured records of a study's figures, by where they were measured.
pub(crate) fn of_device<'r>(
    figures: &[&FigureSpec],
    records: &'r [Record],
) -> BTreeMap<String, Vec<&'r Record>> {
    let is_own = |id: &String| figures.iter().any(|figure| figure.id == id);
    let own = |record: &&Record| record.is_ok() && record.figures.iter().any(is_own);
    let mut devices: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
    for record in records.iter().filter(own) {
        let of_device = devices.entry(place(record)).or_default();
        of_device.push(record);
    }
    devices
}

/// Adds a cell, or its figures to an equal cell.
pub(crate) fn add(points: &mut Vec<Point>, new: Point) {
    match points.iter_mut().find(|point| point.job == new.job) {
        Some(point) => {
            let others = new.figures.iter().filter(|id| !point.figures.contains(id));
            let others: Vec<_> = others.copied().collect();
            point.figures.extend(others);
        }
        None => points.push(new),
    }
}

/// A panel of lines or bars.
pub(crate) const fn panel(
    title: &'static str,
    x: (X, &'static str, &'static str),
    y: (&'static str, Quantity),
    shows: fn(&Record) -> bool,
    series: fn(&Record) -> String,
) -> RecordPanel {
    RecordPanel {
        title,
        x,
        y,
        parts: &[],
        shows,
        series,
    }
}

/// All records of a figure, for a panel that shows each.
pub(crate) fn every(_: &Record) -> bool {
    true
}

/// Returns a parameter that is a number; 0 if the record does not have it.
pub(crate) fn parameter(record: &Record, name: &str) -> u64 {
    let value = record.params.get(name);
    value.and_then(Value::as_f64).unwrap_or(0.0) as u64
}

/// Returns a parameter that is a word.
pub(crate) fn word<'r>(record: &'r Record, name: &str) -> &'r str {
    let value = record.params.get(name);
    value.and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod testing {
    use std::collections::BTreeSet;

    use super::Point;

    /// Returns the figures that show these cells.
    pub(crate) fn shown(points: &[Point]) -> BTreeSet<&'static str> {
        let ids = points.iter().flat_map(|point| point.figures.clone());
        ids.collect()
    }
}
