//! Drawing: figures to SVG. The same input gives the same bytes.

mod bars;
mod lines;
mod mark;
mod scale;

use maud::{Markup, html};

use crate::figure::{Body, Figure, Panel, Style};
use lines::Bounds;

/// The panels of a figure as `<figure>` elements. Panels of one quantity share their axes, so that
/// they can be compared by eye.
pub(crate) fn panels(figure: &Figure) -> Markup {
    html! {
        @for (index, panel) in figure.panels.iter().enumerate() {
            @let id = format!("{}-{index}", figure.id.id());
            figure class="panel" id=(id) {
                figcaption { (panel.title) }
                (draw(panel, figure, &id))
            }
        }
    }
}

fn draw(panel: &Panel, figure: &Figure, id: &str) -> Markup {
    match &panel.body {
        Body::Bars { quantity, bars } => bars::draw(&panel.title, *quantity, bars),
        Body::Lines { x, y, series } => {
            let alike = figure.panels.iter().filter_map(|p| match &p.body {
                Body::Lines {
                    x: other_x,
                    y: other_y,
                    series,
                } if other_x == x && other_y == y => Some(series.as_slice()),
                _ => None,
            });
            let bounds = Bounds::of(alike.flatten());
            lines::draw(id, &panel.title, (*x, *y), series, &bounds)
        }
    }
}

/// A sample of a series for the legend.
pub(crate) fn swatch(style: Style) -> Markup {
    html! {
        svg class="swatch" viewBox="0 0 34 12" width="34" height="12" aria-hidden="true" {
            path class={ "line " (mark::classes(style)) } d="M1 6H33" {}
            g transform="translate(17,6)" { (mark::shape(style)) }
        }
    }
}
