//! What lost packets cost. It repeats no publication.

mod figures;
mod findings;
mod plan;

use crate::{Experiment, Figure, Ports};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "loss",
    title: "What lost packets cost",
    source: "",
    figures: &[Figure {
        ports: Ports::Impairing,
        ..Figure::new(figures::LOSS, plan::streams_and_ping)
    }],
    topics: &findings::TOPICS,
    claims: "",
};
