//! The variants of a 64-byte ping, ranked by time and CPU, and their distributions.

mod figures;
mod findings;
mod plan;

use crate::{Experiment, Figure};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "russell",
    title: "Ways to program a 64-byte ping",
    source: "R. D. Russell, OpenFabrics tutorial, 2013",
    figures: &[
        Figure::new(figures::RANK_RTT, plan::variants_of_ping),
        Figure::new(figures::RANK_CPU, plan::variants_of_ping),
        Figure::new(figures::LATENCY, plan::variants_of_ping),
    ],
    topics: &findings::TOPICS,
    claims: include_str!("claims.toml"),
};
