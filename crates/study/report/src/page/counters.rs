//! The counters of the devices that moved while they were measured.

use maud::{Markup, html};

use crate::Report;
use crate::counters::{Moved, is_trouble, moved};

/// The section; nothing where no counter moved.
pub(super) fn section(report: &Report<'_>) -> Markup {
    let all = moved(&report.records);
    let several = all.iter().any(|m| m.device != all[0].device);
    html! {
        @if !all.is_empty() {
            section id="counters" {
                h2 { "What the devices counted" }
                p class="about" {
                    "Port and hardware counters that moved between the beginning and the end of a cell, summed over the "
                    "cells, by the driver’s names. In bold: losses, retransmissions, receivers that were not ready, "
                    "congestion. Two sides on one device show the same counters."
                }
                div class="scroll" {
                    table {
                        thead { tr {
                            @if several { th { "Device" } }
                            th { "Counter" }
                            th class="n" { "Active side" }
                            th class="n" { "Passive side" }
                            th class="n" { "Cells" }
                            th { "Most in" }
                        } }
                        tbody { @for moved in &all { (row(moved, several)) } }
                    }
                }
            }
        }
    }
}

fn row(moved: &Moved<'_>, several: bool) -> Markup {
    html! {
        tr {
            @if several { td { (moved.device.to_string()) } }
            td {
                @if is_trouble(moved.name) { strong { code { (moved.name) } } } @else { code { (moved.name) } }
            }
            td class="n" { (moved.active) }
            td class="n" { (moved.passive) }
            td class="n" { (moved.cells) }
            td { code { (moved.most) } }
        }
    }
}
