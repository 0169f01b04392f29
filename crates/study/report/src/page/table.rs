//! All cells as a table that sorts and filters.

use adverb_results::{Latency, Outcome, PairRecord};
use maud::{Markup, html};

use super::banner;
use crate::Report;
use crate::cells::{Cells, Quantity};
use crate::{format, sweep};

/// Number of columns that show what was asked. A failed cell has its reason in place of the others.
const PARAMETERS: usize = 11;

/// A value as it is read and as it is sorted.
struct Value {
    text: String,
    sort: Option<f64>,
}

type Column = (&'static str, fn(&PairRecord) -> Value);

const COLUMNS: [Column; 21] = [
    ("status", |r| {
        word(if r.outcome == Outcome::Ok {
            "ok"
        } else {
            "failed"
        })
    }),
    ("program", |r| word(r.program)),
    ("device", |r| word(&r.device)),
    ("op", |r| word(r.params.op)),
    ("size", |r| Value {
        text: banner::size(r),
        sort: Some(r.params.size_bytes.get() as f64),
    }),
    ("inline", |r| {
        word(if r.params.inline { "yes" } else { "no" })
    }),
    ("completion", |r| word(r.params.completion)),
    ("buffers", |r| Value {
        text: r.params.buffers.to_string(),
        sort: Some(f64::from(r.params.buffers)),
    }),
    ("post", |r| word(r.params.post)),
    ("signal", |r| word(r.params.signal)),
    ("path", |r| {
        let path = r.params.impairment.filter(|path| !path.is_none());
        word(path.map_or_else(String::new, |path| path.to_string()))
    }),
    ("one-way, round trip or per message, median", |r| {
        figure(
            median(r, Quantity::OneWay).map(|ns| r.shown_ns(ns)),
            format::time,
        )
    }),
    ("± 95 % of mean", half_width),
    ("p50", |r| latency(r, |l| l.p50)),
    ("p99", |r| latency(r, |l| l.p99)),
    ("p99.9", |r| latency(r, |l| l.p999)),
    ("messages/s", |r| quantity(r, Quantity::MessageRate)),
    ("throughput", |r| quantity(r, Quantity::Throughput)),
    ("one direction", |r| quantity(r, Quantity::Megabits)),
    ("user+sys, active side", |r| {
        quantity(r, Quantity::CpuActive)
    }),
    ("user+sys, passive side", |r| {
        quantity(r, Quantity::CpuPassive)
    }),
];

#[expect(
    clippy::needless_pass_by_value,
    reason = "most words are made on the spot"
)]
fn word(word: impl ToString) -> Value {
    Value {
        text: word.to_string(),
        sort: None,
    }
}

fn figure(value: Option<f64>, show: impl Fn(f64) -> String) -> Value {
    Value {
        text: value.map(show).unwrap_or_default(),
        sort: value,
    }
}

fn median(record: &PairRecord, quantity: Quantity) -> Option<f64> {
    let sample = Cells::of(&[record]).iter().next()?.sample(quantity);
    sample.map(|sample| sample.median)
}

fn quantity(record: &PairRecord, quantity: Quantity) -> Value {
    figure(median(record, quantity), |v| quantity.show(v))
}

fn latency(record: &PairRecord, of: fn(&Latency) -> Option<f64>) -> Value {
    let ns = record.metrics.as_ref().and_then(|m| of(&m.one_way_ns));
    figure(ns.map(|ns| record.shown_ns(ns)), format::time)
}

/// Of the mean, if there is noise.
fn half_width(record: &PairRecord) -> Value {
    let metrics = record.metrics.as_ref().filter(|_| record.has_noise());
    let half = metrics.and_then(|m| m.one_way_ns.ci95);
    figure(half.map(|ns| record.shown_ns(ns)), format::half_width)
}

/// The tables: of `ping` and `blast`, and of each other program whose records figures show.
pub(super) fn section(report: &Report<'_>) -> Markup {
    let others = sweep::of_figures(report.others);
    let of_others: usize = others.iter().map(sweep::Sweep::len).sum();
    let cells = report.records.len() + of_others;
    html! {
        @if is_shown(report) {
            section id="cells" {
                h2 { "All cells" }
                p class="about" {
                    @if !report.records.is_empty() {
                        "The time of a ping is half of a round, and for a READ or an atomic operation the whole round trip; the time of a blast is the time per message. Verified cells also check their payload, which takes time. "
                    }
                    "An empty field is a figure that was not measured. Click a heading to sort."
                }
                p class="filter" {
                    label for="filter" { "Filter " }
                    input id="filter" type="search" placeholder="for example: write 64 B" autocomplete="off";
                    " " output id="shown" { (cells) " cells" }
                }
                @if !report.records.is_empty() { (pairs(&report.records)) }
                @for group in &others {
                    h3 { (group.title()) }
                    (group.table())
                }
            }
        }
    }
}

/// Whether there are cells that no other table of the report lists.
pub(super) fn is_shown(report: &Report<'_>) -> bool {
    let mut others = report.others.iter();
    !report.records.is_empty() || others.any(|record| !record.figures.is_empty())
}

fn pairs(records: &[&PairRecord]) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="ping and blast" {
            table {
                thead {
                    tr {
                        @for (name, _) in COLUMNS { th scope="col" { button type="button" { (name) } } }
                        th scope="col" { button type="button" { "cell" } }
                    }
                }
                tbody { @for record in records { (row(record)) } }
            }
        }
    }
}

fn row(record: &PairRecord) -> Markup {
    html! {
        @match &record.outcome {
            Outcome::Ok => {
                tr {
                    @for (_, value) in COLUMNS { (field(&value(record))) }
                    td class="cell" { (record.cell) @if record.params.verify { " (verified)" } }
                }
            }
            Outcome::Failed { reason } => {
                tr class="bad" {
                    @for (_, value) in &COLUMNS[..PARAMETERS] { (field(&value(record))) }
                    td class="why" colspan=(COLUMNS.len() - PARAMETERS) { (reason) }
                    td class="cell" { (record.cell) }
                }
            }
        }
    }
}

fn field(value: &Value) -> Markup {
    html! { td class=[value.sort.map(|_| "n")] data-v=[value.sort] { (value.text) } }
}
