//! How many buffers suffice, and whether lists of work requests help.

use std::collections::BTreeMap;

use adverb_results::{Completion, Posting, Signaling};

use super::{Contest, Finding, Scope};
use crate::cells::{Cell, Cells, Quantity, Verdict};
use crate::format;

/// The share of the best that counts as enough.
const ENOUGH: f64 = 0.95;

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    let plain = |figure: &'static str| {
        scope.figure(figure).filter(|r| {
            r.params.completion == Completion::Poll
                && r.params.signal == Signaling::All
                && !r.params.verify
        })
    };
    let single = |r: &adverb_results::PairRecord| r.params.post == Posting::Single;
    let mut findings: Vec<Finding> = [
        (
            "buffers-inline",
            "fig3",
            Quantity::MessageRate,
            "An inline WRITE blast",
        ),
        (
            "buffers",
            "fig4",
            Quantity::Throughput,
            "A WRITE blast without inline",
        ),
    ]
    .into_iter()
    .filter_map(|(id, figure, quantity, what)| {
        suffice(
            scope,
            (id, figure),
            quantity,
            what,
            &plain(figure).filter(single),
        )
    })
    .collect();
    findings.extend(lists(scope, &plain("fig3")));
    findings
}

fn suffice(
    scope: &Scope<'_>,
    (id, figure): (&str, &'static str),
    quantity: Quantity,
    what: &str,
    cells: &Cells<'_>,
) -> Option<Finding> {
    let mut by_count: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut sizes: Vec<u64> = Vec::new();
    let mut best: Option<(f64, Cell<'_>)> = None;
    for (size, counts) in by_size(cells) {
        let values: Vec<(f64, Cell<'_>)> = counts
            .values()
            .filter_map(|c| c.sample(quantity).map(|s| (s.median, *c)))
            .collect();
        let Some(top) = values
            .iter()
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|_| values.len() > 1)
        else {
            continue;
        };
        let enough = values.iter().find(|(v, _)| *v >= ENOUGH * top.0)?;
        by_count
            .entry(enough.1.params().buffers)
            .or_default()
            .push(size);
        sizes.push(size);
        best = best.filter(|b| b.0 >= top.0).or(Some(*top));
    }
    let (value, cell) = best?;
    let clauses: Vec<String> = by_count
        .iter()
        .map(|(n, these)| {
            format!(
                "with {} at {}",
                format::buffers(*n),
                format::runs(&sizes, these, format::size)
            )
        })
        .collect();
    let sentence = format!(
        "{what} reaches {} of its best {} {}; the best of all is {} at {} with {}.",
        format::percent(ENOUGH * 100.0),
        match quantity {
            Quantity::MessageRate => "message rate",
            _ => "throughput",
        },
        format::and(&clauses),
        quantity.show(value),
        format::size(cell.size()),
        format::buffers(cell.params().buffers),
    );
    Some(scope.finding(id, figure, &sentence, cells.iter()))
}

fn by_size<'a>(cells: &Cells<'a>) -> BTreeMap<u64, BTreeMap<u32, Cell<'a>>> {
    let mut sizes: BTreeMap<u64, BTreeMap<u32, Cell<'a>>> = BTreeMap::new();
    for cell in cells.iter() {
        sizes
            .entry(cell.size())
            .or_default()
            .insert(cell.params().buffers, cell);
    }
    sizes
}

fn lists(scope: &Scope<'_>, cells: &Cells<'_>) -> Option<Finding> {
    let size = cells.iter().map(|c| c.size()).min()?;
    let cells = cells.filter(|r| r.params.size_bytes.get() == size);
    let posted = |post: Posting| {
        cells
            .filter(|r| r.params.post == post)
            .by(|c| c.params().buffers)
    };
    let contest = Contest::between(&posted(Posting::List), &posted(Posting::Single))?;
    let what = format!("an inline WRITE blast of {}", format::size(size));
    let sentence = gains(&contest, "Posting lists", "make", &what)?;
    Some(scope.finding("lists", "fig3", &sentence, contest.cells()))
}

/// What one way of blasting gains over another, by the number of buffers.
pub(super) fn gains(
    contest: &Contest<'_, u32>,
    way: &str,
    makes: &str,
    what: &str,
) -> Option<String> {
    let show = |n: u32| n.to_string();
    let with = |places: String| match places.as_str() {
        "1" => "with 1 buffer".to_owned(),
        _ => format!("with {places} buffers"),
    };
    let quantity = Quantity::MessageRate;
    let mut parts = Vec::new();
    if let Some(places) = contest.places(Verdict::First, show) {
        let lead = contest.best_lead(Verdict::First)?;
        parts.push(format!(
            "faster {}, {}",
            with(places),
            lead.in_words(quantity, format::buffers)
        ));
    }
    if let Some(places) = contest.places(Verdict::Second, show) {
        let lead = contest.best_lead(Verdict::Second)?;
        parts.push(format!(
            "slower {}, {}",
            with(places),
            lead.in_words(quantity, format::buffers)
        ));
    }
    let tie = contest.places(Verdict::Tie, show);
    let beyond = contest.noise().beyond();
    Some(match (parts.is_empty(), tie) {
        (true, _) => format!(
            "{way} {makes} no difference {beyond} in {what} {}.",
            with(contest.all_places(show))
        ),
        (false, Some(places)) => format!(
            "{way} {makes} {what} {}; {} there is no difference {beyond}.",
            parts.join(" and "),
            with(places)
        ),
        (false, None) => format!("{way} {makes} {what} {}.", parts.join(" and ")),
    })
}
