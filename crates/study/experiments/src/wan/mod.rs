//! RDMA over IP in a WAN: delay, overlap, progress, stolen CPU and rendezvous, each with TCP next to it.
//!
//! Its cells are programs of several roles, so that it has a plan of its own ([`plan`](plan::plan)).

mod figures;
mod findings;
mod plan;

use adverb_report::{Chapter, FigureSpec};

use crate::ledger;

use figures::{FETCH, INTERFERENCE, LAN, LATENCY, OVERLAP, OVERLAP_DELAYED, PROGRESS, RENDEZVOUS};
pub use plan::{Abilities, Point, plan};

/// Name on the command line.
pub const ID: &str = "wan";

/// Its figures, in the order of a report.
pub const FIGURES: [&FigureSpec; 8] = [
    &LATENCY,
    &OVERLAP,
    &FETCH,
    &OVERLAP_DELAYED,
    &PROGRESS,
    &INTERFERENCE,
    &LAN,
    &RENDEZVOUS,
];

/// What it is about.
pub const TITLE: &str = "RDMA over IP in a WAN";

/// The publication that it repeats.
pub const SOURCE: &str = "H.-W. Jin et al., Performance Evaluation of RDMA over IP: A Case Study with the Ammasso \
                          Gigabit Ethernet NIC";

/// The claims of the publication, as TOML.
pub(crate) const CLAIMS: &str = include_str!("claims.toml");

/// Returns what a report shows of it.
pub fn chapter() -> Chapter {
    Chapter {
        title: TITLE,
        source: SOURCE,
        figures: FIGURES.to_vec(),
        topics: &[],
        ledger: ledger::of(ID),
        sentences: Some(findings::sentences),
    }
}
