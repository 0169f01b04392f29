//! The rankings of the tutorial, and the distribution of the same cells.

use adverb_report::{FigureSpec, Plots, Quantity, RankingSpec};
use adverb_results::{Completion, PairRecord};

pub(super) const RANK_RTT: FigureSpec = FigureSpec {
    id: "rank-rtt",
    name: "Ranking by time",
    title: "Ranking: round-trip time of a 64-byte ping",
    caption: "The ladder of Russell's tutorial: time of a round, there and back, for each way to \
             program it.",
    plots: Plots::Rankings(&BY_TIME),
};

pub(super) const RANK_CPU: FigureSpec = FigureSpec {
    id: "rank-cpu",
    name: "Ranking by CPU",
    title: "Ranking: client CPU of a 64-byte ping",
    caption: "What the same rounds cost the active side: the share of one core, and the CPU time of \
             one round.",
    plots: Plots::Rankings(&BY_CPU),
};

pub(super) const LATENCY: FigureSpec = FigureSpec {
    id: "latency",
    name: "Latency plot",
    title: "Latency distribution of a 64-byte ping",
    caption: "One-way time of single messages (half of each sampled round), by percentile. The mean \
             hides the slowest messages, at the right.",
    plots: Plots::Distribution,
};

const BY_TIME: [RankingSpec; 2] = [
    RankingSpec {
        title: "Round-trip time",
        quantity: Quantity::RoundTrip,
        shows: every,
    },
    RankingSpec {
        title: "Round-trip time, busy polling alone",
        quantity: Quantity::RoundTrip,
        shows: |r| r.params.completion == Completion::Poll,
    },
];

const BY_CPU: [RankingSpec; 2] = [
    RankingSpec {
        title: "CPU of the active side",
        quantity: Quantity::CpuActive,
        shows: every,
    },
    RankingSpec {
        title: "CPU time of the active side per round",
        quantity: Quantity::CpuActivePerRound,
        shows: every,
    },
];

fn every(_: &PairRecord) -> bool {
    true
}
