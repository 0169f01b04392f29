//! Drawing: figures to SVG. The same input gives the same bytes.

mod bars;
pub(crate) mod heat;
mod lines;
pub(crate) mod mark;
pub(crate) mod scale;

use maud::{Markup, html};

use crate::figure::{Body, Figure, Lines, Origin, Panel, Series, Style, Table};
use lines::Bounds;
use scale::Form;

/// Names and styles of all lines, each once, in an order that each panel has; nothing if there is only one.
pub(crate) fn legend(panels: &[Panel]) -> Markup {
    let mut legend: Vec<(&str, Style, Origin)> = Vec::new();
    for panel in panels {
        let Body::Lines(lines) = &panel.body else {
            continue;
        };
        let mut place = legend.len();
        for s in &lines.series {
            let entry = (s.name.as_str(), s.style, s.origin);
            if let Some(known) = legend.iter().position(|other| *other == entry) {
                place = known;
            } else {
                legend.insert(place, entry);
            }
            place += 1;
        }
    }
    html! {
        @if legend.len() > 1 {
            div class="legend" role="group" aria-label="Show or hide series" {
                @for (name, style, origin) in &legend {
                    button type="button" aria-pressed="true" data-series=(name) { (swatch(*style, *origin)) (name) }
                }
            }
        }
    }
}

/// The panels of a figure as `<figure>` elements. Panels of one quantity share their axes, so that
/// they can be compared by eye.
pub(crate) fn panels(figure: &Figure) -> Markup {
    lines_of(figure.spec.id, &figure.panels)
}

/// The same of panels outside a figure.
pub(crate) fn lines_of(name: &str, panels: &[Panel]) -> Markup {
    html! {
        @for (index, panel) in panels.iter().enumerate() {
            @let id = format!("{name}-{index}");
            figure class={ "panel" @if matches!(panel.body, Body::Table(_)) { " wide" } } id=(id) {
                figcaption {
                    (panel.full_title())
                    @if is_logarithmic(&panel.body) { " (logarithmic)" }
                }
                (draw(panel, panels, &id))
            }
        }
    }
}

/// Whether the vertical axis is logarithmic.
fn is_logarithmic(body: &Body) -> bool {
    match body {
        Body::Lines(lines) => lines::form(lines) == Form::Decades,
        Body::Bars { .. } | Body::Table(_) => false,
    }
}

fn draw(panel: &Panel, panels: &[Panel], id: &str) -> Markup {
    match &panel.body {
        Body::Table(rows) => table(rows),
        Body::Bars { quantity, bars } => bars::draw(&panel.full_title(), *quantity, bars),
        Body::Lines(lines) => {
            let alike = panels.iter().filter_map(|p| match &p.body {
                Body::Lines(other) if share_axes(lines, other) => Some(&other.series),
                _ => None,
            });
            let series: Vec<&Series> = alike.flatten().collect();
            lines::draw(id, panel, lines, &Bounds::of(&series))
        }
    }
}

fn table(table: &Table) -> Markup {
    let starts_as_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit() || c == '–');
    let is_number = |column: usize| {
        let mut words = table.rows.iter().filter_map(|row| row.get(column));
        words.all(|word| starts_as_number(word)).then_some("n")
    };
    let classes: Vec<_> = (0..table.columns.len()).map(is_number).collect();
    html! {
        div class="scroll" tabindex="0" {
            table {
                thead {
                    tr {
                        @for (name, class) in table.columns.iter().zip(&classes) { th scope="col" class=[*class] { (name) } }
                    }
                }
                tbody {
                    @for row in &table.rows {
                        tr { @for (word, class) in row.iter().zip(&classes) { td class=[*class] { (word) } } }
                    }
                }
            }
        }
    }
}

fn share_axes(a: &Lines, b: &Lines) -> bool {
    a.x == b.x && a.x_name == b.x_name && a.y == b.y && a.metric == b.metric
}

/// A sample of a series for the legend.
pub(crate) fn swatch(style: Style, origin: Origin) -> Markup {
    html! {
        svg class="swatch" viewBox="0 0 34 12" width="34" height="12" aria-hidden="true" {
            @if origin == Origin::Records { path class={ "line " (mark::classes(style)) } d="M1 6H33" {} }
            g transform="translate(17,6)" { (mark::shape(style)) }
        }
    }
}
