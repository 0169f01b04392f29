//! NUMA and one-sided RDMA: where memory, threads and load should be, relative to the NIC.

mod figures;
mod findings;
mod plan;

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
    claims: include_str!("claims.toml"),
    sentences: findings::sentences,
    plan: plan::plan,
};
