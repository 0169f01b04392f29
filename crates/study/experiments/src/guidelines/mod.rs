//! Guidelines for designs on RDMA: a sequencer and a key-value store from one-sided operations to batched RPCs, and which
//! resource limits each.

mod figures;
mod findings;
mod ladder;
mod plan;

use adverb_report::Quantity;

use crate::programs::{Abilities, ProgramStudy, Shown};

pub use findings::{Finding, findings};

/// The study.
pub(crate) const STUDY: ProgramStudy = ProgramStudy {
    id: "guidelines",
    title: "Design guidelines for RDMA",
    source: "A. Kalia, M. Kaminsky and D. Andersen, Design Guidelines for High Performance RDMA Systems, USENIX ATC 2016",
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
        Shown {
            metric: "batch_mean",
            quantity: Quantity::Ratio,
        },
    ],
    words: &[("busiest resource", 46, ladder::limit)],
    claims: include_str!("claims.toml"),
    sentences: findings::sentences,
    left_out: |abilities: Abilities| {
        let reason =
            "the resource that limits each design, and PCIe transactions: only a model knows them";
        (!abilities.is_virtual).then_some(reason)
    },
    plan: plan::plan,
};
