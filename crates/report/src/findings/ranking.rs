//! The tutorial's rankings in words, and the tail of the latencies.

use adverb_results::FigureId;

use super::{Finding, Noise, Scope, podium};
use crate::cells::{Cell, Quantity, Verdict, compare};
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
    let named = |c: &Cell<'_>| format!("{} at {}", variant(*c), format::time(rtt(c)));
    let leaders = format::and(&first.iter().map(named).collect::<Vec<_>>());
    let within = Noise::of(*first.first()?).within();
    let lead = match first.len() {
        1 => "has".to_owned(),
        _ => format!("have, {within},"),
    };
    let end = match rest.split_last() {
        Some((last, others)) => {
            let alike = others
                .iter()
                .filter(|c| compare(**c, *last) == Some(Verdict::Tie))
                .count();
            let whose = match alike {
                0 => format!("the longest is that of {}", named(last)),
                n => format!(
                    "{} ways share the longest, {within}, such as {}",
                    n + 1,
                    named(last)
                ),
            };
            format!(
                "; {whose}, {} as long",
                format::factor(rtt(last) / rtt(first.first()?))
            )
        }
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
    let size = shares.first().filter(|_| shares.len() > 1)?.0.size();
    let sentence = format!(
        "Client CPU of a {} ping, as a share of a core: least for {}, most for {}. As CPU time per \
         round: least for {}, most for {}.",
        format::size(size),
        extreme(shares.iter(), Quantity::CpuActive)?,
        extreme(shares.iter().rev(), Quantity::CpuActive)?,
        extreme(rounds.iter(), Quantity::CpuActivePerRound)?,
        extreme(rounds.iter().rev(), Quantity::CpuActivePerRound)?,
    );
    Some(scope.finding("rank-cpu", FigureId::RankCpu, &sentence, cells.iter()))
}

/// The first of a ranking: `SEND (events) at 37 %`; where others' ranges reach into its own, the
/// group: `4 ways alike, such as SEND (events) at 37 %`.
fn extreme<'a>(
    mut ranked: impl Iterator<Item = &'a (Cell<'a>, f64)>,
    quantity: Quantity,
) -> Option<String> {
    let (cell, value) = ranked.next()?;
    let own = cell.sample(quantity)?;
    let equal = |other: &Cell<'_>| {
        other
            .sample(quantity)
            .is_some_and(|s| s.min <= own.max && own.min <= s.max)
    };
    let named = format!("{} at {}", variant(*cell), quantity.show(*value));
    Some(match 1 + ranked.filter(|(other, _)| equal(other)).count() {
        1 => named,
        n => format!("{n} ways alike, such as {named}"),
    })
}

fn tail(scope: &Scope<'_>) -> Option<Finding> {
    let cells = scope.figure(FigureId::Latency);
    let mut tails: Vec<(f64, String)> = ranked(&cells, Quantity::OneWay)
        .into_iter()
        .filter_map(|(cell, _)| {
            let latency = &cell.metrics.one_way_ns;
            let (p50, p99) = (latency.p50.filter(|ns| *ns > 0.0)?, latency.p99?);
            let named = format!(
                "{}, median {} and p99 {}",
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
        "The 99th percentile of the one-way time is {} to {} the median: least for {}; most for {}.",
        format::factor(shortest.0),
        format::factor(longest.0),
        shortest.1,
        longest.1
    );
    Some(scope.finding("tail", FigureId::Latency, &sentence, cells.iter()))
}
