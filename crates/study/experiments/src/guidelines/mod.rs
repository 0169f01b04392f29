//! Guidelines for designs on RDMA: a sequencer and a key-value store from one-sided operations to batched RPCs, and which
//! resource limits each.

mod figures;
mod findings;
mod ladder;
mod plan;

use crate::programs::{LeftOut, Part, ProgramStudy};

pub use findings::{Finding, findings};

/// The study.
pub(crate) const STUDY: ProgramStudy = ProgramStudy {
    id: "guidelines",
    title: "Design guidelines for RDMA",
    source: "A. Kalia, M. Kaminsky and D. Andersen, Design Guidelines for High Performance RDMA Systems, USENIX ATC 2016",
    figures: &figures::FIGURES,
    words: &[("busiest resource", ladder::limit_and_load)],
    claims: include_str!("claims.toml"),
    sentences: findings::sentences,
    left_out: &[
        LeftOut {
            when: |abilities| !abilities.is_virtual,
            what: Part::Words("the resource that limits each design, and PCIe transactions"),
            why: "only a model knows them",
        },
        LeftOut::needs_all_transports(&figures::LADDER),
        LeftOut::needs_all_transports(&figures::CORES),
        LeftOut::needs_all_transports(&figures::OFFERED),
        LeftOut::needs_all_transports(&figures::QUEUES),
        LeftOut::needs_all_transports(&figures::UNITS),
        LeftOut::needs_all_transports(&figures::SENDS),
        LeftOut::needs_all_transports(&figures::INBOUND),
        LeftOut::needs_all_transports(&figures::KV),
        LeftOut::needs_all_transports(&figures::HERD),
        LeftOut::needs_all_transports(&figures::GENERATIONS),
        LeftOut::needs_atomics(&figures::ATOMICS),
    ],
    plan: plan::plan,
};
