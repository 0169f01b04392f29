//! What lost packets cost, and what a short timeout saves.

use std::collections::BTreeMap;

use adverb_results::{Opcode, Probability, Program};
use adverb_units::Bytes;

use super::{Finding, Scope};
use crate::cells::{Cell, Cells, Quantity};
use crate::format;

const FIGURE: &str = "loss";
/// The share of lost packets that findings tell of: 1 %.
const LOSS: Probability = Probability::per_million(10_000);

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    let cells = scope.figure(FIGURE);
    [
        kept(scope, &cells),
        stream(scope, &cells),
        ping(scope, &cells),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn at<'a>(cells: &Cells<'a>, loss: Probability) -> Cells<'a> {
    cells.filter(|r| r.params.impairment.is_some_and(|i| i.loss == loss))
}

fn goodput(cell: Cell<'_>) -> Option<f64> {
    Some(cell.sample(Quantity::Goodput)?.median).filter(|rate| *rate > 0.0)
}

/// Of the goodput without loss, what each message size keeps: of those with the largest window and the
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
    let pairs = crate::cells::pairs(&by_size(Probability::ZERO), &by_size(LOSS));
    let mut most: Option<(f64, u64)> = None;
    let mut parts = Vec::new();
    for (size, without, with) in &pairs {
        let (before, after) = (goodput(*without)?, goodput(*with)?);
        if most.is_none_or(|(best, _)| after > best) {
            most = Some((after, *size));
        }
        parts.push(format!(
            "{} with messages of {} ({} against {})",
            format::percent(100.0 * after / before),
            format::size(*size),
            Quantity::Goodput.show(after),
            Quantity::Goodput.show(before)
        ));
    }
    let (_, best) = most.filter(|_| pairs.len() > 1)?;
    let sentence = format!(
        "With {LOSS} of the packets lost, {window} RDMA WRITEs in flight keep of their goodput {}: for each lost \
         packet all that was sent after it goes again. Messages of {} move most then.",
        format::and(&parts),
        format::size(best)
    );
    let evidence = pairs.iter().flat_map(|(_, a, b)| [*a, *b]);
    Some(scope.finding("loss-size", FIGURE, &sentence, evidence))
}

/// The cells that differ in their timeout alone, shortest and longest.
fn by_timeout<'a>(cells: &Cells<'a>) -> Option<(Cell<'a>, Cell<'a>)> {
    let times: BTreeMap<_, Cell<'a>> = cells.by(|c| c.params().ack_timeout);
    let (short, long) = (times.values().next()?, times.values().next_back()?);
    (times.len() > 1).then_some((*short, *long))
}

/// Where most is lost.
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
        "With {loss} of the packets lost, {window} RDMA WRITEs of 64 KiB in flight move {} and {}{}.",
        of(short)?,
        of(long)?,
        told_apart(short, long)?
    );
    Some(scope.finding("loss-timeout", FIGURE, &sentence, [short, long].into_iter()))
}

/// What repetitions tell of two goodputs.
fn told_apart(short: Cell<'_>, long: Cell<'_>) -> Option<&'static str> {
    let (a, b) = (
        short.sample(Quantity::Goodput)?,
        long.sample(Quantity::Goodput)?,
    );
    Some(if a.min > b.max || b.min > a.max {
        ""
    } else {
        "; their repetitions overlap, so that they are not told apart"
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
        "With {LOSS} of the packets lost, a ping by SEND of {} has {}, {}: a lone message that is lost waits for \
         the timeout, four times over.",
        format::size(short.size()),
        of(short)?,
        of(long)?
    );
    Some(scope.finding("loss-ping", FIGURE, &sentence, [short, long].into_iter()))
}
