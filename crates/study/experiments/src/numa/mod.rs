//! NUMA and one-sided RDMA: where memory, threads and load should be, relative to the NIC.

mod figures;
mod findings;
mod plan;
mod tables;

use crate::programs::{LeftOut, Part, ProgramStudy};

/// The study.
pub(crate) const STUDY: ProgramStudy = ProgramStudy {
    id: "numa",
    title: "NUMA and one-sided RDMA",
    source: "J. Nelson and R. Palmieri, On the Performance Impact of NUMA on One-sided RDMA Interactions, and its data (sss-lehigh/nurdma)",
    figures: &figures::FIGURES,
    words: &[],
    claims: include_str!("claims.toml"),
    sentences: findings::sentences,
    left_out: &[
        LeftOut {
            when: |abilities| abilities.is_virtual,
            what: Part::Figure(&figures::NODES),
            why: "it is measured, and a model's host is not this machine; run adverb nodes for this machine",
        },
        LeftOut {
            when: |abilities| abilities.queue_pairs && !abilities.other_node,
            what: Part::Words("what depends on the node of the NIC"),
            why: "this device has no second node, or the node of its NIC is not known",
        },
        LeftOut::needs_atomics(&figures::SYNC),
    ],
    plan: plan::plan,
};
