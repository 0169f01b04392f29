//! How to program RDMA: operations, message sizes, completions, inline data, buffers, lists and signaling.

mod plan;

use adverb_results::FigureId;

use crate::{Experiment, Figure};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "macarthur-russell",
    title: "A performance study to guide RDMA programming decisions",
    source: "MacArthur & Russell, HPCC 2012",
    figures: &[
        Figure::new(FigureId::Fig1, plan::pings),
        Figure::new(FigureId::Fig2, plan::one_buffer),
        Figure::new(FigureId::Fig3, plan::inline_by_buffers),
        Figure::new(FigureId::Fig4, plan::throughput_by_buffers),
        Figure::new(FigureId::Fig5, plan::all_opcodes),
        Figure::new(FigureId::Fig6, plan::signaling),
        Figure::new(FigureId::Fig8, plan::side_by_side),
    ],
};
