//! How many buffers suffice, and whether lists of work requests help.

use std::collections::BTreeMap;

use adverb_report::cells::{Cell, Cells, Quantity};
use adverb_report::findings::{Contrast, Finding, Scale, Scope};
use adverb_report::format;
use adverb_results::{Completion, Posting, Signaling};

/// The share of the best that counts as enough.
const ENOUGH: f64 = 0.95;

pub(super) fn findings(scope: &Scope<'_>) -> Vec<Finding> {
    let inline = ("An inline WRITE blast", Quantity::MessageRate);
    let registered = ("A WRITE blast without inline", Quantity::Throughput);
    let plain = |figure, post| plain(scope, figure).filter(|r| r.params.post == post);
    let (single, in_lists) = (plain("fig3", Posting::Single), plain("fig4", Posting::List));
    let found = [
        suffice(scope, ("buffers-inline", "fig3"), &single, inline),
        suffice(scope, ("buffers", "fig4"), &in_lists, registered),
        lists(scope),
    ];
    found.into_iter().flatten().collect()
}

/// The cells of a figure that poll and signal every request.
fn plain<'a>(scope: &Scope<'a>, figure: &str) -> Cells<'a> {
    scope.figure(figure).filter(|r| {
        let p = &r.params;
        p.completion == Completion::Poll && p.signal == Signaling::All && !p.verify
    })
}

fn suffice(
    scope: &Scope<'_>,
    (id, figure): (&str, &'static str),
    cells: &Cells<'_>,
    (what, quantity): (&str, Quantity),
) -> Option<Finding> {
    let mut by_count: BTreeMap<(Option<u32>, u32), Vec<u64>> = BTreeMap::new();
    let mut sizes: Vec<u64> = Vec::new();
    let mut best: Option<(f64, Cell<'_>)> = None;
    for (size, counts) in by_size(cells) {
        let values = counts.values();
        let values = values.filter_map(|c| Some((c.sample(quantity)?.median, *c)));
        let values: Vec<(f64, Cell<'_>)> = values.collect();
        let top = values.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        let Some(top) = top.filter(|_| values.len() > 1) else {
            continue;
        };
        let enough = values.iter().position(|(v, _)| *v >= ENOUGH * top.0)?;
        let count = |place: usize| values[place].1.params().buffers;
        // Numbers between two measured ones may suffice, too.
        let too_few = enough.checked_sub(1).map(count);
        let range = (too_few, count(enough));
        by_count.entry(range).or_default().push(size);
        sizes.push(size);
        best = best.filter(|b| b.0 >= top.0).or(Some(*top));
    }
    let (value, cell) = best?;
    let clauses = by_count.iter().map(|((too_few, enough), these)| {
        let places = format::runs(&sizes, these, format::size);
        let fewer = match too_few {
            Some(few) if few + 1 < *enough => format!(", not with {few},"),
            _ => String::new(),
        };
        format!("with {}{fewer} at {places}", format::buffers(*enough))
    });
    let sentence = format!(
        "{what} reaches {} of its highest {} {}; the highest of all is {} at {} with {}.",
        format::percent(ENOUGH * 100.0),
        match quantity {
            Quantity::MessageRate => "message rate",
            _ => "throughput",
        },
        format::and(&clauses.collect::<Vec<_>>()),
        quantity.show(value),
        format::size(cell.size()),
        format::buffers(cell.params().buffers),
    );
    Some(scope.finding(id, figure, sentence, cells.iter()))
}

fn by_size<'a>(cells: &Cells<'a>) -> BTreeMap<u64, BTreeMap<u32, Cell<'a>>> {
    let mut sizes: BTreeMap<u64, BTreeMap<u32, Cell<'a>>> = BTreeMap::new();
    for cell in cells.iter() {
        let counts = sizes.entry(cell.size()).or_default();
        counts.insert(cell.params().buffers, cell);
    }
    sizes
}

fn lists(scope: &Scope<'_>) -> Option<Finding> {
    let cells = plain(scope, "fig3");
    let size = cells.iter().map(|c| c.size()).min()?;
    let cells = cells.filter(|r| r.params.size_bytes.get() == size);
    let posted = |post: Posting| {
        let cells = cells.filter(|r| r.params.post == post);
        cells.by(|c| c.params().buffers)
    };
    let (list, single) = (posted(Posting::List), posted(Posting::Single));
    let (list, single) = (("with lists", &list), ("with single posts", &single));
    let contrast = Contrast::new(Scale::BUFFERS, list, single)?;
    let of = format!("an inline WRITE blast of {}", format::size(size));
    let sentence = contrast.effect("Posting lists makes", &of);
    Some(scope.finding("lists", "fig3", sentence, contrast.cells()))
}
