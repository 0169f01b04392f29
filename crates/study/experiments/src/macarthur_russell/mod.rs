//! How to program RDMA: operations, message sizes, completions, inline data, buffers, lists and signaling.

mod figures;
mod findings;
mod plan;

use crate::{Experiment, Figure};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "macarthur-russell",
    title: "A performance study to guide RDMA programming decisions",
    source: "P. MacArthur and R. D. Russell, HPCC 2012",
    figures: &[
        Figure::new(figures::FIG1, plan::pings),
        Figure::new(figures::FIG2, plan::one_buffer),
        Figure::new(figures::FIG3, plan::inline_by_buffers),
        Figure::new(figures::FIG4, plan::throughput_by_buffers),
        Figure::new(figures::FIG5, plan::all_opcodes),
        Figure::new(figures::FIG6, plan::signaling),
        Figure::new(figures::FIG8, plan::side_by_side),
    ],
    topics: &findings::TOPICS,
};
