//! A heat map: a cell for each row and column, the value printed in it, its colour the stronger the higher
//! the value is.

use maud::{Markup, html};

use super::mark::at;

const CELL: (f64, f64) = (66.0, 28.0);
/// Room for the numbers of rows and columns.
const HEAD: (f64, f64) = (30.0, 22.0);
/// Height of the scale below the cells.
const SCALE: f64 = 40.0;
/// Steps of the scale.
const STEPS: usize = 12;
/// Opacity of the lowest and the highest value: the text in a cell stays readable on both papers.
const OPACITY: (f64, f64) = (0.05, 0.6);

/// A cell of a matrix.
pub(crate) struct Cell {
    /// Row and column, from 0.
    pub(crate) place: (usize, usize),
    /// `None` if it failed.
    pub(crate) value: Option<f64>,
    /// What a reader sees on hovering.
    pub(crate) text: String,
    /// Whether it has a frame.
    pub(crate) is_marked: bool,
}

/// The values of the weakest and the strongest colour.
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    fn of(cells: &[Cell]) -> Option<Self> {
        let values = || cells.iter().filter_map(|cell| cell.value);
        Some(Range {
            low: values().min_by(f64::total_cmp)?,
            high: values().max_by(f64::total_cmp)?,
        })
    }

    fn opacity(&self, value: f64) -> String {
        let width = self.high - self.low;
        let share = if width > 0.0 {
            (value - self.low) / width
        } else {
            0.0
        };
        format!("{:.2}", OPACITY.0 + share * (OPACITY.1 - OPACITY.0))
    }
}

/// The map of a matrix of `n` rows and columns, as SVG.
pub(crate) fn draw(title: &str, n: usize, cells: &[Cell], show: impl Fn(f64) -> String) -> Markup {
    let side = |room: f64, each: f64| room + each * n as f64;
    let (width, rows) = (side(HEAD.0, CELL.0).max(200.0), side(HEAD.1, CELL.1));
    let range = Range::of(cells);
    let described: Vec<&str> = cells.iter().map(|cell| cell.text.as_str()).collect();
    html! {
        svg class="plot bars" viewBox=(format!("0 0 {width} {:.1}", rows + SCALE)) role="img" tabindex="0"
            style=(format!("max-width:{:.0}px", width * 1.3))
            aria-label=(format!("{title}. {}", described.join("; "))) data-points=(cells.len()) {
            @for number in 0..n {
                text class="axis" text-anchor="middle" x=(at(HEAD.0 + CELL.0 * (number as f64 + 0.5))) y="15" { (number) }
                text class="axis" text-anchor="end" x=(at(HEAD.0 - 8.0)) y=(at(HEAD.1 + CELL.1 * (number as f64 + 0.5) + 4.0)) { (number) }
            }
            @for cell in cells { (cell_of(cell, range.as_ref(), &show)) }
            @if let Some(range) = &range { (scale(range, rows + 12.0, &show)) }
        }
    }
}

fn cell_of(cell: &Cell, range: Option<&Range>, show: impl Fn(f64) -> String) -> Markup {
    let (row, column) = cell.place;
    let x = HEAD.0 + CELL.0 * column as f64;
    let y = HEAD.1 + CELL.1 * row as f64;
    let value = cell.value.zip(range);
    let opacity = value.map_or_else(|| "0".to_owned(), |(value, range)| range.opacity(value));
    let shown = cell.value.map_or_else(|| "failed".to_owned(), show);
    let class = if cell.is_marked {
        "heat marked"
    } else {
        "heat"
    };
    html! {
        g class="pt" data-y=[cell.value] {
            title { (cell.text) }
            rect class=(class) fill-opacity=(opacity) x=(at(x + 1.0)) y=(at(y + 1.0)) width=(at(CELL.0 - 2.0)) height=(at(CELL.1 - 2.0)) {}
            text class="name" text-anchor="middle" x=(at(x + CELL.0 / 2.0)) y=(at(y + CELL.1 / 2.0 + 4.0)) { (shown) }
        }
    }
}

/// The colours from the lowest to the highest value.
fn scale(range: &Range, top: f64, show: impl Fn(f64) -> String) -> Markup {
    let step = 8.0;
    let left = HEAD.0 + CELL.0;
    let value = |n: usize| range.low + (range.high - range.low) * n as f64 / (STEPS - 1) as f64;
    html! {
        text text-anchor="end" x=(at(left - 8.0)) y=(at(top + 10.0)) { (show(range.low)) }
        @if range.high > range.low {
            @for n in 0..STEPS {
                rect class="heat" fill-opacity=(range.opacity(value(n))) x=(at(left + step * n as f64)) y=(at(top)) width=(at(step)) height="12" {}
            }
            text x=(at(left + step * STEPS as f64 + 8.0)) y=(at(top + 10.0)) { (show(range.high)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_has_its_value_and_a_colour_within_the_scale() {
        let cell = |place, value, is_marked| Cell {
            place,
            value,
            text: format!("{place:?}"),
            is_marked,
        };
        let cells = [
            cell((0, 1), Some(1.0), false),
            cell((1, 0), Some(3.0), true),
            cell((1, 1), None, true),
        ];
        let svg = draw("t", 2, &cells, |v| format!("{v} ns")).into_string();
        assert_eq!(svg.matches("class=\"pt\"").count(), 3);
        assert!(svg.contains("data-points=\"3\""), "{svg}");
        for part in [
            ">1 ns<",
            ">3 ns<",
            ">failed<",
            "heat marked\" fill-opacity=\"0.60\"",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let alike = [cell((0, 1), Some(2.0), false)];
        assert!(
            !draw("t", 2, &alike, |v| v.to_string())
                .into_string()
                .contains("NaN")
        );
    }
}
