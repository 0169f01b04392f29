//! Draws a ranking: horizontal bars from zero, with the name above and the value after each. Published values of
//! the same are crosses on the bars, with their intervals; their sources are below. A bar may consist of parts, whose
//! names are below.

use maud::{Markup, html};

use super::mark::{at, shape};
use crate::cells::Quantity;
use crate::figure::{Bar, Extent, Point, look};

const WIDTH: f64 = 440.0;
const ROW: f64 = 34.0;
const BAR: f64 = 12.0;
/// Room after the longest bar for its value.
const VALUE: f64 = 78.0;
/// The same if a published value follows it.
const VALUES: f64 = 180.0;
/// Height of a line of text.
const LINE: f64 = 16.0;

/// Maps values to places.
struct Scale {
    longest: f64,
    width: f64,
}

impl Scale {
    fn of(bars: &[Bar]) -> Self {
        let marks = bars.iter().flat_map(|bar| &bar.published);
        let ends = bars.iter().map(|bar| bar.value.high);
        let ends = ends.chain(marks.clone().map(|mark| mark.value.high));
        let values = if marks.count() > 0 { VALUES } else { VALUE };
        Scale {
            longest: ends.fold(f64::MIN_POSITIVE, f64::max),
            width: WIDTH - values,
        }
    }

    fn place(&self, value: f64) -> f64 {
        (value / self.longest).clamp(0.0, 1.0) * self.width
    }

    /// Returns the ends of a range; `None` if it is too narrow to be seen.
    fn range(&self, of: &Point) -> Option<(f64, f64)> {
        let (low, high) = (self.place(of.low), self.place(of.high));
        (high - low > 2.0).then_some((low, high))
    }
}

/// The bars as SVG.
pub(crate) fn draw(title: &str, quantity: Quantity, bars: &[Bar]) -> Markup {
    let scale = Scale::of(bars);
    let sources = sources(bars);
    let rows = ROW * bars.len() as f64 + 6.0;
    let parts: Vec<&str> = bars.first().map_or_else(Vec::new, |bar| {
        bar.parts.iter().map(|(name, _)| *name).collect()
    });
    let height = rows + LINE * (sources.len() + parts.len()) as f64;
    let marks: usize = bars.iter().map(|bar| bar.published.len()).sum();
    html! {
        svg class="plot bars" viewBox=(format!("0 0 {WIDTH} {height}")) role="img" tabindex="0"
            aria-label=(description(title, quantity, bars)) data-points=(bars.len() + marks) {
            @for (row, bar) in bars.iter().enumerate() { (row_of(bar, ROW * row as f64 + 16.0, quantity, &scale)) }
            @for (line, source) in sources.iter().enumerate() {
                @let base = rows + LINE * (line as f64 + 0.7);
                g transform=(format!("translate(5,{:.1})", base - 4.0)) { (shape(look(bars[0].style))) }
                text x="14" y=(at(base)) { "published: " (source) }
            }
            @for (color, name) in parts.iter().enumerate() {
                @let base = rows + LINE * ((sources.len() + color) as f64 + 0.7);
                rect class={ "bar c" (color % 8) } x="0" y=(at(base - 9.0)) width="10" height="10" {}
                text x="14" y=(at(base)) { (name) }
            }
        }
    }
}

fn row_of(bar: &Bar, top: f64, quantity: Quantity, scale: &Scale) -> Markup {
    let middle = top + BAR / 2.0;
    let end = bar.published.iter().map(|mark| mark.value.high);
    let end = end.fold(bar.value.high, f64::max);
    html! {
        text class="name" x="0" y=(at(top - 4.0)) { (bar.name) }
        g class="pt" data-y=(bar.value.y) {
            title { (bar.value.text) @for (name, value) in &bar.parts { ", " (name) " " (quantity.show(*value)) } }
            @if bar.parts.is_empty() {
                rect class={ "bar c" (bar.style.color % 8) } x="0" y=(at(top)) width=(at(scale.place(bar.value.y).max(1.0))) height=(at(BAR)) {}
            }
            @for (color, left, right) in places(bar, scale) {
                rect class={ "bar c" (color % 8) } x=(at(left)) y=(at(top)) width=(at(right - left)) height=(at(BAR)) {}
            }
        }
        @if let Some((low, high)) = scale.range(&bar.value) {
            path class="whisker" d=(ends(low, high, middle)) {}
        }
        @for mark in &bar.published {
            @if let Some((low, high)) = scale.range(&mark.value) {
                path class="whisker" d=(ends(low, high, middle)) {}
            }
            g class="pt" data-y=(mark.value.y) transform=(format!("translate({:.1},{middle:.1})", scale.place(mark.value.y))) {
                title { (bar.name) ", " (mark.value.text) ", " (mark.source) }
                // Bounds have ends, and no middle.
                @if mark.value.extent == Extent::Value { (shape(look(bar.style))) }
            }
        }
        text class="value" x=(at(scale.place(end).max(1.0) + 7.0)) y=(at(top + 10.0)) {
            (quantity.show(bar.value.y))
            @for mark in bar.published.iter().filter(|mark| mark.value.extent == Extent::Value) {
                tspan class="other" { ", published " (quantity.show(mark.value.y)) }
            }
        }
    }
}

/// Returns the color and the ends of each part of a bar.
fn places(bar: &Bar, scale: &Scale) -> Vec<(usize, f64, f64)> {
    let mut begin = 0.0;
    let part = |(color, (_, value)): (usize, &(&str, f64))| {
        let left = scale.place(begin);
        begin += value;
        (color, left, scale.place(begin))
    };
    bar.parts.iter().enumerate().map(part).collect()
}

/// A line from one place to another, with a stroke across at each.
fn ends(low: f64, high: f64, middle: f64) -> String {
    let top = middle - 3.0;
    format!("M{low:.1} {middle:.1}H{high:.1}M{low:.1} {top:.1}v6M{high:.1} {top:.1}v6")
}

/// Where the published values come from, each source once.
fn sources(bars: &[Bar]) -> Vec<&str> {
    let mut sources: Vec<&str> = Vec::new();
    for mark in bars.iter().flat_map(|bar| &bar.published) {
        if !sources.contains(&mark.source.as_str()) {
            sources.push(&mark.source);
        }
    }
    sources
}

fn description(title: &str, quantity: Quantity, bars: &[Bar]) -> String {
    let row = |bar: &Bar| {
        let marks = bar.published.iter();
        let marks = marks.map(|mark| format!(" (published: {})", quantity.show(mark.value.y)));
        let marks: String = marks.collect();
        let parts = bar.parts.iter();
        let parts = parts.map(|(name, value)| format!(", {name} {}", quantity.show(*value)));
        let parts: String = parts.collect();
        format!("{}: {}{parts}{marks}", bar.name, quantity.show(bar.value.y))
    };
    let rows: Vec<String> = bars.iter().map(row).collect();
    format!("{title}. {}", rows.join("; "))
}
