//! Markers, colours and dashes. Each series differs in at least two of them, so that it can be told
//! without colour.

use maud::{Markup, html};

use crate::figure::Style;

/// Outlines around (0, 0): circle, square, triangle, diamond, triangle down, cross.
const SHAPES: [&str; 6] = [
    "M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0Z",
    "M-2.9 -2.9H2.9V2.9H-2.9Z",
    "M0 -3.8L3.6 2.8H-3.6Z",
    "M0 -4.1L4.1 0L0 4.1L-4.1 0Z",
    "M0 3.8L3.6 -2.8H-3.6Z",
    "M-3.4 -1.3H-1.3V-3.4H1.3V-1.3H3.4V1.3H1.3V3.4H-1.3V1.3H-3.4Z",
];

/// CSS classes of colour and dash.
pub(crate) fn classes(style: Style) -> String {
    format!("c{} d{}", style.color % 8, style.dash % 4)
}

/// The marker.
pub(crate) fn shape(style: Style) -> Markup {
    let hollow = if style.hollow { " hollow" } else { "" };
    html! {
        path class={ "mark c" (style.color % 8) (hollow) } d=(SHAPES[usize::from(style.marker) % SHAPES.len()]) {}
    }
}

/// A coordinate: one decimal is a tenth of a pixel.
pub(crate) fn at(value: f64) -> String {
    format!("{value:.1}")
}
