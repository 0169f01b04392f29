//! Busy polling or events: where each is faster, what it costs in CPU, and the price of an event.

use adverb_report::cells::{Cell, Cells, Quantity, Verdict};
use adverb_report::findings::{Contrast, Finding, Scale, Scope, about_equal, one_way};
use adverb_report::{chosen_size, format};
use adverb_results::{Completion, Opcode, Program, Signaling};

/// The pings of a figure by one operation: its name in ids.
struct Pings {
    id: &'static str,
    figure: &'static str,
    op: Opcode,
}

const PINGS: [Pings; 2] = [
    Pings {
        id: "send",
        figure: "fig1",
        op: Opcode::Send,
    },
    Pings {
        id: "write-read",
        figure: "fig6",
        op: Opcode::WriteRead,
    },
];

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    let found = PINGS.iter().flat_map(|pings| {
        let cells = scope.figure(pings.figure).program(Program::Ping);
        let cells = cells.filter(|r| {
            let is_plain = !r.params.inline && !r.params.verify;
            r.params.op == pings.op && is_plain && r.params.signal == Signaling::All
        });
        let is_local = |cell: Cell<'_>| cell.record.device.is_shared_memory();
        if pings.op == Opcode::WriteRead && cells.iter().any(is_local) {
            return [without_events(scope, pings, &cells), None];
        }
        [
            strategies(scope, pings, &cells),
            price(scope, pings, &cells),
        ]
    });
    found.flatten().collect()
}

/// Busy polling against events.
fn contrast<'a>(cells: &Cells<'a>) -> Option<Contrast<'a, u64>> {
    let waiting = |completion: Completion| {
        let cells = cells.filter(|r| r.params.completion == completion);
        cells.by(|c| c.size())
    };
    let (polled, waited) = (waiting(Completion::Poll), waiting(Completion::Event));
    let (polled, waited) = (("with busy polling", &polled), ("with events", &waited));
    Contrast::new(Scale::SIZES, polled, waited)
}

fn strategies(scope: &Scope<'_>, pings: &Pings, cells: &Cells<'_>) -> Option<Finding> {
    let contrast = contrast(cells)?;
    let ties = contrast.ties();
    let parts = [
        contrast.claim("busy polling is faster", Verdict::First),
        contrast.claim("events are faster", Verdict::Second),
        ties.map(|at| {
            format!(
                "{at} polling and events do not differ beyond {}",
                contrast.noise()
            )
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let (smallest, poll, event, _) = contrast.pairs().first()?;
    let cpu = cpu(*poll)
        .zip(cpu(*event))
        .map_or_else(String::new, |(poll, event)| {
            let size = format::size(*smallest);
            format!(" At {size}, polling takes {poll}; events take {event}.")
        });
    let operation = format::opcode(Program::Ping, pings.op);
    let sentence = format!("Ping by {operation}: {}.{cpu}", parts.join("; "));
    Some(scope.finding(
        format!("completion-{}", pings.id),
        pings.figure,
        sentence,
        contrast.cells(),
    ))
}

/// States why busy polling and events are not compared where operations complete as they are posted.
fn without_events(scope: &Scope<'_>, pings: &Pings, cells: &Cells<'_>) -> Option<Finding> {
    let contrast = contrast(cells)?;
    let sentence = "Ping by WRITE then READ: busy polling and events are not compared, because in shared memory \
                    one-sided operations have completed when they are posted, and there is no event to wait for.";
    let id = format!("completion-{}", pings.id);
    Some(scope.finding(id, pings.figure, sentence.to_owned(), contrast.cells()))
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

fn price(scope: &Scope<'_>, pings: &Pings, cells: &Cells<'_>) -> Option<Finding> {
    let size = chosen_size(cells)?;
    let cells = cells.filter(|r| r.params.size_bytes.get() == size);
    let contrast = contrast(&cells)?;
    let (_, poll, event, verdict) = contrast.pairs().first()?;
    let (polled, waited) = (one_way(*poll)?, one_way(*event)?);
    let operation = format::opcode(Program::Ping, pings.op);
    let ping = format!("{} ping by {operation}", format::size(size));
    let (short, long) = (format::time(polled), format::time(waited));
    let sentence = match verdict {
        Verdict::First => format!(
            "Waiting for events adds {} to the one-way time of a {ping}: {long} instead of {short}, {} as long.",
            format::time(waited - polled),
            format::factor(waited / polled),
        ),
        Verdict::Tie if !about_equal(&[polled, waited]) => format!(
            "The noise is too large to tell what waiting for events adds to the one-way time of a {ping}: {long}, and \
             {short} with busy polling."
        ),
        _ => format!(
            "Waiting for events does not add to the one-way time of a {ping} beyond {} ({long}, and {short} \
             with busy polling).",
            contrast.noise(),
        ),
    };
    Some(scope.finding(
        format!("event-price-{}", pings.id),
        pings.figure,
        sentence,
        contrast.cells(),
    ))
}
