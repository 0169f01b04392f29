//! Agreement of predictions with published values: each row's ratio, with the interval that contains the
//! published value, in groups, as one SVG file that needs no other.
//!
//! Callers do the comparison. This module computes only the places of the rows, and labels the rows that are
//! farthest from their intervals.

use maud::{Markup, html};

use crate::figure::Style;
use crate::plot::mark::{at, shape};
use crate::plot::scale::Scale;
use crate::sheet::Sheet;

/// Rows in groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// What is shown.
    pub title: String,
    /// What else a reader must know, in a line.
    pub note: String,
    /// From left to right.
    pub groups: Vec<Group>,
}

/// Rows that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Written below them.
    pub name: String,
    /// From left to right.
    pub rows: Vec<Row>,
}

/// One prediction; figures are over the published value, above 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Written next to it if it is among the worst.
    pub name: String,
    /// Seen on hovering.
    pub text: String,
    /// The lower end of the published interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The prediction.
    pub predicted: f64,
    /// Whether parameters were fitted to it.
    pub basis: Basis,
    /// What was published.
    pub published: Published,
}

/// What was published of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// A value, with the interval that contains it.
    Value,
    /// Bounds alone, or an ordering: the row is drawn over the middle of them.
    Bounds,
}

/// What a row says of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Parameters were chosen so that it agrees.
    Fitted,
    /// Nothing was.
    Predicted,
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 944.0;
const LEGEND: f64 = Sheet::TOP + 4.0;
const TOP: f64 = LEGEND + 18.0;
const BOTTOM: f64 = TOP + 330.0;
/// Room for the groups' names, which lean.
const BELOW: f64 = 112.0;
/// Rows that a group has room for at least: its name needs that.
const NARROWEST: usize = 3;
/// Rows that are named, the worst first.
const NAMED: usize = 10;
/// Markers.
const CIRCLE: u8 = 0;
const DIAMOND: u8 = 3;
/// Width of a letter, height of a line.
const LETTER: (f64, f64) = (6.2, 12.0);

const STYLE: &str = "
.mark { stroke-width: 1.3; } .mark.c0 { stroke: var(--c0); } .mark.c1 { stroke: var(--c1); } .mark.hollow { fill: var(--paper); }
.interval { fill: none; stroke: var(--soft); stroke-opacity: .45; stroke-width: 3; } .grid .one { stroke: var(--soft); stroke-opacity: .8; }
.worst { fill: var(--ink); font-size: 10.5px; paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
";

/// A row with its place.
struct Placed<'r> {
    row: &'r Row,
    x: f64,
}

/// A group with its place.
struct Span<'r> {
    name: &'r str,
    from: f64,
    to: f64,
}

impl Row {
    /// Returns the interval's end that the prediction exceeds; `None` if it is inside.
    fn beyond(&self) -> Option<f64> {
        let is_inside = (self.low..=self.high).contains(&self.predicted);
        (!is_inside).then(|| self.predicted.clamp(self.low, self.high))
    }

    /// Returns the distance of the prediction from the interval, as a factor's logarithm.
    fn error(&self) -> f64 {
        self.beyond()
            .map_or(0.0, |end| (self.predicted / end).ln().abs())
    }

    fn style(&self) -> Style {
        Style {
            color: u8::from(self.beyond().is_some()),
            marker: match self.published {
                Published::Value => CIRCLE,
                Published::Bounds => DIAMOND,
            },
            dash: 0,
            hollow: self.basis == Basis::Fitted,
        }
    }
}

impl Agreement {
    /// One SVG file, for light and dark paper.
    pub fn svg(&self) -> String {
        let (spans, rows) = self.placed();
        let figures = rows.iter().flat_map(|placed| {
            let row = placed.row;
            [row.low, row.high, row.predicted]
        });
        let scale = Scale::ratio(figures, (BOTTOM, TOP));
        let sheet = Sheet {
            title: &self.title,
            note: &self.note,
            size: (WIDTH, BOTTOM + BELOW),
            style: STYLE,
        };
        sheet.svg(&html! {
            (legend())
            (grid(&scale, &spans))
            @for placed in &rows { (interval(placed, &scale)) }
            @for placed in &rows { (mark(placed, &scale)) }
            (names_of_worst(&rows, &scale))
        })
    }

    /// Groups and rows from left to right, with equal room for each row.
    fn placed(&self) -> (Vec<Span<'_>>, Vec<Placed<'_>>) {
        let room = |group: &Group| group.rows.len().max(NARROWEST) + 1;
        let all: usize = self.groups.iter().map(room).sum();
        let step = (RIGHT - LEFT) / all.max(1) as f64;
        let (mut spans, mut rows) = (Vec::new(), Vec::new());
        let mut from = LEFT;
        for group in &self.groups {
            let to = from + room(group) as f64 * step;
            let middle = f64::midpoint(from, to);
            let first = middle - step * (group.rows.len() as f64 - 1.0) / 2.0;
            rows.extend(group.rows.iter().enumerate().map(|(n, row)| Placed {
                row,
                x: first + n as f64 * step,
            }));
            spans.push(Span {
                name: &group.name,
                from,
                to,
            });
            from = to;
        }
        (spans, rows)
    }
}

fn grid(scale: &Scale, spans: &[Span<'_>]) -> Markup {
    html! {
        g class="grid" {
            @for tick in scale.ticks() {
                @let y = at(tick.at);
                @match tick.text {
                    Some(text) => {
                        path d=(format!("M{LEFT} {y}H{RIGHT}")) {}
                        text x=(LEFT - 6.0) y=(at(tick.at + 4.0)) text-anchor="end" { (text) }
                    }
                    None => { path class="frame" d=(format!("M{LEFT} {y}h3")) {} }
                }
            }
            @for span in spans {
                path d=(format!("M{:.1} {TOP}V{BOTTOM}", span.to)) {}
                @let middle = f64::midpoint(span.from, span.to) + 4.0;
                text class="name" text-anchor="end"
                    transform=(format!("translate({middle:.1},{:.1}) rotate(-52)", BOTTOM + 12.0)) { (span.name) }
            }
            path class="one" d=(format!("M{LEFT} {:.1}H{RIGHT}", scale.place(1.0))) {}
            path class="frame" d=(format!("M{LEFT} {TOP}V{BOTTOM}H{RIGHT}")) {}
        }
        text class="name" text-anchor="middle"
            transform=(format!("translate(14,{:.1}) rotate(-90)", f64::midpoint(TOP, BOTTOM))) { "predicted / published" }
    }
}

fn interval(Placed { row, x }: &Placed<'_>, scale: &Scale) -> Markup {
    // An interval of no height is seen all the same.
    let (low, high) = (scale.place(row.low) + 0.5, scale.place(row.high) - 0.5);
    html! { path class="interval" d=(format!("M{x:.1} {low:.1}V{high:.1}")) {} }
}

fn mark(Placed { row, x }: &Placed<'_>, scale: &Scale) -> Markup {
    html! {
        g class="pt" transform=(format!("translate({x:.1},{:.1})", scale.place(row.predicted))) {
            title { (row.text) }
            (shape(row.style()))
        }
    }
}

/// What marks and bands are, in a line above the plot.
fn legend() -> Markup {
    let style = |color, marker, hollow| Style {
        color,
        marker,
        dash: 0,
        hollow,
    };
    let entries = [
        (style(0, CIRCLE, false), "inside the published interval"),
        (style(1, CIRCLE, false), "outside"),
        (
            style(0, CIRCLE, true),
            "hollow: parameters were fitted to it",
        ),
        (style(0, DIAMOND, false), "only bounds were published"),
    ];
    let starts = [6.0, 196.0, 272.0, 494.0].map(|x| LEFT + x);
    let band = LEFT + 676.0;
    html! {
        g class="legend" {
            @for ((style, words), x) in entries.into_iter().zip(starts) {
                g transform=(format!("translate({x},{LEGEND})")) { (shape(style)) }
                text x=(x + 8.0) y=(LEGEND + 4.0) { (words) }
            }
            path class="interval" d=(format!("M{band} {}V{}", LEGEND - 7.0, LEGEND + 7.0)) {}
            text x=(band + 8.0) y=(LEGEND + 4.0) { "published interval" }
        }
    }
}

/// A name's place: its left end and its base line.
#[derive(Clone, Copy)]
struct Spot {
    x: f64,
    y: f64,
    width: f64,
}

impl Spot {
    fn is_free(&self, taken: &[Spot]) -> bool {
        let is_aside =
            |other: &Spot| self.x > other.x + other.width || other.x > self.x + self.width;
        let is_on_paper = self.x > LEFT && self.x + self.width < WIDTH - 4.0;
        let above = |other: &Spot| (self.y - other.y).abs() >= LETTER.1;
        is_on_paper && self.y > TOP && taken.iter().all(|other| is_aside(other) || above(other))
    }
}

/// The names of the rows that are farthest outside, each where it has room.
fn names_of_worst(rows: &[Placed<'_>], scale: &Scale) -> Markup {
    let mut worst: Vec<&Placed<'_>> = rows.iter().filter(|p| p.row.beyond().is_some()).collect();
    worst.sort_by(|a, b| b.row.error().total_cmp(&a.row.error()));
    let mut taken: Vec<Spot> = Vec::new();
    let mut names: Vec<(Spot, String)> = Vec::new();
    for Placed { row, x } in worst.into_iter().take(NAMED) {
        let name = match scale.holds(row.predicted) {
            true => row.name.clone(),
            // It is drawn at the edge.
            false => format!("{} (at {:.2})", row.name, row.predicted),
        };
        let (width, y) = (
            name.chars().count() as f64 * LETTER.0,
            scale.place(row.predicted),
        );
        let spots = [
            (6.0, 4.0),
            (-6.0 - width, 4.0),
            (-width / 2.0, -8.0),
            (-width / 2.0, 16.0),
        ];
        let spots = spots.map(|(dx, dy)| Spot {
            x: x + dx,
            y: y + dy,
            width,
        });
        if let Some(spot) = spots.into_iter().find(|spot| spot.is_free(&taken)) {
            taken.push(spot);
            names.push((spot, name));
        }
    }
    html! {
        @for (spot, name) in names { text class="worst" x=(at(spot.x)) y=(at(spot.y)) { (name) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, predicted: f64) -> Row {
        Row {
            name: name.to_owned(),
            text: format!("{name} <of a paper>"),
            low: 0.9,
            high: 1.1,
            predicted,
            basis: Basis::Predicted,
            published: Published::Value,
        }
    }

    fn agreement(rows: Vec<Row>) -> Agreement {
        let group = |name: &str, rows| Group {
            name: name.to_owned(),
            rows,
        };
        Agreement {
            title: "predicted & published".to_owned(),
            note: "all of it".to_owned(),
            groups: vec![group("ping", rows), group("blast", vec![row("OTHER", 1.0)])],
        }
    }

    #[test]
    fn each_row_is_a_mark_with_its_interval_and_says_what_it_is() {
        let svg = agreement(vec![row("A", 1.05), row("B", 1.2)]).svg();
        assert_eq!(svg.matches("class=\"pt\"").count(), 3);
        // One in the legend.
        assert_eq!(svg.matches("class=\"interval\"").count(), 4);
        assert!(svg.contains("<title>A &lt;of a paper&gt;</title>"), "{svg}");
        assert!(svg.contains("predicted &amp; published"), "{svg}");
        assert!(svg.contains(">ping</text>") && svg.contains(">blast</text>"));
    }

    #[test]
    fn rows_outside_are_named_and_those_inside_are_not() {
        let svg = agreement(vec![row("INSIDE", 1.05), row("OUTSIDE", 1.2)]).svg();
        let names: Vec<&str> = svg.split("class=\"worst\"").skip(1).collect();
        assert_eq!(names.len(), 1, "{svg}");
        assert!(names[0].contains(">OUTSIDE</text>"), "{}", names[0]);
    }

    #[test]
    fn a_prediction_beyond_the_axis_stands_at_its_edge_with_its_figure() {
        let svg = agreement(vec![row("FAR", 1e9)]).svg();
        assert!(svg.contains(">FAR (at 1000000000.00)</text>"), "{svg}");
        assert!(svg.contains(&format!(",{TOP:.1})\"><title>FAR")), "{svg}");
    }

    #[test]
    fn names_do_not_lie_on_each_other() {
        let rows = (0..40).map(|n| row(&format!("ROW-{n}"), 1.5)).collect();
        let svg = agreement(rows).svg();
        let spots: Vec<(f64, f64)> = svg
            .split("class=\"worst\" ")
            .skip(1)
            .map(|text| {
                let figures: Vec<&str> = text.split('"').collect();
                (figures[1].parse().unwrap(), figures[3].parse().unwrap())
            })
            .collect();
        assert!(spots.len() > 1);
        for (n, one) in spots.iter().enumerate() {
            for other in &spots[n + 1..] {
                let apart = (one.0 - other.0).abs() > 5.0 * LETTER.0;
                assert!(
                    apart || (one.1 - other.1).abs() >= LETTER.1,
                    "{one:?} {other:?}"
                );
            }
        }
    }

    #[test]
    fn an_empty_plot_is_drawn() {
        let empty = Agreement {
            groups: Vec::new(),
            ..agreement(Vec::new())
        };
        assert!(empty.svg().ends_with("</svg>"));
    }
}
