//! The rankings in words, and the tail of the latencies.

use adverb_report::cells::{Cell, Cells, Quantity, Verdict, compare};
use adverb_report::findings::{Advice, EQUAL, Finding, Ranks, Scope, Topic, noise};
use adverb_report::{format, ranked, variant};
use adverb_results::{Completion, DeviceKind, Opcode};

/// If more variants than this share a place, one of them is named.
const MOST_NAMED: usize = 3;

pub(super) const TOPICS: [Topic; 2] = [
    Topic::advice(advice),
    Topic::of_a_device("Rankings and tail", findings),
];

/// The row of the opening table that the other studies have no cells for.
fn advice(scope: &Scope<'_>) -> Vec<Advice> {
    let cells = scope.figure("rank-rtt").filter(|r| {
        r.params.op == Opcode::Write && r.params.completion == Completion::Poll && !r.params.verify
    });
    let need = "Lowest latency, the receiver polls its memory";
    let advice = Advice::of_pings(need, "rank-rtt", &cells);
    advice.into_iter().collect()
}

fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    let found = [round_trip(scope), cpu(scope), tail(scope)];
    found.into_iter().flatten().collect()
}

fn round_trip(scope: &Scope<'_>) -> Option<Finding> {
    let ranked = ranked(&waiting(&scope.figure("rank-rtt")), Quantity::RoundTrip);
    let ((shortest, _), (longest, _)) = (ranked.first()?, ranked.last()?);
    let ranks = Ranks::of(ranked.iter().map(|(cell, _)| *cell))?;
    let spread = format!("{} to {}", named(shortest), named(longest));
    let order = if ranks.overlap() && ranks.tiers().len() == 1 {
        format!("the noise is too large to rank round trips from {spread}")
    } else if ranks.overlap() {
        in_tiers(&ranks)
    } else if ranks.rest.is_empty() {
        let noise = noise(*shortest);
        format!("none differs from the fastest beyond {noise}: round trips range from {spread}")
    } else {
        order(&ranks)?
    };
    let (ways, size) = (ranked.len(), format::size(shortest.size()));
    let caution = caution(shortest);
    let sentence = format!("Of {ways} ways to program a {size} ping, {order}.{caution}");
    let evidence = ranked.iter().map(|(cell, _)| *cell);
    Some(scope.finding("rank-rtt", "rank-rtt", sentence, evidence))
}

/// Returns the cells that wait for events.
fn waiting<'a>(cells: &Cells<'a>) -> Cells<'a> {
    cells.filter(|r| {
        let is_by_event =
            r.params.op == Opcode::WriteRead && r.params.completion == Completion::Event;
        !(is_by_event && r.device.is_shared_memory())
    })
}

/// What [`waiting`] leaves out, and how the rest differs from a NIC.
fn caution(cell: &Cell<'_>) -> &'static str {
    if cell.record.device.is_shared_memory() {
        " In shared memory, WRITE then READ has completed when it is posted: with events there is nothing to wait \
         for, which is not ranked, and on a NIC the READ takes a round trip."
    } else {
        ""
    }
}

/// The groups that the noise leaves: `10 from READ at 80 ns to SEND at 98 ns, followed by 8 from …`.
fn in_tiers(ranks: &Ranks<'_>) -> String {
    let tiers = ranks.tiers();
    let in_words = tiers.iter().filter_map(|tier| {
        Some(match &tier[..] {
            [] => return None,
            [one] => named(one),
            [first, .., last] => {
                format!("{} from {} to {}", tier.len(), named(first), named(last))
            }
        })
    });
    let in_words: Vec<String> = in_words.collect();
    let groups = match &in_words[..] {
        [first, _, _, .., last] => {
            let groups = in_words.len();
            format!("the noise leaves {groups} groups, the fastest {first} and the slowest {last}")
        }
        few => format!(
            "the shortest round trips have {}",
            few.join(", followed by ")
        ),
    };
    format!("{groups}; the noise is too large to rank within a group")
}

fn rtt(cell: &Cell<'_>) -> f64 {
    cell.sample(Quantity::RoundTrip).map_or(0.0, |s| s.median)
}

/// `SEND (events) at 8.1 µs`.
fn named(cell: &Cell<'_>) -> String {
    format!("{} at {}", variant(*cell), format::time(rtt(cell)))
}

/// Which variants have the shortest round trip, and which the longest.
fn order(ranks: &Ranks<'_>) -> Option<String> {
    let best = ranks.first.first()?;
    let within = format!("within {}", noise(*best));
    let lead = match ranks.first.len() {
        1 => format!("{} has the shortest round trip", named(best)),
        2..=MOST_NAMED => {
            let names: Vec<String> = ranks.first.iter().map(named).collect();
            let names = format::and(&names);
            match ranks.is_close() {
                true => format!("{names} have the shortest round trip, equal {within}"),
                false => format!(
                    "{names} have the shortest round trip; the noise is too large to rank them"
                ),
            }
        }
        n => {
            let best = named(best);
            format!("{n} share the shortest round trip {within}, such as {best}")
        }
    };
    let (last, others) = ranks.rest.split_last()?;
    let is_alike = |cell: &&Cell<'_>| compare(**cell, *last) == Some(Verdict::Tie);
    let factor = format::factor(rtt(last) / rtt(best));
    let longest = match others.iter().filter(is_alike).count() {
        0 => format!("{} has the longest, {factor} as long", named(last)),
        n => {
            let (n, last) = (n + 1, named(last));
            format!("{n} share the longest {within}, such as {last}, {factor} as long")
        }
    };
    Some(format!("{lead}; {longest}"))
}

fn cpu(scope: &Scope<'_>) -> Option<Finding> {
    let cells = waiting(&scope.figure("rank-cpu"));
    let shares = ranked(&cells, Quantity::CpuActive);
    let rounds = ranked(&cells, Quantity::CpuActivePerRound);
    let size = shares.first().filter(|_| shares.len() > 1)?.0.size();
    let sentence = format!(
        "Client CPU of a {} ping, as a share of a core: {}. As CPU time per round: {}.",
        format::size(size),
        ends(&shares, Quantity::CpuActive)?,
        ends(&rounds, Quantity::CpuActivePerRound)?,
    );
    Some(scope.finding("rank-cpu", "rank-cpu", sentence, cells.iter()))
}

/// Both ends of a ranking: `least for SEND (events) at 37 %, most for 4 equal ways, such as READ at 100 %`. Ways are equal
/// if their ranges overlap, apart from 2 %.
fn ends(ranked: &[(Cell<'_>, f64)], quantity: Quantity) -> Option<String> {
    let equal = |a: &Cell<'_>, b: &Cell<'_>| {
        let samples = a.sample(quantity).zip(b.sample(quantity));
        samples.is_some_and(|(a, b)| a.min <= EQUAL * b.max && b.min <= EQUAL * a.max)
    };
    let (least, most) = (ranked.first()?, ranked.last()?);
    let like = |end: &Cell<'_>| ranked.iter().filter(|(cell, _)| equal(cell, end)).count();
    let shown = |(cell, value): &(Cell<'_>, f64)| {
        format!("{} at {}", variant(*cell), quantity.show(*value))
    };
    let (low, high) = (like(&least.0), like(&most.0));
    if low + high > ranked.len() {
        let (low, high) = (shown(least), shown(most));
        return Some(format!(
            "from {low} to {high}, which the noise is too large to rank"
        ));
    }
    let named = |end, count| match count {
        1 => shown(end),
        n => format!("{n} equal ways, such as {}", shown(end)),
    };
    Some(format!(
        "least for {}, most for {}",
        named(least, low),
        named(most, high)
    ))
}

fn tail(scope: &Scope<'_>) -> Option<Finding> {
    let cells = scope.figure("latency");
    let mut tails: Vec<(f64, String)> = ranked(&cells, Quantity::OneWay)
        .into_iter()
        .filter_map(|(cell, _)| {
            let latency = &cell.metrics.one_way_ns;
            let (p50, p99) = (latency.p50.filter(|ns| *ns > 0.0)?, latency.p99?);
            let (median, slow) = (format::time(p50), format::time(p99));
            let named = format!("{}, median {median} and p99 {slow}", variant(cell));
            Some((p99 / p50, named))
        })
        .collect();
    tails.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (shortest, longest) = (tails.first()?, tails.last().filter(|_| tails.len() > 1)?);
    let sentence = if longest.0 <= EQUAL {
        let is_model = (cells.iter()).all(|cell| cell.record.device.kind == DeviceKind::Model);
        let why = if is_model {
            " (the model has no noise)"
        } else {
            ""
        };
        format!(
            "The 99th percentile of the one-way time is within 2 % of the median for all {} ways{why}.",
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
    Some(scope.finding("tail", "latency", sentence, cells.iter()))
}
