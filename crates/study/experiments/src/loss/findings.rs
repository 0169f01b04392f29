//! What lost packets cost, and what a short timeout saves.

use adverb_report::cells::{Cell, Cells, Quantity, pairs};
use adverb_report::findings::{Finding, Scope, Topic};
use adverb_report::format;
use adverb_results::{Opcode, Probability, Program};
use adverb_units::Bytes;

const FIGURE: &str = "loss";
/// The share of lost packets that findings are about: 1 %.
const LOSS: Probability = Probability::per_million(10_000);

pub(super) const TOPICS: [Topic; 1] = [Topic::of_a_device("Loss", findings)];

fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    let cells = scope.figure(FIGURE);
    let found = [
        kept(scope, &cells),
        stream(scope, &cells),
        ping(scope, &cells),
    ];
    found.into_iter().flatten().collect()
}

fn at<'a>(cells: &Cells<'a>, loss: Probability) -> Cells<'a> {
    cells.filter(|r| r.params.impairment.is_some_and(|i| i.loss == loss))
}

fn goodput(cell: Cell<'_>) -> Option<f64> {
    Some(cell.sample(Quantity::Goodput)?.median).filter(|rate| *rate > 0.0)
}

/// The share of the loss-free goodput that each message size keeps, with the largest window and the
/// shortest timeout.
fn kept<'a>(scope: &Scope<'a>, cells: &Cells<'a>) -> Option<Finding> {
    let writes = cells
        .program(Program::Blast)
        .filter(|r| r.params.op == Opcode::Write);
    let window = writes.iter().map(|c| c.params().buffers).max()?;
    let timeout = writes.iter().filter_map(|c| c.params().ack_timeout).min()?;
    let writes =
        writes.filter(|r| r.params.buffers == window && r.params.ack_timeout == Some(timeout));
    let by_size = |loss| at(&writes, loss).by(|c| c.size());
    let pairs = pairs(&by_size(Probability::ZERO), &by_size(LOSS));
    let mut most: Option<(f64, u64)> = None;
    let mut parts = Vec::new();
    for (size, without, with) in &pairs {
        let (before, after) = (goodput(*without)?, goodput(*with)?);
        if most.is_none_or(|(best, _)| after > best) {
            most = Some((after, *size));
        }
        let of = if parts.is_empty() {
            " of their loss-free goodput"
        } else {
            ""
        };
        parts.push(format!(
            "{}{of} at {} ({} instead of {})",
            format::percent(100.0 * after / before),
            format::size(*size),
            Quantity::Goodput.show(after),
            Quantity::Goodput.show(before)
        ));
    }
    let (_, best) = most.filter(|_| pairs.len() > 1)?;
    let sentence = format!(
        "With {LOSS} packet loss, {window} outstanding RDMA WRITEs keep {}: go-back-N resends \
         every packet after a lost one. Messages of {} reach the highest goodput with loss.",
        format::and(&parts),
        format::size(best)
    );
    let evidence = pairs.iter().flat_map(|(_, a, b)| [*a, *b]);
    Some(scope.finding("loss-size", FIGURE, sentence, evidence))
}

/// Returns the cells with the shortest and the longest timeout; `None` if there is only one timeout.
fn by_timeout<'a>(cells: &Cells<'a>) -> Option<(Cell<'a>, Cell<'a>)> {
    let times = cells.by(|c| c.params().ack_timeout);
    let (short, long) = (times.values().next()?, times.values().next_back()?);
    (times.len() > 1).then_some((*short, *long))
}

/// Goodput by timeout at the highest loss.
fn stream<'a>(scope: &Scope<'a>, cells: &Cells<'a>) -> Option<Finding> {
    let writes = cells
        .program(Program::Blast)
        .filter(|r| r.params.op == Opcode::Write && r.params.size_bytes == Bytes::kib(64));
    let window = writes.iter().map(|c| c.params().buffers).max()?;
    let writes = writes.filter(|r| r.params.buffers == window);
    let losses = writes.iter().filter_map(|c| c.params().impairment);
    let loss = losses.map(|i| i.loss).max()?;
    let (short, long) = by_timeout(&at(&writes, loss))?;
    let of = |cell: Cell<'_>| {
        let rate = Quantity::Goodput.show(goodput(cell)?);
        Some(format!("{rate} with {}", format::timeout(cell.params())))
    };
    let sentence = format!(
        "With {loss} packet loss, {window} outstanding RDMA WRITEs of 64 KiB reach {} and {}{}.",
        of(short)?,
        of(long)?,
        overlap(short, long)?
    );
    Some(scope.finding("loss-timeout", FIGURE, sentence, [short, long].into_iter()))
}

/// A clause that is empty if the repetitions distinguish the two goodputs.
fn overlap(short: Cell<'_>, long: Cell<'_>) -> Option<&'static str> {
    let (a, b) = (
        short.sample(Quantity::Goodput)?,
        long.sample(Quantity::Goodput)?,
    );
    Some(if a.min > b.max || b.min > a.max {
        ""
    } else {
        "; their repetitions overlap, so the difference is within the noise"
    })
}

fn ping<'a>(scope: &Scope<'a>, cells: &Cells<'a>) -> Option<Finding> {
    let (short, long) = by_timeout(&at(&cells.program(Program::Ping), LOSS))?;
    let of = |cell: Cell<'_>| {
        let shown = |q| Some(format::time(cell.sample(q)?.median));
        let (median, p99) = (shown(Quantity::Median)?, shown(Quantity::P99)?);
        let timeout = format::timeout(cell.params());
        Some(format!(
            "a median of {median} and a 99th percentile of {p99} with {timeout}"
        ))
    };
    let sentence = format!(
        "With {LOSS} packet loss, a ping by SEND of {} has {}, and {}: no later packet reveals the loss of a lone \
         message, so it is resent after four timeouts.",
        format::size(short.size()),
        of(short)?,
        of(long)?
    );
    Some(scope.finding("loss-ping", FIGURE, sentence, [short, long].into_iter()))
}
