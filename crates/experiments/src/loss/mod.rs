//! What lost packets cost; no figure of others.

mod figures;
mod plan;

use crate::{Experiment, Figure};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "loss",
    title: "What lost packets cost",
    source: "",
    figures: &[Figure::new(figures::LOSS, plan::streams_and_ping)],
};
