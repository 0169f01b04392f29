//! RDMA over IP in a WAN: delay, overlap, progress, stolen CPU and rendezvous, each with TCP next to it.

mod figures;
mod findings;
mod plan;

use adverb_report::{FigureSpec, Quantity};

use crate::programs::{ProgramStudy, Shown};

use figures::{
    BEYOND, FETCH, INTERFERENCE, LAN, LATENCY, OVERLAP, OVERLAP_DELAYED, PROGRESS, RENDEZVOUS,
};

/// Its figures, in the order of a report.
static FIGURES: [&FigureSpec; 9] = [
    &LATENCY,
    &OVERLAP,
    &FETCH,
    &OVERLAP_DELAYED,
    &PROGRESS,
    &INTERFERENCE,
    &LAN,
    &RENDEZVOUS,
    &BEYOND,
];

/// The study.
pub(crate) const STUDY: ProgramStudy = ProgramStudy {
    id: "wan",
    title: "RDMA over IP in a WAN",
    source: "H.-W. Jin et al., Performance Evaluation of RDMA over IP: A Case Study with the Ammasso Gigabit Ethernet NIC",
    figures: &FIGURES,
    shown: &[
        shown("one_way_ns.p50", Quantity::OneWay),
        shown("overlap_ratio", Quantity::Ratio),
        shown("slowdown", Quantity::Ratio),
        shown("communication_ns.p50", Quantity::RoundTrip),
        shown("latency_ns.p50", Quantity::Latency),
        shown("bytes_per_s", Quantity::Goodput),
    ],
    words: &[],
    claims: include_str!("claims.toml"),
    sentences: findings::sentences,
    left_out: |abilities| {
        let reason = "cells with a delay, which this device does not inject";
        (!abilities.delay).then_some(reason)
    },
    plan: plan::plan,
};

const fn shown(metric: &'static str, quantity: Quantity) -> Shown {
    Shown { metric, quantity }
}
