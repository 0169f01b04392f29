//! The opening table: what to use for a need, and what it costs.

use adverb_report::cells::{Cell, Cells, Quantity};
use adverb_report::findings::{Advice, EQUAL, Scope, one_way};
use adverb_report::{chosen_size, format, variant};
use adverb_results::{Completion, Opcode, Posting, Program, Signaling};

/// Messages up to this size, in bytes, count as small.
const SMALL: u64 = 64;
/// Up to this share of a core, in percent, the passive side counts as idle: it only prepares and ends the measurement.
const IDLE: f64 = 0.5;
/// The share of the highest throughput that counts as enough.
const ENOUGH: f64 = 0.95;

pub(super) fn advice(scope: &Scope<'_>) -> Vec<Advice> {
    let polling = |completion| completion == Completion::Poll;
    let pings = scope.figure("fig1").program(Program::Ping);
    let pings = pings.filter(|r| !r.params.verify);
    let size = chosen_size(&pings);
    let pings = pings.filter(|r| Some(r.params.size_bytes.get()) == size);
    let found = [
        Advice::of_pings(
            "Lowest latency, with a completion at the receiver",
            "fig1",
            &pings.filter(|r| polling(r.params.completion)),
        ),
        Advice::of_pings(
            "A waiting side must not occupy a core",
            "fig1",
            &pings.filter(|r| !polling(r.params.completion)),
        ),
        least_server_cpu(scope),
        highest_rate(scope),
        large_transfers(scope),
    ];
    found.into_iter().flatten().collect()
}

/// Blasts with busy polling of a figure.
fn blasts<'a>(scope: &Scope<'a>, figure: &str) -> Cells<'a> {
    let blasts = scope.figure(figure).program(Program::Blast);
    blasts.filter(|r| r.params.completion == Completion::Poll && !r.params.verify)
}

fn least_server_cpu(scope: &Scope<'_>) -> Option<Advice> {
    let cells = blasts(scope, "fig5");
    let size = cells.iter().map(|cell| cell.size()).min()?;
    let cells = cells.filter(|r| r.params.size_bytes.get() == size);
    let cpu = |cell: &Cell<'_>| Some(cell.sample(Quantity::CpuPassive)?.median);
    // Of those that use equally little, the fastest.
    let tenths = |cell: &Cell<'_>| Some((10.0 * cpu(cell)?.max(IDLE)).round());
    let lowest = tenths(&least(cells.iter(), tenths)?);
    let equal = cells.iter().filter(|cell| tenths(cell) == lowest);
    let best = least(equal, |cell| one_way(*cell))?;
    let two_sided = cells.iter().find(|cell| cell.params().op == Opcode::Send)?;
    let cost = format!(
        "{} of a core on the passive side (SEND: {}) and {} per message of {}",
        format::percent(cpu(&best)?),
        format::percent(cpu(&two_sided)?),
        format::time(one_way(best)?),
        format::size(size),
    );
    Some(Advice {
        need: "Least CPU at the server",
        choice: variant(best),
        cost,
        figure: "fig5",
    })
}

/// The simplest way among those with the highest rate: few buffers, then single posts and a completion for each.
fn highest_rate(scope: &Scope<'_>) -> Option<Advice> {
    let rate = |cell: &Cell<'_>| cell.sample(Quantity::MessageRate);
    let figures = ["fig3", "fig5", "fig6"].into_iter();
    let of_figures = figures.map(|figure| (figure, blasts(scope, figure)));
    let of_figures: Vec<_> = of_figures.collect();
    let cells = of_figures.iter().flat_map(|(figure, cells)| {
        let small = cells.iter().filter(|cell| cell.size() <= SMALL);
        small.filter_map(|cell| Some((rate(&cell)?, cell, *figure)))
    });
    let cells: Vec<_> = cells.collect();
    let rates = cells.iter().map(|(rate, ..)| rate);
    let highest = rates.max_by(|a, b| a.median.total_cmp(&b.median))?;
    let equal = cells
        .iter()
        .filter(|(rate, ..)| rate.median * EQUAL >= highest.median || rate.max >= highest.min);
    let (rate, simplest, figure) = equal.min_by_key(|(_, cell, _)| {
        let params = cell.params();
        let is_in_lists = params.post == Posting::List;
        (params.buffers, is_in_lists, params.signal != Signaling::All)
    })?;
    Some(Advice {
        need: "Highest message rate of one queue pair",
        choice: as_posted(*simplest),
        cost: format!(
            "{} of {}; {} of a core on the active side",
            format::rate(rate.median),
            format::size(simplest.size()),
            format::percent(simplest.sample(Quantity::CpuActive)?.median),
        ),
        figure,
    })
}

fn large_transfers(scope: &Scope<'_>) -> Option<Advice> {
    let cells = blasts(scope, "fig5");
    let rate = |cell: &Cell<'_>| Some(cell.sample(Quantity::Throughput)?.median);
    let best = rate(&least(cells.iter(), |cell| Some(-rate(cell)?))?)?;
    let enough = || {
        let is_enough = |cell: &Cell<'_>| rate(cell).is_some_and(|rate| rate >= ENOUGH * best);
        cells.iter().filter(is_enough)
    };
    let size = enough().map(|cell| cell.size()).min()?;
    // Of the operations that reach it, one that leaves the passive side alone.
    let of_size = enough().filter(|cell| cell.size() == size);
    let passive = |cell: &Cell<'_>| Some(cell.sample(Quantity::CpuPassive)?.median.round());
    let smallest = least(of_size, passive)?;
    Some(Advice {
        need: "Large transfers",
        choice: format!(
            "{}, from {} per message on",
            as_posted(smallest),
            format::size(smallest.size())
        ),
        cost: format!(
            "{} of at most {}",
            format::throughput(rate(&smallest)?),
            format::throughput(best),
        ),
        figure: "fig5",
    })
}

/// `WRITE (inline, busy polling), lists, 64 buffers, one in n/2 signaled`.
fn as_posted(cell: Cell<'_>) -> String {
    let params = cell.params();
    let posts = match params.post {
        Posting::Single => "single posts",
        Posting::List => "lists",
    };
    let name = format::operation(cell.record.program, params);
    let signaled = match params.signal {
        Signaling::All => ", all signaled",
        _ => "",
    };
    format!(
        "{name}{signaled}, {posts}, {}",
        format::buffers(params.buffers)
    )
}

/// The cell with the least value, of those that have one.
fn least<'a>(
    cells: impl Iterator<Item = Cell<'a>>,
    value: impl Fn(&Cell<'a>) -> Option<f64>,
) -> Option<Cell<'a>> {
    let valued = cells.filter_map(|cell| Some((value(&cell)?, cell)));
    let least = valued.min_by(|a, b| a.0.total_cmp(&b.0));
    least.map(|(_, cell)| cell)
}
