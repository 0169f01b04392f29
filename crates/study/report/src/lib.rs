//! Records to a report: plots, tables and findings in plain sentences.
//!
//! A pure function of its input: the same records and [`Meta`] give the same bytes. Nothing here
//! reads a file, a clock or the network, and its page needs no other file.
//!
//! The crate knows no experiment: each declares a [`Chapter`] with its figures and findings. Data flow from
//! `cells` (the measured cells, with spread) to `figure` (panels, series, points), `plot` (SVG) and `page`
//! (HTML); the functions of an experiment compute [`findings`] from the cells, and its data judge [`claims`] by them.

mod advice;
pub mod agreement;
pub mod cells;
pub mod claims;
pub mod comparison;
mod counters;
mod figure;
pub mod findings;
pub mod format;
pub mod matrix;
mod page;
mod plot;
mod sheet;
mod sweep;
pub mod timeline;

use std::collections::BTreeMap;

use adverb_results::{DeviceRef, Outcome, PairRecord, PublishedPoint, Record};

pub use cells::Quantity;
pub use figure::{
    FigureSpec, PanelSpec, Plots, RankingSpec, RecordPanel, RecordTable, Table, X, chosen_size,
    label, ranked, variant,
};
pub use findings::Finding;

/// What an experiment declares: its figures and its findings.
#[derive(Clone, Debug)]
pub struct Chapter {
    /// What the experiment is about.
    pub title: &'static str,
    /// Publication that it repeats; empty if none.
    pub source: &'static str,
    /// Its figures, in order.
    pub figures: Vec<&'static FigureSpec>,
    /// Its findings, in order.
    pub topics: &'static [findings::Topic],
    /// The claims of its publication; `None` if it repeats none.
    pub ledger: Option<&'static claims::Ledger>,
    /// What its records of any program show, a sentence each; `None` if it has only `ping` and `blast`.
    pub sentences: Option<Sentences>,
}

/// Says what records of any program show.
pub type Sentences = fn(&[Record]) -> Vec<String>;

impl Chapter {
    /// Returns what records of any program show.
    fn sentences(&self, records: &[Record]) -> Vec<String> {
        self.sentences.map(|of| of(records)).unwrap_or_default()
    }
}

/// What the records do not say about their study.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The command line that measures this again.
    pub command: Option<String>,
    /// The study's profile: `quick`, `full`.
    pub profile: Option<String>,
    /// How many cells the study planned.
    pub planned_cells: Option<usize>,
    /// Whether the study was stopped before its end.
    pub interrupted: bool,
    /// When this report is made, RFC 3339.
    pub generated: Option<String>,
    /// What went wrong outside the cells, one line each (a cut results file, …).
    pub warnings: Vec<String>,
    /// The studies whose records these are, where they are several: their folders.
    pub folders: Vec<String>,
    /// Figures that were asked for, by id; all if empty. Others may have some of their cells.
    pub only: Vec<String>,
    /// Figures that the device cannot fill, by id, and why.
    pub unfilled: Vec<(String, String)>,
}

/// Records, ready to be shown. Of several records of one cell the last counts.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    records: Vec<&'a PairRecord>,
    meta: &'a Meta,
    chapters: Vec<Chapter>,
    published: &'a [PublishedPoint],
    others: &'a [Record],
}

impl<'a> Report<'a> {
    /// Makes a report on these records, with these chapters in this order.
    pub fn from_records(
        records: &'a [PairRecord],
        meta: &'a Meta,
        chapters: impl IntoIterator<Item = Chapter>,
    ) -> Self {
        Report {
            records: cells::newest(records),
            meta,
            chapters: chapters.into_iter().collect(),
            published: &[],
            others: &[],
        }
    }

    /// Adds published values, drawn as marks in the plots of the model of their hardware. Findings do not use
    /// them.
    #[must_use]
    pub fn with_published(self, published: &'a [PublishedPoint]) -> Self {
        Report { published, ..self }
    }

    /// Records of any program, which are drawn over the parameters that they differ in, unless a figure
    /// shows them.
    #[must_use]
    pub fn with_sweeps(self, others: &'a [Record]) -> Self {
        Report { others, ..self }
    }

    /// Whether all records are of other programs than the study's.
    fn is_of_sweeps(&self) -> bool {
        self.records.is_empty() && !self.others.is_empty()
    }

    /// What the sweeps show, a sentence each.
    pub fn sweep_findings(&self) -> Vec<String> {
        let sweeps = sweep::sweeps(self.others);
        let of_sweeps = sweeps.iter().filter_map(sweep::Sweep::finding);
        let matrices = matrix::matrices(self.others);
        let of_matrices = matrices.iter().flat_map(matrix::Matrix::findings);
        let chapters = self.chapters.iter();
        let of_chapters = chapters.flat_map(|chapter| chapter.sentences(self.others));
        of_chapters.chain(of_sweeps).chain(of_matrices).collect()
    }

    /// What the records say, in the order in which to read it.
    pub fn findings(&self) -> Vec<Finding> {
        findings::all(&self.records, &self.chapters)
    }

    /// Returns what to use for which need, by device.
    pub fn advice(&self) -> Vec<(String, Vec<findings::Advice>)> {
        findings::advice(&self.records, &self.chapters)
    }

    /// Judges the claims of all studies on each device; except studies that the records do not concern.
    pub fn claims(&self) -> Vec<claims::Assessment<'static>> {
        let ledgers = self.chapters.iter().filter_map(|chapter| chapter.ledger);
        let assessed =
            ledgers.flat_map(|ledger| claims::assess(ledger, &self.records, self.others));
        assessed.filter(claims::Assessment::has_answers).collect()
    }

    /// What a reader must know before the findings: cells that are missing or failed, an interrupted
    /// study, and the warnings of the [`Meta`]; one sentence each.
    pub fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        let outcomes = self.outcomes();
        let have = outcomes.len();
        let failed = outcomes.values().filter(|o| ***o != Outcome::Ok).count();
        let stopped = if self.meta.interrupted {
            "The study was interrupted: "
        } else {
            ""
        };
        match self.meta.planned_cells {
            Some(planned) if have < planned => notices.push(format!(
                "{stopped}{have} of {planned} planned cells are here. Figures and findings show only \
                 these."
            )),
            _ if self.meta.interrupted => notices.push(format!(
                "{stopped}figures and findings show only the {have} cells that are here."
            )),
            _ => {}
        }
        if failed > 0 {
            let cells = if failed == 1 { "cell" } else { "cells" };
            notices.push(format!(
                "{failed} {cells} of {have} failed; the reasons are below the figures and in the table."
            ));
        }
        let troubled = counters::troubled_cells(&self.records);
        if troubled > 0 {
            let cells = if troubled == 1 { "cell" } else { "cells" };
            notices.push(format!(
                "In {troubled} {cells} of {have} a device counted losses, retransmissions, receivers that were \
                 not ready, or congestion: “What the devices counted” names the counters."
            ));
        }
        notices.extend(self.meta.warnings.iter().cloned());
        notices
    }

    /// The report as one HTML file that needs no other.
    pub fn html(&self) -> String {
        page::html(self).into_string()
    }

    /// Returns what became of each cell of the study: of `ping` and `blast`, or else of other programs.
    fn outcomes(&self) -> BTreeMap<(&DeviceRef, &str), &Outcome> {
        let pairs = self.records.iter();
        let pairs = pairs.map(|r| ((&r.device, r.cell.as_str()), &r.outcome));
        let others = self.others.iter().filter(|_| self.records.is_empty());
        let others = others.map(|r| ((&r.device, r.cell.as_str()), &r.outcome));
        pairs.chain(others).collect()
    }

    /// Returns the figures of a chapter as far as these records show them.
    fn figures(&self, chapter: &Chapter) -> Vec<figure::Figure> {
        let only = &self.meta.only;
        let is_asked = |spec: &&&FigureSpec| only.is_empty() || only.iter().any(|id| id == spec.id);
        let specs = chapter.figures.iter().filter(is_asked);
        specs
            .map(|spec| figure::Figure::build(spec, &self.records, self.published, self.others))
            .collect()
    }

    fn specs(&self) -> impl Iterator<Item = &'static FigureSpec> + '_ {
        self.chapters.iter().flat_map(|c| c.figures.iter().copied())
    }

    /// Returns how text refers to a figure; its id if the report does not have it.
    fn name_of(&self, id: &'static str) -> &'static str {
        let spec = self.specs().find(|spec| spec.id == id);
        spec.map_or(id, |spec| spec.name)
    }
}
