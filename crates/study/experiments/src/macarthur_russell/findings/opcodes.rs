//! Which operation is fastest, and what the passive side pays.

use adverb_report::cells::{Cell, Cells, Quantity};
use adverb_report::findings::{Finding, Ranks, Scope, noise};
use adverb_report::format;
use adverb_results::{Completion, Opcode, Program, Signaling};

const FIGURE: &str = "fig5";

/// Up to this size, in bytes, sentences give message rates, beyond it throughput.
const SMALL: u64 = 4096;

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    let cells = scope.figure(FIGURE).program(Program::Blast).filter(|r| {
        let p = &r.params;
        p.completion == Completion::Poll && p.signal == Signaling::All && !p.verify
    });
    let smallest = cells.iter().map(|c| c.size()).min();
    let largest = cells.iter().map(|c| c.size()).max();
    let ends = [
        smallest.and_then(|size| fastest(scope, "opcode-small", &cells, size)),
        largest
            .filter(|_| largest != smallest)
            .and_then(|size| fastest(scope, "opcode-large", &cells, size)),
        passive_cpu(scope, &cells),
    ];
    ends.into_iter().flatten().collect()
}

fn fastest(scope: &Scope<'_>, id: &str, cells: &Cells<'_>, size: u64) -> Option<Finding> {
    let cells = cells.filter(|r| r.params.size_bytes.get() == size);
    let each = cells.by(|c| (c.params().op, c.params().inline));
    let ranks = Ranks::of(each.into_values())?;
    let quantity = if size <= SMALL {
        Quantity::MessageRate
    } else {
        Quantity::Throughput
    };
    let named = |cell: &Cell<'_>| {
        let value = cell.sample(quantity).map_or(0.0, |s| s.median);
        let name = format::operation(Program::Blast, cell.params()).replace(", inline", " inline");
        format!("{name} ({})", quantity.show(value))
    };
    let listed = |cells: &[Cell<'_>]| format::and(&cells.iter().map(named).collect::<Vec<_>>());
    let (first, rest) = (listed(&ranks.first), listed(&ranks.rest));
    let best = ranks.first.first()?;
    let noise = noise(*best);
    let order = if ranks.overlap() {
        let tiers: Vec<String> = ranks.tiers().iter().map(|tier| listed(tier)).collect();
        match &tiers[..] {
            [all] => format!("the noise is too large to rank {all}"),
            tiers => format!(
                "{}; the noise is too large to rank those named together",
                tiers.join(", followed by ")
            ),
        }
    } else if ranks.rest.is_empty() {
        format!("{first} do not differ beyond {noise}")
    } else if ranks.first.len() == 1 {
        format!("{first} is fastest, followed by {rest}")
    } else if !ranks.is_close() {
        format!("the noise is too large to rank {first}, which are fastest, followed by {rest}")
    } else {
        format!("{first} are fastest and equal within {noise}, followed by {rest}")
    };
    let sentence = format!(
        "Blast of {} messages with {}: {order}.",
        format::size(size),
        format::buffers(best.params().buffers),
    );
    Some(scope.finding(id, FIGURE, sentence, cells.iter()))
}

fn passive_cpu(scope: &Scope<'_>, cells: &Cells<'_>) -> Option<Finding> {
    let one_sided = cells.filter(|r| matches!(r.params.op, Opcode::Write | Opcode::Read));
    let two_sided = cells.filter(|r| matches!(r.params.op, Opcode::Send | Opcode::WriteImm));
    let (_, most) = range(&one_sided)?;
    let (least, top) = range(&two_sided)?;
    let between = if format::percent(least) == format::percent(top) {
        format::percent(top)
    } else {
        format!("{} to {}", format::percent(least), format::percent(top))
    };
    let sentence = format!(
        "In a blast with busy polling, one-sided operations ({}) use {} of a core on the passive side; \
         two-sided ones ({}) use {between}.",
        names(&one_sided),
        at_most(most),
        names(&two_sided),
    );
    let evidence = one_sided.iter().chain(two_sided.iter());
    Some(scope.finding("passive-cpu", FIGURE, sentence, evidence))
}

/// `at most 3.1 %`.
fn at_most(share: f64) -> String {
    if share < 0.05 {
        "less than 0.1 %".to_owned()
    } else {
        format!("at most {}", format::percent(share))
    }
}

fn range(cells: &Cells<'_>) -> Option<(f64, f64)> {
    let shares = || cells.iter().filter_map(|c| c.sample(Quantity::CpuPassive));
    let least = shares().map(|s| s.median).min_by(f64::total_cmp)?;
    let most = shares().map(|s| s.median).max_by(f64::total_cmp)?;
    Some((least, most))
}

fn names(cells: &Cells<'_>) -> String {
    let ops = cells.by(|c| c.params().op).into_keys();
    let words = ops.map(|op| format::opcode(Program::Blast, op).to_owned());
    format::and(&words.collect::<Vec<_>>())
}
