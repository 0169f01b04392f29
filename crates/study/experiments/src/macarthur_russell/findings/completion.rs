//! Busy polling or events: where each is faster, what it costs in CPU, and the price of an event.

use adverb_report::cells::{Cell, Cells, Quantity, Verdict};
use adverb_report::findings::{Contrast, Finding, Scale, Scope, one_way};
use adverb_report::{chosen_size, format};
use adverb_results::{Completion, Opcode, Program, Signaling};

const FIGURE: &str = "fig1";

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    let pings = scope
        .figure(FIGURE)
        .program(Program::Ping)
        .filter(|r| !r.params.inline && r.params.signal == Signaling::All && !r.params.verify);
    [(Opcode::Send, "send"), (Opcode::WriteRead, "write-read")]
        .into_iter()
        .flat_map(|(op, id)| {
            let cells = pings.filter(|r| r.params.op == op);
            [
                strategies(scope, id, op, &cells),
                price(scope, id, op, &cells),
            ]
        })
        .flatten()
        .collect()
}

/// Busy polling against events.
fn contrast<'a>(cells: &Cells<'a>) -> Option<Contrast<'a, u64>> {
    let waiting = |completion: Completion| {
        let cells = cells.filter(|r| r.params.completion == completion);
        cells.by(|c| c.size())
    };
    let (polled, waited) = (waiting(Completion::Poll), waiting(Completion::Event));
    Contrast::new(Scale::SIZES, &polled, &waited)
}

fn strategies(scope: &Scope<'_>, id: &str, op: Opcode, cells: &Cells<'_>) -> Option<Finding> {
    let contrast = contrast(cells)?;
    let ties = contrast.ties();
    let parts = [
        contrast.claim("busy polling is faster", Verdict::First),
        contrast.claim("events are faster", Verdict::Second),
        ties.map(|at| format!("{at} they do not differ beyond {}", contrast.noise())),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let (smallest, poll, event, _) = contrast.pairs().first()?;
    let cpu = cpu(*poll)
        .zip(cpu(*event))
        .map_or_else(String::new, |(poll, event)| {
            let size = format::size(*smallest);
            format!(" At {size}, polling takes {poll}; events take {event}.")
        });
    let operation = format::opcode(Program::Ping, op);
    let sentence = format!("Ping by {operation}: {}.{cpu}", parts.join("; "));
    Some(scope.finding(
        format!("completion-{id}"),
        FIGURE,
        sentence,
        contrast.cells(),
    ))
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

fn price(scope: &Scope<'_>, id: &str, op: Opcode, cells: &Cells<'_>) -> Option<Finding> {
    let size = chosen_size(cells)?;
    let cells = cells.filter(|r| r.params.size_bytes.get() == size);
    let contrast = contrast(&cells)?;
    let (_, poll, event, verdict) = contrast.pairs().first()?;
    let (polled, waited) = (one_way(*poll)?, one_way(*event)?);
    let operation = format::opcode(Program::Ping, op);
    let ping = format!("{} ping by {operation}", format::size(size));
    let (short, long) = (format::time(polled), format::time(waited));
    let sentence = match verdict {
        Verdict::First => format!(
            "Waiting for events adds {} to the one-way time of a {ping}: {long} instead of {short}, {} as long.",
            format::time(waited - polled),
            format::factor(waited / polled),
        ),
        _ => format!(
            "Waiting for events does not add to the one-way time of a {ping} beyond {} ({long}, and {short} \
             with busy polling).",
            contrast.noise(),
        ),
    };
    Some(scope.finding(
        format!("event-price-{id}"),
        FIGURE,
        sentence,
        contrast.cells(),
    ))
}
