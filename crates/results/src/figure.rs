//! The figures of the study: one table of ids and titles, for the plan, the command line and the
//! report alike.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A figure that a study fills and a report draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FigureId {
    /// Figure 1 of MacArthur & Russell: `ping` over sizes.
    Fig1,
    /// Figure 2: `blast` with one buffer over sizes.
    Fig2,
    /// Figure 3: inline WRITE `blast` over numbers of buffers.
    Fig3,
    /// Figure 4: WRITE `blast`, not inline, over numbers of buffers.
    Fig4,
    /// Figure 5: all opcodes of `blast` with four buffers over sizes.
    Fig5,
    /// Figure 6: signaling.
    Fig6,
    /// Figure 8: two networks beside each other; here, whatever devices were measured.
    Fig8,
    /// Russell's tutorial: round-trip times of the variants of a 64 B `ping`.
    RankRtt,
    /// Russell's tutorial: client CPU of the same variants.
    RankCpu,
    /// Distribution of the latencies of the same variants.
    Latency,
    /// What lost packets cost; no figure of others.
    Loss,
}

/// One row for each figure, in the order in which a report shows them.
const TABLE: [(FigureId, &str, &str); 11] = [
    (
        FigureId::Fig1,
        "fig1",
        "Ping: one-way time and CPU use by message size",
    ),
    (
        FigureId::Fig2,
        "fig2",
        "Blast with one buffer: time per message and CPU use by message size",
    ),
    (
        FigureId::Fig3,
        "fig3",
        "Blast, inline RDMA WRITE: message rate by number of buffers",
    ),
    (
        FigureId::Fig4,
        "fig4",
        "Blast, RDMA WRITE without inline: throughput by number of buffers",
    ),
    (
        FigureId::Fig5,
        "fig5",
        "Blast with four buffers: throughput and CPU use of all opcodes by message size",
    ),
    (FigureId::Fig6, "fig6", "Signaling every request, or fewer"),
    (
        FigureId::Fig8,
        "fig8",
        "Devices side by side: one-way time and throughput by message size",
    ),
    (
        FigureId::RankRtt,
        "rank-rtt",
        "Ranking: round-trip time of a 64-byte ping",
    ),
    (
        FigureId::RankCpu,
        "rank-cpu",
        "Ranking: client CPU of a 64-byte ping",
    ),
    (
        FigureId::Latency,
        "latency",
        "Latency distribution of a 64-byte ping",
    ),
    (
        FigureId::Loss,
        "loss",
        "What loss costs: goodput and ping by share of packets lost",
    ),
];

impl FigureId {
    /// All figures, in the order of a report.
    pub const ALL: [FigureId; TABLE.len()] = {
        let mut all = [FigureId::Fig1; TABLE.len()];
        let mut i = 0;
        while i < TABLE.len() {
            all[i] = TABLE[i].0;
            i += 1;
        }
        all
    };

    /// The name that stands in records and on the command line.
    pub const fn id(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// The title in a report.
    pub const fn title(self) -> &'static str {
        TABLE[self as usize].2
    }
}

impl fmt::Display for FigureId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

/// The text names no figure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no figure: choose from {}", FigureId::ALL.map(FigureId::id).join(", "))]
pub struct ParseFigureIdError {
    text: String,
}

impl FromStr for FigureId {
    type Err = ParseFigureIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        FigureId::ALL
            .into_iter()
            .find(|figure| figure.id() == text)
            .ok_or_else(|| ParseFigureIdError {
                text: text.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_stands_at_its_figure() {
        for figure in FigureId::ALL {
            assert_eq!(TABLE[figure as usize].0, figure);
            assert_eq!(figure.id().parse(), Ok(figure));
            assert_eq!(serde_json::to_value(figure).unwrap(), figure.id());
        }
    }

    #[test]
    fn a_refusal_lists_all_figures() {
        let message = "fig9".parse::<FigureId>().unwrap_err().to_string();
        assert_eq!(
            message,
            "'fig9' is no figure: choose from fig1, fig2, fig3, fig4, fig5, fig6, fig8, rank-rtt, rank-cpu, latency, loss"
        );
    }
}
