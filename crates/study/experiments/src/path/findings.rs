//! What lost packets cost, what a short timeout saves, and what a long path needs.

use std::collections::BTreeSet;

use adverb_report::cells::{Cell, Cells, Quantity, pairs};
use adverb_report::findings::{Finding, Scope, Topic};
use adverb_report::format;
use adverb_results::{Impairment, Opcode, Probability, Program, Transport};
use adverb_units::Bytes;

use super::figures::impairment;
use super::plan::LOSSY_DELAYS;

const FIGURE: &str = "loss";
/// The share of lost packets that findings are about: 1 %.
const LOSS: Probability = Probability::per_million(10_000);

/// The figure of long paths.
const PATH: &str = "path";
/// A window fills a path if it reaches this share of the highest goodput at any delay.
const FILLED: f64 = 0.9;

pub(super) const TOPICS: [Topic; 2] = [
    Topic::of_a_device("Loss", findings),
    Topic::of_a_device("Long paths", of_long_paths),
];

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
        let share = match after < before {
            true => format::percent(100.0 * after / before),
            false => "all".to_owned(),
        };
        parts.push(format!(
            "{share}{of} at {} ({} instead of {})",
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
        let messages = match cell.metrics.histogram.as_ref().map(|h| h.samples) {
            Some(few @ ..1000) => format!(" of only {few} messages"),
            _ => String::new(),
        };
        Some(format!(
            "a median of {median} and a 99th percentile of {p99}{messages} with {timeout}"
        ))
    };
    let timeout = long.params().ack_timeout?.as_ns_f64();
    let round_trip = 2.0 * long.sample(Quantity::P99)?.median;
    let sentence = format!(
        "With {LOSS} packet loss, a ping by SEND of {} has {}, and {}: no later packet reveals the loss of a lone \
         message, so it is resent {}.",
        format::size(short.size()),
        of(short)?,
        of(long)?,
        match (round_trip / timeout).round() {
            timeouts if timeouts < 2.0 => "after the timeout".to_owned(),
            timeouts => format!("after {timeouts:.0} timeouts"),
        },
    );
    Some(scope.finding("loss-ping", FIGURE, sentence, [short, long].into_iter()))
}

fn of_long_paths(scope: &Scope<'_>) -> Vec<Finding> {
    let cells = scope.figure(PATH);
    let found = [
        windows(scope, &cells),
        lossy(scope, &cells),
        queues(scope, &cells),
    ];
    found.into_iter().flatten().collect()
}

fn path(cell: Cell<'_>) -> Impairment {
    cell.params().impairment.unwrap_or_default()
}

/// The window that each delay needs, without loss.
fn windows<'a>(scope: &Scope<'a>, cells: &Cells<'a>) -> Option<Finding> {
    let streams = cells.program(Program::Blast).filter(|r| {
        let path = impairment(r);
        let is_rc = r.params.traffic.transport == Transport::Rc;
        is_rc && path.loss == Probability::ZERO && path.rate.is_none()
    });
    let by_path = streams.by(|c| (path(c).delay, c.params().buffers));
    let rated = by_path.values().filter_map(|c| Some((goodput(*c)?, *c)));
    let (best, fastest) = rated.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let delays: BTreeSet<_> = by_path.keys().map(|(delay, _)| *delay).collect();
    let (mut enough, mut less, mut evidence) = (Vec::new(), Vec::new(), vec![fastest]);
    let mut most = 0;
    for delay in delays {
        let of_delay = by_path.range((delay, 0)..=(delay, u32::MAX));
        let mut of_delay = of_delay.map(|((_, buffers), cell)| (*buffers, *cell));
        let (largest, last) = of_delay.clone().next_back()?;
        evidence.push(last);
        let filled = of_delay.find(|(_, c)| goodput(*c).is_some_and(|rate| rate >= FILLED * best));
        match filled {
            Some((buffers, cell)) => {
                evidence.push(cell);
                enough.push(match enough.is_empty() {
                    true => format!("{buffers} in flight at {delay} each way"),
                    false => format!("{buffers} at {delay}"),
                });
            }
            // Something else than the number in flight limits the shortest path.
            None if enough.is_empty() => return None,
            None => {
                most = largest;
                let rate = Quantity::Goodput.show(goodput(last)?);
                less.push(format!("{rate} at {delay}"));
            }
        }
    }
    let less = match &less[..] {
        [] => String::new(),
        less => format!(
            "; {most}, the most that were measured, carry only {}",
            format::and(less)
        ),
    };
    let size = format::size(fastest.size());
    let sentence = format!(
        "To reach {} of the highest goodput, {}, a stream of RDMA WRITEs of {size} needs {}{less}. At least delay \u{d7} \
         bandwidth of a round trip has to be outstanding.",
        format::percent(100.0 * FILLED),
        Quantity::Goodput.show(best),
        format::and(&enough),
    );
    Some(scope.finding("path-window", PATH, sentence, evidence.into_iter()))
}

/// Goodput of RC and TCP with loss on a path of the longer delay.
fn lossy<'a>(scope: &Scope<'a>, cells: &Cells<'a>) -> Option<Finding> {
    let [_, delay] = LOSSY_DELAYS;
    let streams = cells.program(Program::Blast);
    let streams = streams.filter(|r| {
        let path = impairment(r);
        path.delay == delay && path.rate.is_none()
    });
    let by_way = |loss| at(&streams, loss).by(way);
    let pairs = pairs(&by_way(Probability::ZERO), &by_way(LOSS));
    let mut parts = Vec::new();
    for (way, without, with) in &pairs {
        let (before, after) = (goodput(*without)?, goodput(*with)?);
        let shown = Quantity::Goodput;
        let (before_shown, after_shown) = (shown.show(before), shown.show(after));
        let share = format::percent(100.0 * after / before);
        parts.push(format!(
            "{} keeps {share} of its goodput ({after_shown} instead of {before_shown})",
            name(*way)
        ));
    }
    if pairs.is_empty() {
        return None;
    }
    let sentence = format!(
        "On a path of {delay} each way that loses {LOSS} of the packets, {}.",
        format::and(&parts)
    );
    let evidence = pairs.iter().flat_map(|(_, a, b)| [*a, *b]);
    Some(scope.finding("path-loss", PATH, sentence, evidence))
}

/// Goodput of RC and TCP behind the shortest queue of a path with a rate.
fn queues<'a>(scope: &Scope<'a>, cells: &Cells<'a>) -> Option<Finding> {
    let limited = cells.filter(|r| r.params.impairment.is_some_and(|path| path.rate.is_some()));
    let queue = limited.iter().filter_map(|c| path(c).queue).min()?;
    let by_way = limited
        .filter(|r| r.params.impairment.and_then(|path| path.queue) == Some(queue))
        .by(way);
    let path = path(*by_way.values().next()?);
    let mut parts = Vec::new();
    for (way, cell) in &by_way {
        let rate = Quantity::Goodput.show(goodput(*cell)?);
        parts.push(format!("{} carries {rate}", name(*way)));
    }
    let sentence = format!(
        "On a path of {} and {} each way behind a queue of {queue} packets, {}: packets beyond the path's \
         rate wait in the queue, and those that find it full are dropped.",
        path.rate?,
        path.delay,
        format::and(&parts)
    );
    Some(scope.finding("path-queue", PATH, sentence, by_way.into_values()))
}

/// The transport, and the window that it is given.
fn way(cell: Cell<'_>) -> (bool, u32) {
    let is_tcp = cell.params().traffic.transport == Transport::Tcp;
    (is_tcp, cell.params().buffers)
}

fn name((is_tcp, buffers): (bool, u32)) -> String {
    match is_tcp {
        true => "kernel TCP".to_owned(),
        false => format!("RC with {buffers} in flight"),
    }
}
