//! Busy polling or events: where each is faster, what it costs in CPU, and the price of an event.

use adverb_results::{Completion, Opcode, Program, Signaling};

use super::{Contest, Finding, Scope, one_way};
use crate::cells::{Cell, Cells, Quantity, Verdict};
use crate::format;

const FIGURE: &str = "fig1";

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    let pings = scope
        .figure(FIGURE)
        .program(Program::Ping)
        .filter(|r| !r.params.inline && r.params.signal == Signaling::All && !r.params.verify);
    [
        (Opcode::Send, "completion-send"),
        (Opcode::WriteRead, "completion-write-read"),
    ]
    .into_iter()
    .flat_map(|(op, id)| {
        let cells = pings.filter(|r| r.params.op == op);
        [strategies(scope, id, op, &cells), price(scope, op, &cells)]
    })
    .flatten()
    .collect()
}

fn contest<'a>(cells: &Cells<'a>) -> Option<Contest<'a, u64>> {
    let waiting = |completion: Completion| {
        cells
            .filter(|r| r.params.completion == completion)
            .by(|c| c.size())
    };
    Contest::between(&waiting(Completion::Poll), &waiting(Completion::Event))
}

fn strategies(scope: &Scope<'_>, id: &str, op: Opcode, cells: &Cells<'_>) -> Option<Finding> {
    let contest = contest(cells)?;
    let mut parts = Vec::new();
    for (verdict, name) in [
        (Verdict::First, "busy polling is"),
        (Verdict::Second, "events are"),
    ] {
        let Some(places) = contest.places(verdict, format::size) else {
            continue;
        };
        let lead = contest.best_lead(verdict)?;
        parts.push(format!(
            "{name} faster at {places}, {}",
            lead.in_words(Quantity::OneWay, format::size)
        ));
    }
    if let Some(places) = contest.places(Verdict::Tie, format::size) {
        let by_more = contest.noise().by_more();
        parts.push(format!("at {places} they do not differ {by_more}"));
    }
    let (smallest, poll, event, _) = contest.pairs.first()?;
    let cpu = match (cpu(*poll), cpu(*event)) {
        (Some(poll), Some(event)) => {
            format!(
                " At {}, polling takes {poll}; events take {event}.",
                format::size(*smallest)
            )
        }
        _ => String::new(),
    };
    let operation = format::opcode(Program::Ping, op);
    let sentence = format!("Ping by {operation}: {}.{cpu}", parts.join("; "));
    Some(scope.finding(id, FIGURE, &sentence, contest.cells()))
}

/// `100 % of a core on the active side and 98 % on the passive side`.
fn cpu(cell: Cell<'_>) -> Option<String> {
    let active = cell.sample(Quantity::CpuActive)?.median;
    let passive = cell.sample(Quantity::CpuPassive)?.median;
    Some(format!(
        "{} of a core on the active side and {} on the passive side",
        format::percent(active),
        format::percent(passive)
    ))
}

fn price(scope: &Scope<'_>, op: Opcode, cells: &Cells<'_>) -> Option<Finding> {
    let size = crate::figure::chosen_size(cells)?;
    let cells = cells.filter(|r| r.params.size_bytes.get() == size);
    let contest = contest(&cells)?;
    let (_, poll, event, verdict) = contest.pairs.first()?;
    let (polled, waited) = (one_way(*poll)?, one_way(*event)?);
    let operation = format::opcode(Program::Ping, op);
    let sentence = match verdict {
        Verdict::First => format!(
            "Waiting for events adds {} to the one-way time of a {} ping by {operation}: {} instead \
             of {}, {} as long.",
            format::time(waited - polled),
            format::size(size),
            format::time(waited),
            format::time(polled),
            format::factor(waited / polled),
        ),
        _ => format!(
            "Waiting for events costs a {} ping by {operation} no latency {} ({} \
             against {} with busy polling).",
            format::size(size),
            contest.noise().beyond(),
            format::time(waited),
            format::time(polled),
        ),
    };
    let id = match op {
        Opcode::Send => "event-price-send",
        _ => "event-price-write-read",
    };
    Some(scope.finding(id, FIGURE, &sentence, contest.cells()))
}
