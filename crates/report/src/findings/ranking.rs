//! The tutorial's rankings in words, and the tail of the latencies.

use adverb_results::FigureId;

use super::{Finding, Scope, podium};
use crate::cells::{Cell, Quantity};
use crate::figure::{ranked, variant};
use crate::format;

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    [round_trip(scope), cpu(scope), tail(scope)]
        .into_iter()
        .flatten()
        .collect()
}

fn round_trip(scope: &Scope<'_>) -> Option<Finding> {
    let ranked = ranked(&scope.figure(FigureId::RankRtt), Quantity::RoundTrip);
    let size = ranked.first()?.0.size();
    let (first, rest) = podium(ranked.iter().map(|(cell, _)| *cell).collect())?;
    let rtt = |c: &Cell<'_>| c.sample(Quantity::RoundTrip).map_or(0.0, |s| s.median);
    let named = |c: &Cell<'_>| format!("{} ({})", variant(*c), format::time(rtt(c)));
    let leaders = format::and(&first.iter().map(named).collect::<Vec<_>>());
    let lead = if first.len() == 1 {
        "has"
    } else {
        "have, within the noise,"
    };
    let end = match rest.last() {
        Some(last) => format!(
            "; the longest is that of {}, {} as long",
            named(last),
            format::factor(rtt(last) / rtt(first.first()?))
        ),
        None => String::new(),
    };
    let sentence = format!(
        "Of {} ways to program a {} ping, {leaders} {lead} the shortest round trip{end}.",
        ranked.len(),
        format::size(size),
    );
    let evidence = ranked.iter().map(|(cell, _)| *cell);
    Some(scope.finding("rank-rtt", FigureId::RankRtt, &sentence, evidence))
}

fn cpu(scope: &Scope<'_>) -> Option<Finding> {
    let cells = scope.figure(FigureId::RankCpu);
    let shares = ranked(&cells, Quantity::CpuActive);
    let rounds = ranked(&cells, Quantity::CpuActivePerRound);
    let (least, most) = (shares.first()?, shares.last().filter(|_| shares.len() > 1)?);
    let (cheapest, dearest) = (rounds.first()?, rounds.last()?);
    let sentence = format!(
        "Of the client's core, {} takes the least ({}) and {} the most ({}); per round of {}, {} \
         takes the least CPU time ({}) and {} the most ({}).",
        variant(least.0),
        format::percent(least.1),
        variant(most.0),
        format::percent(most.1),
        format::size(least.0.size()),
        variant(cheapest.0),
        format::time(cheapest.1),
        variant(dearest.0),
        format::time(dearest.1),
    );
    Some(scope.finding("rank-cpu", FigureId::RankCpu, &sentence, cells.iter()))
}

fn tail(scope: &Scope<'_>) -> Option<Finding> {
    let cells = scope.figure(FigureId::Latency);
    let mut tails: Vec<(f64, String)> = ranked(&cells, Quantity::OneWay)
        .into_iter()
        .filter_map(|(cell, _)| {
            let latency = &cell.metrics.one_way_ns;
            let (p50, p99) = (latency.p50.filter(|ns| *ns > 0.0)?, latency.p99?);
            let named = format!(
                "{} (median {}, p99 {})",
                variant(cell),
                format::time(p50),
                format::time(p99)
            );
            Some((p99 / p50, named))
        })
        .collect();
    tails.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (shortest, longest) = (tails.first()?, tails.last().filter(|_| tails.len() > 1)?);
    let sentence = format!(
        "The 99th percentile of the one-way time is {} to {} the median: nearest for {}, farthest for {}.",
        format::factor(shortest.0),
        format::factor(longest.0),
        shortest.1,
        longest.1
    );
    Some(scope.finding("tail", FigureId::Latency, &sentence, cells.iter()))
}
