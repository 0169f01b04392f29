//! The experiments: a folder for each, and the plan of a study over them.
//!
//! An experiment declares its figures, the cells that fill them, and its findings. Adding one adds a folder
//! and a line in [`EXPERIMENTS`]; see CONTRIBUTING.md. Cells run the programs of [`adverb_workload::pair`].

mod loss;
mod macarthur_russell;
mod plan;
mod tutorial;

use std::fmt;
use std::str::FromStr;

use adverb_report::findings::Topic;
use adverb_report::{Chapter, FigureSpec};
use serde::{Deserialize, Deserializer, Serialize, de};

use plan::Draft;
pub use plan::{Plan, Ports, Profile};

/// All experiments, in the order in which a study runs them and a report shows them.
pub static EXPERIMENTS: [Experiment; 3] = [
    macarthur_russell::EXPERIMENT,
    tutorial::EXPERIMENT,
    loss::EXPERIMENT,
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
}

impl Experiment {
    /// Returns what a report shows of it.
    pub fn chapter(&self) -> Chapter {
        Chapter {
            title: self.title,
            source: self.source,
            figures: self.figures.iter().map(|figure| &figure.spec).collect(),
            topics: self.topics,
        }
    }
}

/// A figure, and the cells that fill it.
pub struct Figure {
    /// How it is drawn.
    pub spec: FigureSpec,
    /// The ports that its cells need.
    pub ports: Ports,
    /// Adds its cells to a plan.
    plan: fn(&mut Draft<'_>),
}

impl Figure {
    const fn new(spec: FigureSpec, plan: fn(&mut Draft<'_>)) -> Self {
        Figure {
            spec,
            ports: Ports::Plain,
            plan,
        }
    }
}

/// Returns all figures, in the order of a report.
pub fn figures() -> impl Iterator<Item = &'static Figure> {
    EXPERIMENTS.iter().flat_map(|experiment| experiment.figures)
}

/// Returns what a report shows of all experiments.
pub fn chapters() -> impl Iterator<Item = Chapter> {
    EXPERIMENTS.iter().map(Experiment::chapter)
}

/// Name of a figure, as records and the command line have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FigureId(&'static str);

impl FigureId {
    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// Returns the ports that the figure's cells need.
    pub fn ports(self) -> Ports {
        let figure = figures().find(|figure| figure.spec.id == self.0);
        figure.map_or(Ports::Plain, |figure| figure.ports)
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

/// The text is not the name of a figure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid figure '{text}': choose from {}", figures().map(|figure| figure.spec.id).collect::<Vec<_>>().join(", "))]
pub struct ParseFigureIdError {
    text: String,
}

impl FromStr for FigureId {
    type Err = ParseFigureIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let figure = figures().find(|figure| figure.spec.id == text);
        let figure = figure.ok_or_else(|| ParseFigureIdError {
            text: text.to_owned(),
        })?;
        Ok(FigureId(figure.spec.id))
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
            "invalid figure 'fig9': choose from fig1, fig2, fig3, fig4, fig5, fig6, fig8, rank-rtt, rank-cpu, latency, loss"
        );
    }
}
