//! How to program RDMA: operations, message sizes, completions, inline data, buffers, lists and signaling.

mod figures;
mod findings;
mod plan;

use adverb_workload::pair::CellSpec;

use crate::{Experiment, Figure, Panel};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "macarthur",
    title: "A performance study to guide RDMA programming decisions",
    source: "P. MacArthur and R. D. Russell, HPCC 2012",
    figures: &[
        Figure::new(figures::FIG1, plan::pings).with_panels(&[
            panel("fig1a", all),
            panel("fig1b", all),
            panel("fig1c", all),
        ]),
        Figure::new(figures::FIG2, plan::one_buffer).with_panels(&[
            panel("fig2a", plan::is_not_inline),
            panel("fig2b", plan::is_not_inline),
            panel("fig2c", plan::is_polled_write),
        ]),
        Figure::new(figures::FIG3, plan::inline_by_buffers).with_panels(&[
            panel("fig3a", plan::is_single),
            panel("fig3b", plan::is_single),
            panel("fig3c", plan::is_in_lists),
            panel("fig3d", plan::is_in_lists),
        ]),
        Figure::new(figures::FIG4, plan::throughput_by_buffers).with_panels(&[
            panel("fig4a", all),
            panel("fig4b", all),
            panel("fig4c", all),
        ]),
        Figure::new(figures::FIG5, plan::all_opcodes).with_panels(&[
            panel("fig5a", all),
            panel("fig5b", all),
            panel("fig5c", all),
            panel("fig5d", all),
        ]),
        Figure::new(figures::FIG6, plan::signaling).with_panels(&[
            panel("fig6a", plan::is_blast),
            panel("fig6b", plan::is_blast),
            panel("fig6c", plan::is_ping),
        ]),
        Figure::new(figures::TABLE1, plan::speeds),
        Figure::new(figures::FIG7, plan::speeds)
            .with_panels(&[panel("fig7a", all), panel("fig7b", all)]),
        Figure::new(figures::FIG8, plan::side_by_side).with_panels(&[
            panel("fig8a", plan::is_single),
            panel("fig8b", plan::is_single),
            panel("fig8c", plan::is_in_lists),
            panel("fig8d", plan::is_in_lists),
        ]),
    ],
    topics: &findings::TOPICS,
    claims: include_str!("claims.toml"),
};

const fn panel(id: &'static str, shows: fn(&CellSpec) -> bool) -> Panel {
    Panel { id, shows }
}

/// A panel that shows all cells of its figure.
fn all(_: &CellSpec) -> bool {
    true
}
