//! Which operation is fastest, and what the passive side pays.

use adverb_results::{Completion, Opcode, Program, Signaling};

use super::{Finding, Noise, Scope, overlap, podium};
use crate::cells::{Cell, Cells, Quantity};
use crate::format;

const FIGURE: &str = "fig5";

/// Up to this size, in bytes, messages are told by their rate, beyond by throughput.
const SMALL: u64 = 4096;

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    let cells = scope.figure(FIGURE).program(Program::Blast).filter(|r| {
        let p = &r.params;
        p.completion == Completion::Poll && p.signal == Signaling::All && !p.verify
    });
    let mut sizes: Vec<u64> = cells.iter().map(|c| c.size()).collect();
    sizes.sort_unstable();
    let ends = match (sizes.first(), sizes.last()) {
        (Some(first), Some(last)) if first == last => vec![("opcode-small", *first)],
        (Some(first), Some(last)) => vec![("opcode-small", *first), ("opcode-large", *last)],
        _ => Vec::new(),
    };
    let mut findings: Vec<Finding> = ends
        .into_iter()
        .filter_map(|(id, size)| fastest(scope, id, &cells, size))
        .collect();
    findings.extend(passive_cpu(scope, &cells));
    findings
}

fn fastest(scope: &Scope<'_>, id: &str, cells: &Cells<'_>, size: u64) -> Option<Finding> {
    let cells = cells.filter(|r| r.params.size_bytes.get() == size);
    let (first, rest) = podium(
        cells
            .by(|c| (c.params().op, c.params().inline))
            .into_values()
            .collect(),
    )?;
    let quantity = if size <= SMALL {
        Quantity::MessageRate
    } else {
        Quantity::Throughput
    };
    let value = |c: &Cell<'_>| c.sample(quantity).map_or(0.0, |s| s.median);
    let listed = |cells: &[Cell<'_>]| {
        let words: Vec<String> = cells
            .iter()
            .map(|c| {
                let name =
                    format::operation(Program::Blast, c.params()).replace(", inline", " (inline)");
                format!("{name} at {}", quantity.show(value(c)))
            })
            .collect();
        format::and(&words)
    };
    let buffers = first.first()?.params().buffers;
    let order = if overlap(&first, &rest) {
        let all = listed(&[&first[..], &rest[..]].concat());
        format!("the noise is too large to rank {all}")
    } else if rest.is_empty() {
        let by_more = Noise::of(*first.first()?).by_more();
        format!("{} do not differ {by_more}", listed(&first))
    } else {
        let verb = match first.len() {
            1 => "is fastest".to_owned(),
            _ => format!("are fastest, equal {}", Noise::of(*first.first()?).within()),
        };
        format!("{} {verb}; behind: {}", listed(&first), listed(&rest))
    };
    let sentence = format!(
        "Blast of {} messages with {}: {order}.",
        format::size(size),
        format::buffers(buffers),
    );
    Some(scope.finding(id, FIGURE, &sentence, cells.iter()))
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
        "In a blast, one-sided operations ({}) use {} of a core on the passive side; \
         two-sided ones ({}) use {between}, with busy polling.",
        names(&one_sided),
        at_most(most),
        names(&two_sided),
    );
    let evidence = one_sided.iter().chain(two_sided.iter());
    Some(scope.finding("passive-cpu", FIGURE, &sentence, evidence))
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
    let values: Vec<f64> = cells
        .iter()
        .filter_map(|c| c.sample(Quantity::CpuPassive))
        .map(|s| s.median)
        .collect();
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    Some((least, most))
}

fn names(cells: &Cells<'_>) -> String {
    let ops = cells.by(|c| c.params().op);
    let words: Vec<String> = ops
        .keys()
        .map(|op| format::opcode(Program::Blast, *op).to_owned())
        .collect();
    format::and(&words)
}
