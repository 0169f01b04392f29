//! The tutorial's rankings in words, and the tail of the latencies.

use super::{Finding, Noise, Scope, overlap, podium};
use crate::cells::{Cell, Quantity, Verdict, compare};
use crate::figure::{ranked, variant};
use crate::format;

/// Of more that lead alike, one is named.
const MOST_NAMED: usize = 3;
/// Tails of at most so many medians are none.
const NO_TAIL: f64 = 1.02;

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    [round_trip(scope), cpu(scope), tail(scope)]
        .into_iter()
        .flatten()
        .collect()
}

fn round_trip(scope: &Scope<'_>) -> Option<Finding> {
    let ranked = ranked(&scope.figure("rank-rtt"), Quantity::RoundTrip);
    let size = ranked.first()?.0.size();
    let (first, rest) = podium(ranked.iter().map(|(cell, _)| *cell).collect())?;
    let spread = || {
        let (least, most) = (ranked.first()?, ranked.last()?);
        Some(format!("{} to {}", named(&least.0), named(&most.0)))
    };
    let order = if overlap(&first, &rest) {
        let spread = spread()?;
        format!("the noise is too large to rank round trips from {spread}")
    } else if rest.is_empty() {
        let by_more = Noise::of(*first.first()?).by_more();
        let spread = spread()?;
        format!("none differs from the fastest {by_more}: round trips go from {spread}")
    } else {
        order(&first, &rest)?
    };
    let sentence = format!(
        "Of {} ways to program a {} ping, {order}.",
        ranked.len(),
        format::size(size),
    );
    let evidence = ranked.iter().map(|(cell, _)| *cell);
    Some(scope.finding("rank-rtt", "rank-rtt", &sentence, evidence))
}

fn rtt(cell: &Cell<'_>) -> f64 {
    cell.sample(Quantity::RoundTrip).map_or(0.0, |s| s.median)
}

/// `SEND (events) at 8.1 µs`.
fn named(cell: &Cell<'_>) -> String {
    format!("{} at {}", variant(*cell), format::time(rtt(cell)))
}

/// Who has the shortest round trip, and who the longest.
fn order(first: &[Cell<'_>], rest: &[Cell<'_>]) -> Option<String> {
    let best = first.first()?;
    let within = Noise::of(*best).within();
    let lead = match first.len() {
        1 => format!("{} has the shortest round trip", named(best)),
        2..=MOST_NAMED => {
            let names: Vec<String> = first.iter().map(named).collect();
            format!(
                "{} have, {within}, the shortest round trip",
                format::and(&names)
            )
        }
        n => format!(
            "{n} ways share the shortest round trip, {within}, such as {}",
            named(best)
        ),
    };
    let (last, others) = rest.split_last()?;
    let is_alike = |cell: &&Cell<'_>| compare(**cell, *last) == Some(Verdict::Tie);
    let whose = match others.iter().filter(is_alike).count() {
        0 => format!("the longest is that of {}", named(last)),
        n => format!(
            "{} ways share the longest, {within}, such as {}",
            n + 1,
            named(last)
        ),
    };
    let factor = format::factor(rtt(last) / rtt(best));
    Some(format!("{lead}; {whose}, {factor} as long"))
}

fn cpu(scope: &Scope<'_>) -> Option<Finding> {
    let cells = scope.figure("rank-cpu");
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
    Some(scope.finding("rank-cpu", "rank-cpu", &sentence, cells.iter()))
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
    let cells = scope.figure("latency");
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
    let sentence = if longest.0 <= NO_TAIL {
        format!(
            "The 99th percentile of the one-way time is within 2 % of the median for all {} ways.",
            tails.len()
        )
    } else {
        format!(
            "The 99th percentile of the one-way time is {} to {} the median: least for {}; most for {}.",
            format::factor(shortest.0),
            format::factor(longest.0),
            shortest.1,
            longest.1
        )
    };
    Some(scope.finding("tail", "latency", &sentence, cells.iter()))
}
