//! The opening table of a report: what to use for a need, and what it costs on each device.

use maud::{Markup, html};

use crate::cells::{Cells, Quantity};
use crate::findings::{Advice, one_way, unbroken};
use crate::{Report, format, variant};

/// The longest table.
const MOST_ROWS: usize = 8;

impl Advice {
    /// The fastest of these pings, with its time and the CPU use of both sides; `None` if one is missing.
    pub fn of_pings(need: &'static str, figure: &'static str, cells: &Cells<'_>) -> Option<Self> {
        let timed = cells.iter().filter_map(|cell| Some((one_way(cell)?, cell)));
        let (time, best) = timed.min_by(|a, b| a.0.total_cmp(&b.0))?;
        let cpu = |quantity| Some(format::percent(best.sample(quantity)?.median));
        let cost = format!(
            "{} one way for {}; {} of a core on the active side, {} on the passive side",
            format::time(time),
            format::size(best.size()),
            cpu(Quantity::CpuActive)?,
            cpu(Quantity::CpuPassive)?,
        );
        Some(Advice {
            need,
            choice: variant(best),
            cost,
            figure,
        })
    }
}

/// Returns the table; empty if no experiment gives advice on these records.
pub(crate) fn section(report: &Report<'_>) -> Markup {
    let devices = report.advice();
    let mut rows: Vec<&Advice> = Vec::new();
    for advice in devices.iter().flat_map(|(_, advice)| advice) {
        if !rows.iter().any(|row| row.need == advice.need) {
            rows.push(advice);
        }
    }
    rows.truncate(MOST_ROWS);
    html! {
        @if !rows.is_empty() {
            section id="advice" {
                h2 { "At a glance" }
                div class="scroll" {
                    table class="advice" {
                        thead {
                            tr {
                                th scope="col" { "Need" }
                                @for (device, _) in &devices {
                                    @if devices.len() > 1 {
                                        th scope="col" { (device) @if device.starts_with("model:") { ", a prediction" } }
                                    }
                                    @else { th scope="col" { "Use" } th scope="col" { "What it costs" } }
                                }
                                th scope="col" { "Shown in" }
                            }
                        }
                        tbody { @for row in rows { (row_of(report, row, &devices)) } }
                    }
                }
            }
        }
    }
}

fn row_of(report: &Report<'_>, row: &Advice, devices: &[(String, Vec<Advice>)]) -> Markup {
    html! {
        tr {
            th scope="row" { (row.need) }
            @for (_, advice) in devices {
                @match advice.iter().find(|advice| advice.need == row.need) {
                    Some(advice) if devices.len() > 1 => {
                        td { strong { (advice.choice) } br; (unbroken(&advice.cost)) }
                    }
                    Some(advice) => { td { strong { (advice.choice) } } td { (unbroken(&advice.cost)) } }
                    None => { td { "not measured" } }
                }
            }
            td { a href={ "#" (row.figure) } { (report.name_of(row.figure)) } }
        }
    }
}
