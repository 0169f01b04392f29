//! The experiments: a folder for each, and the plan of a study over them.
//!
//! An experiment declares its figures and plans the cells that fill them. Adding one adds a folder and a line in
//! [`EXPERIMENTS`]. The programs of the cells are those of [`adverb_workload::pair`].

mod loss;
mod macarthur_russell;
mod plan;
mod tutorial;

use adverb_results::FigureId;

use plan::Draft;
pub use plan::{Plan, Ports, Profile};

/// All experiments, in the order in which a study runs them and a report shows them.
pub const EXPERIMENTS: [Experiment; 3] = [
    macarthur_russell::EXPERIMENT,
    tutorial::EXPERIMENT,
    loss::EXPERIMENT,
];

/// One experiment: which cells fill which figures.
pub struct Experiment {
    /// Name in one word.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Publication that it repeats; empty if none.
    pub source: &'static str,
    /// Its figures, in the order of a report.
    pub figures: &'static [Figure],
}

/// A figure, and the cells that fill it.
pub struct Figure {
    /// Which one.
    pub id: FigureId,
    /// Adds its cells to a plan.
    plan: fn(&mut Draft<'_>),
}

impl Figure {
    const fn new(id: FigureId, plan: fn(&mut Draft<'_>)) -> Self {
        Figure { id, plan }
    }
}
