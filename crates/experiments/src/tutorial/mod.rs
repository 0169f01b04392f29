//! The variants of a 64-byte ping, ranked by time and CPU, and their distributions.

mod plan;

use adverb_results::FigureId;

use crate::{Experiment, Figure};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "tutorial",
    title: "Ways to program a 64-byte ping",
    source: "Russell's tutorial, 2013",
    figures: &[
        Figure::new(FigureId::RankRtt, plan::variants_of_ping),
        Figure::new(FigureId::RankCpu, plan::variants_of_ping),
        Figure::new(FigureId::Latency, plan::variants_of_ping),
    ],
};
