//! What a long or lossy path costs. It repeats no publication.

mod figures;
mod findings;
mod plan;

use crate::{Experiment, Figure, Ports};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "path",
    title: "What a long or lossy path costs",
    source: "",
    figures: &[
        Figure {
            ports: Ports::Impairing,
            ..Figure::new(figures::LOSS, plan::streams_and_ping)
        },
        Figure {
            ports: Ports::Impairing,
            ..Figure::new(figures::PATH, plan::long_paths)
        },
    ],
    topics: &findings::TOPICS,
    claims: "",
};
