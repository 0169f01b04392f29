//! The experiments: a folder for each, and the plan of a study over them.
//!
//! An experiment declares its figures, the cells that fill them, its findings, and the claims of its publication
//! (`claims.toml`). Adding one adds a folder
//! and a line in [`EXPERIMENTS`]; see CONTRIBUTING.md. Cells run the programs of [`adverb_workload::pair`].

pub mod guidelines;
mod ledger;
mod macarthur_russell;
mod numa;
mod path;
mod plan;
mod programs;
mod tutorial;
mod wan;

use std::fmt;
use std::str::FromStr;

use adverb_report::claims::Ledger;
use adverb_report::findings::Topic;
use adverb_report::{Chapter, FigureSpec, Plots};
use adverb_workload::pair::CellSpec;
use serde::{Deserialize, Deserializer, Serialize, de};

pub use ledger::ledgers;
use plan::Draft;
pub use plan::{Limits, Plan, Ports, Profile, Unfilled};
pub use programs::{Abilities, LeftOut, PROGRAM_STUDIES, Part, Point, ProgramStudy, Words};

/// All experiments, in the order in which a study runs them and a report shows them.
pub static EXPERIMENTS: [Experiment; 3] = [
    macarthur_russell::EXPERIMENT,
    tutorial::EXPERIMENT,
    path::EXPERIMENT,
];

/// One experiment: which cells fill which figures, and what they show.
pub struct Experiment {
    /// Name in one word.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Publication that it repeats; empty if none.
    pub source: &'static str,
    /// Its figures, in the order of a report.
    pub figures: &'static [Figure],
    /// Its findings, in the order of a report.
    pub topics: &'static [Topic],
    /// The claims of its publication, as TOML; empty if it repeats none.
    claims: &'static str,
}

impl Experiment {
    /// Returns what a report shows of it.
    pub fn chapter(&self) -> Chapter {
        Chapter {
            title: self.title,
            source: self.source,
            figures: self.figures.iter().map(|figure| &figure.spec).collect(),
            topics: self.topics,
            ledger: self.ledger(),
            sentences: None,
        }
    }

    /// Returns the claims of its publication; `None` if it repeats none.
    pub fn ledger(&self) -> Option<&'static Ledger> {
        ledger::of(self.id)
    }
}

/// A figure, and the cells that fill it.
pub struct Figure {
    /// How it is drawn.
    pub spec: FigureSpec,
    /// The ports that its cells need.
    pub ports: Ports,
    /// Its panels, if they have names and cells of their own.
    pub panels: &'static [Panel],
    /// Adds its cells to a plan.
    plan: fn(&mut Draft<'_>),
}

/// A panel of a figure.
pub struct Panel {
    /// Name on the command line: `fig1a`.
    pub id: &'static str,
    /// Whether the panel shows a cell of the figure.
    shows: fn(&CellSpec) -> bool,
}

impl Figure {
    const fn new(spec: FigureSpec, plan: fn(&mut Draft<'_>)) -> Self {
        Figure {
            spec,
            ports: Ports::Plain,
            panels: &[],
            plan,
        }
    }

    const fn with_panels(self, panels: &'static [Panel]) -> Self {
        Figure { panels, ..self }
    }

    /// Returns whether its panels show several devices together.
    pub fn compares_devices(&self) -> bool {
        matches!(self.spec.plots, Plots::Devices(_))
    }

    /// Returns whether `id` names the figure or one of its panels.
    fn is_named(&self, id: &str) -> bool {
        self.spec.id == id || self.panels.iter().any(|panel| panel.id == id)
    }
}

/// Returns all figures, in the order of a report.
pub fn figures() -> impl Iterator<Item = &'static Figure> {
    EXPERIMENTS.iter().flat_map(|experiment| experiment.figures)
}

/// Returns what a report shows of all experiments.
pub fn chapters() -> impl Iterator<Item = Chapter> {
    let own = EXPERIMENTS.iter().map(Experiment::chapter);
    own.chain(PROGRAM_STUDIES.iter().map(ProgramStudy::chapter))
}

/// Name of a study, as the command line has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StudyId(&'static str);

impl StudyId {
    /// Returns the study if its cells are programs of several roles.
    pub fn of_programs(self) -> Option<&'static ProgramStudy> {
        PROGRAM_STUDIES.iter().find(|study| study.id == self.0)
    }

    /// Returns the study's figures, in the order of a report.
    pub fn figures(self) -> impl Iterator<Item = FigureId> {
        let own = EXPERIMENTS.iter().filter(move |own| own.id == self.0);
        let own = own.flat_map(|own| own.figures);
        let of_programs = self.of_programs().into_iter();
        let of_programs = of_programs.flat_map(|study| study.figures);
        own.map(|figure| FigureId(figure.spec.id))
            .chain(of_programs.map(|spec| FigureId(spec.id)))
    }

    /// Returns whether a figure or panel is one of the study.
    pub fn has(self, figure: FigureId) -> bool {
        match self.of_programs() {
            Some(study) => figure.of_programs().is_some_and(|own| own.id == study.id),
            None => EXPERIMENTS
                .iter()
                .filter(|own| own.id == self.0)
                .flat_map(|own| own.figures)
                .any(|own| own.is_named(figure.as_str())),
        }
    }
}

impl fmt::Display for StudyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

/// Returns the names of all studies.
fn study_ids() -> impl Iterator<Item = &'static str> {
    let own = EXPERIMENTS.iter().map(|each| each.id);
    own.chain(PROGRAM_STUDIES.iter().map(|study| study.id))
}

/// The text is not the name of a study.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid study '{text}': choose from {}", study_ids().collect::<Vec<_>>().join(", "))]
pub struct ParseStudyIdError {
    text: String,
}

impl FromStr for StudyId {
    type Err = ParseStudyIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = study_ids().find(|id| *id == text);
        let text = || ParseStudyIdError {
            text: text.to_owned(),
        };
        found.map(StudyId).ok_or_else(text)
    }
}

/// Name of a figure or of one of its panels, as the command line has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FigureId(&'static str);

impl FigureId {
    /// Returns the names of all figures, without panels.
    pub fn all() -> impl Iterator<Item = FigureId> {
        figures().map(|figure| FigureId(figure.spec.id))
    }

    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// Returns the name of the figure, also for one of its panels.
    pub fn whole(self) -> &'static str {
        match self.of_programs() {
            Some(_) => self.0,
            None => self.figure().spec.id,
        }
    }

    /// Returns the study of programs whose figure it is; `None` if it shows `ping` or `blast`.
    pub fn of_programs(self) -> Option<&'static ProgramStudy> {
        let has = |study: &&ProgramStudy| study.figures.iter().any(|spec| spec.id == self.0);
        PROGRAM_STUDIES.iter().find(has)
    }

    /// Returns the figure.
    ///
    /// # Panics
    /// If it is of a study of programs.
    pub fn figure(self) -> &'static Figure {
        let figure = figures().find(|figure| figure.is_named(self.0));
        figure.expect("only names of figures and panels are parsed")
    }

    /// Returns the panel, if it is one.
    fn panel(self) -> Option<&'static Panel> {
        let mut panels = self.figure().panels.iter();
        panels.find(|panel| panel.id == self.0)
    }
}

impl fmt::Display for FigureId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl<'de> Deserialize<'de> for FigureId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Returns the names of the figures that need `--study`, as the end of a list.
fn of_program_studies() -> String {
    let studies = PROGRAM_STUDIES.iter().map(|study| {
        let ids: Vec<&str> = study.figures.iter().map(|spec| spec.id).collect();
        format!("; with --study {} from {}", study.id, ids.join(", "))
    });
    studies.collect()
}

/// The text is not the name of a figure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid figure '{text}': choose from {} (a letter names a panel: fig1a){}", figures().map(|figure| figure.spec.id).collect::<Vec<_>>().join(", "), of_program_studies())]
pub struct ParseFigureIdError {
    text: String,
}

impl FromStr for FigureId {
    type Err = ParseFigureIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ids = figures().flat_map(|figure| {
            let panels = figure.panels.iter().map(|panel| panel.id);
            std::iter::once(figure.spec.id).chain(panels)
        });
        let of_programs = PROGRAM_STUDIES.iter().flat_map(|study| study.figures);
        let ids = ids.chain(of_programs.map(|spec| spec.id));
        let found = ids.into_iter().find(|id| *id == text);
        let text = || ParseFigureIdError {
            text: text.to_owned(),
        };
        found.map(FigureId).ok_or_else(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_lists_all_figures() {
        let message = "fig9".parse::<FigureId>().unwrap_err().to_string();
        assert_eq!(
            message,
            "invalid figure 'fig9': choose from fig1, fig2, fig3, fig4, fig5, fig6, table1, fig7, fig8, rank-rtt, rank-cpu, latency, loss, path (a letter names a panel: fig1a); with --study wan from wan3, wan4a, wan4b, wan5, wan6, wan7, wan8, wan9, beyond; with --study numa from numa2, numa3, numa4, numa5c, numa5, numa5d, numa6, numa7, sync; with --study guidelines from ladder, cores, offered, queues, answers, atomics, units, sends, inbound, windows, kv, herd, generations, pcie"
        );
        let message = "lan".parse::<StudyId>().unwrap_err().to_string();
        assert_eq!(
            message,
            "invalid study 'lan': choose from macarthur, russell, path, wan, numa, guidelines"
        );
    }
}
