//! RDMA over IP in a WAN: delay, overlap, progress, stolen CPU and rendezvous, each with TCP next to it.

mod figures;
mod findings;
mod plan;

use adverb_report::FigureSpec;

use crate::programs::{LeftOut, Part, ProgramStudy};

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
    words: &[],
    claims: include_str!("claims.toml"),
    sentences: findings::sentences,
    left_out: &[LeftOut {
        when: |abilities| !abilities.delay,
        what: Part::Words("cells with a delay"),
        why: "this device injects none",
    }],
    plan: plan::plan,
};
