//! NUMA and one-sided RDMA: where memory, threads and load should be, relative to the NIC.

mod figures;
mod findings;
mod plan;
mod tables;

use adverb_report::Quantity;

use crate::programs::{ProgramStudy, Shown};

/// The study.
pub(crate) const STUDY: ProgramStudy = ProgramStudy {
    id: "numa",
    title: "NUMA and one-sided RDMA",
    source: "J. Nelson and R. Palmieri, On the Performance Impact of NUMA on One-sided RDMA Interactions, and its data (sss-lehigh/nurdma)",
    figures: &figures::FIGURES,
    shown: &[
        Shown {
            metric: "requests_per_s",
            quantity: Quantity::RequestRate,
        },
        Shown {
            metric: "latency_ns.mean",
            quantity: Quantity::Latency,
        },
    ],
    words: &[],
    claims: include_str!("claims.toml"),
    sentences: findings::sentences,
    left_out: |abilities| {
        let reason = "what depends on NUMA nodes: this device has no second node, or the node of its NIC is not known";
        (!abilities.other_node).then_some(reason)
    },
    plan: plan::plan,
};
