//! The comparison of two measurements, in words and as a page.

use adverb_results::{Change, Comparison, Verdict};
use maud::{Markup, html};

use crate::format;
use crate::page::document;

/// The names of the two measurements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    /// First.
    pub before: String,
    /// Second.
    pub after: String,
}

/// A verdict as tables print it.
pub fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Slower => "slower",
        Verdict::Unchanged => "unchanged",
        Verdict::Faster => "faster",
        Verdict::Unknown => "unknown: one repetition",
    }
}

/// The ratio of a change with its interval, such as `1.03 (0.97 to 1.09)`; of a model or a single repetition the
/// ratio alone.
pub fn with_interval(change: &Change) -> String {
    match change.interval {
        Some([low, high]) if low < high => format!("{:.2} ({low:.2} to {high:.2})", change.ratio),
        _ => format!("{:.2}", change.ratio),
    }
}

/// The compared means, with their unit.
pub fn means(change: &Change) -> (String, String) {
    let text = |value: f64| match change.metric {
        metric if metric.ends_with("_per_s") => format::rate(value),
        "slowdown" => format::factor(value),
        _ => format::time(value),
    };
    (text(change.before), text(change.after))
}

/// The result of the comparison, in one paragraph.
pub fn summary(comparison: &Comparison) -> String {
    let changes = &comparison.changes;
    let count = |verdict| changes.iter().filter(|c| c.verdict == verdict).count();
    let logs: f64 = changes.iter().map(|c| c.ratio.ln()).sum();
    let overall = (logs / changes.len().max(1) as f64).exp();
    let mut text = format!(
        "{}: {} faster, {} slower, {} unchanged; all together {overall:.3} times as fast (geometric mean).",
        cells(changes.len()),
        count(Verdict::Faster),
        count(Verdict::Slower),
        count(Verdict::Unchanged),
    );
    let unknown = count(Verdict::Unknown);
    if unknown > 0 {
        text += &format!(" {unknown} have a single repetition, so that their noise is unknown.");
    }
    for (named, which) in [
        (&comparison.failed, "failed in the second measurement"),
        (&comparison.only_before, "only in the first measurement"),
        (&comparison.only_after, "only in the second measurement"),
        (
            &comparison.not_comparable,
            "without a rate or time to compare",
        ),
    ] {
        if !named.is_empty() {
            text += &format!(" {} {which}.", cells(named.len()));
        }
    }
    text
}

fn cells(count: usize) -> String {
    match count {
        1 => "1 cell".to_owned(),
        n => format!("{n} cells"),
    }
}

/// The page: summary, ratios as bars around 1, and a table of all cells. It needs no other file.
pub fn page(comparison: &Comparison, sides: &Sides) -> String {
    let title = format!("{} → {}", sides.before, sides.after);
    let body = html! {
        main {
            h1 { (title) }
            p { (summary(comparison)) }
            p { "A ratio above 1 means that the second measurement is faster. Intervals are 95 % \
                 confidence intervals over the repetitions." }
            (table(comparison))
        }
    };
    document(&format!("Adverb: {title}"), &body).into_string()
}

fn table(comparison: &Comparison) -> Markup {
    let mut changes: Vec<&Change> = comparison.changes.iter().collect();
    changes.sort_by(|a, b| {
        (a.verdict, a.ratio)
            .partial_cmp(&(b.verdict, b.ratio))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    html! {
        div class="scroll compared" tabindex="0" {
            table {
                thead { tr {
                    th { "cell" } th { "before" } th { "after" } th { "times as fast" } th { "" } th { "verdict" }
                } }
                tbody {
                    @for change in changes {
                        @let (before, after) = means(change);
                        tr {
                            td class="cell" { @for part in change.name().split_inclusive('/') { (part) wbr; } }
                            td { (before) } td { (after) }
                            td { (with_interval(change)) }
                            td { (bar(change)) }
                            td { (verdict_word(change.verdict)) }
                        }
                    }
                }
            }
        }
    }
}

/// The ratio and its interval on a logarithmic axis from half to twice as fast.
fn bar(change: &Change) -> Markup {
    // The largest mark ends at the edge.
    let x = |ratio: f64| 60.0 + 56.0 * ratio.max(1e-3).log2().clamp(-1.0, 1.0);
    let [low, high] = change.interval.unwrap_or([change.ratio; 2]).map(x);
    let color = match change.verdict {
        Verdict::Faster => "c2",
        Verdict::Slower => "c1",
        Verdict::Unchanged | Verdict::Unknown => "c6",
    };
    html! {
        svg width="120" height="14" viewBox="0 0 120 14" role="img"
            aria-label=(format!("{} times as fast", with_interval(change))) {
            path d="M60 0V14" stroke="currentColor" stroke-opacity="0.4" {}
            rect class={ "bar " (color) } x=(format!("{low:.1}")) y="6" height="2"
                width=(format!("{:.1}", (high - low).max(1.0))) {}
            circle class={ "bar " (color) } cx=(format!("{:.1}", x(change.ratio))) cy="7" r="3" {}
        }
    }
}
