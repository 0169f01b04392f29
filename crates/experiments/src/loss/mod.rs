//! What lost packets cost; no figure of others.

mod plan;

use adverb_results::FigureId;

use crate::{Experiment, Figure};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "loss",
    title: "What lost packets cost",
    source: "",
    figures: &[Figure::new(FigureId::Loss, plan::streams_and_ping)],
};
