//! A panel of lines over an axis.

use maud::{Markup, html};

use super::mark::{at, classes, shape};
use super::scale::{Form, Scale};
use crate::cells::Quantity;
use crate::figure::{Extent, Lines, Origin, Panel, Point, Series, X};

const WIDTH: f64 = 440.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 362.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 240.0;
const BOTTOM_FLAT: f64 = 130.0;
/// Room below the horizontal axis.
const BELOW: f64 = 44.0;

/// Height of a line of direct labels.
const LABEL_HEIGHT: f64 = 12.0;
/// Largest distance of a direct label from its line's end.
const LABEL_SHIFT: f64 = 14.0;
/// Characters of a direct label that fit next to the plot; the legend has longer names.
const MOST_LABEL_CHARS: usize = 12;
/// Ends nearer to each other than this look like one.
const SAME_PLACE: f64 = 2.5;
/// An error bar shorter than this would hide behind its marker.
const SHORTEST_BAR: f64 = 3.0;

/// The range of values that panels share.
pub(crate) struct Bounds {
    xs: Vec<f64>,
    ys: Vec<f64>,
}

impl Bounds {
    pub(crate) fn of(series: &[&Series]) -> Self {
        let (mut xs, mut ys) = (Vec::new(), Vec::new());
        for point in series.iter().flat_map(|s| &s.points) {
            xs.push(point.x);
            ys.extend([point.low, point.high]);
        }
        Bounds { xs, ys }
    }
}

struct Axes {
    x: Scale,
    y: Scale,
    /// Place of the horizontal axis.
    bottom: f64,
}

impl Axes {
    fn of(lines: &Lines, bounds: &Bounds) -> Self {
        let form = form(lines);
        // CPU is a flat line more often than not.
        let bottom = match form {
            Form::Percent => BOTTOM_FLAT,
            Form::Linear | Form::Decades => BOTTOM,
        };
        let (xs, ys) = (bounds.xs.iter().copied(), bounds.ys.iter().copied());
        Axes {
            x: Scale::horizontal(lines.x, xs, (LEFT + 6.0, RIGHT - 4.0)),
            y: Scale::vertical(lines.y, form, ys, (bottom, TOP)),
            bottom,
        }
    }
}

/// The form of the vertical axis.
pub(crate) fn form(lines: &Lines) -> Form {
    match (lines.x, lines.y) {
        (_, Quantity::CpuActive | Quantity::CpuPassive) => Form::Percent,
        (X::Buffers, Quantity::MessageRate | Quantity::Throughput | Quantity::Megabits)
        | (_, Quantity::Ratio) => Form::Linear,
        _ => Form::Decades,
    }
}

/// The panel as SVG.
pub(crate) fn draw(id: &str, panel: &Panel, lines: &Lines, bounds: &Bounds) -> Markup {
    let Lines { y, series, .. } = lines;
    let x_name = lines.x_name.as_deref().unwrap_or(x_name(lines.x));
    let axes = Axes::of(lines, bounds);
    let height = axes.bottom + BELOW;
    let points: usize = series.iter().map(|s| s.points.len()).sum();
    let names: Vec<&str> = series.iter().map(|s| s.name.as_str()).collect();
    html! {
        svg class="plot" viewBox=(format!("0 0 {WIDTH} {height}")) role="img" tabindex="0"
            aria-labelledby={ (id) "-t " (id) "-d" } data-points=(points) {
            title id={ (id) "-t" } { (panel.full_title()) }
            desc id={ (id) "-d" } {
                (y.name()) " over " (x_name) ", " (points) " points of: " (names.join("; "))
                ". Arrow keys walk through the points; the table at the end has all values."
            }
            (grid(&axes))
            text class="axis" x=(at(f64::midpoint(LEFT, RIGHT))) y=(at(height - 8.0)) text-anchor="middle" { (x_name) }
            @for s in series { (line(s, panel, &axes)) }
            (direct_labels(series, &axes))
        }
    }
}

fn x_name(axis: X) -> &'static str {
    match axis {
        X::Size => "message size (bytes)",
        X::Buffers => "buffers",
        X::Loss => "share of packets lost",
        X::Queue => "packets that the path queues",
        X::Percentile => "percentile of messages",
        X::Parameter(_) | X::Bars => "value",
        X::Time => "time",
        X::Count => "number",
        X::Share => "share",
        X::Rate => "rate",
    }
}

fn grid(axes: &Axes) -> Markup {
    let bottom = axes.bottom;
    html! {
        g class="grid" {
            @for tick in axes.y.ticks() {
                @let y = at(tick.at);
                @match tick.text {
                    Some(text) => {
                        path class="major" d=(format!("M{LEFT} {y}H{RIGHT}")) {}
                        text x=(LEFT - 6.0) y=(at(tick.at + 4.0)) text-anchor="end" { (text) }
                    }
                    None => { path class="minor" d=(format!("M{LEFT} {y}h3")) {} }
                }
            }
            @for tick in axes.x.ticks() {
                @let x = at(tick.at);
                @match tick.text {
                    Some(text) => {
                        path class="major" d=(format!("M{x} {TOP}V{bottom}")) {}
                        text x=(x) y=(at(bottom + 17.0)) text-anchor="middle" { (text) }
                    }
                    None => { path class="minor" d=(format!("M{x} {bottom}v-3")) {} }
                }
            }
            path class="frame" d=(format!("M{LEFT} {TOP}V{bottom}H{RIGHT}")) {}
        }
    }
}

fn line(series: &Series, panel: &Panel, axes: &Axes) -> Markup {
    let place = |p: &Point| (axes.x.place(p.x), axes.y.place(p.y));
    let corners: Vec<String> = series
        .points
        .iter()
        .map(|p| {
            let (x, y) = place(p);
            format!("{x:.1} {y:.1}")
        })
        .collect();
    let bars: String = series
        .points
        .iter()
        .filter_map(|p| error_bar(p, axes))
        .collect();
    html! {
        g class="series" data-series=(series.name) {
            @if corners.len() > 1 && series.origin == Origin::Records {
                path class={ "line " (classes(series.style)) } d={ "M" (corners.join("L")) } {}
            }
            @if !bars.is_empty() {
                path class={ "spread c" (series.style.color % 8) } d=(bars) {}
            }
            @for p in &series.points {
                @let (x, y) = place(p);
                g class="pt" data-x=(p.x) data-y=(p.y) transform=(format!("translate({x:.1},{y:.1})")) {
                    title { (panel.named(&series.name)) ", " (p.text) }
                    // Bounds have ends, drawn as a bar, and no middle.
                    @if p.extent == Extent::Value { (shape(series.style)) }
                }
            }
        }
    }
}

fn error_bar(point: &Point, axes: &Axes) -> Option<String> {
    let (x, low, high) = (
        axes.x.place(point.x),
        axes.y.place(point.low),
        axes.y.place(point.high),
    );
    let tall = (low - high).abs() > SHORTEST_BAR;
    tall.then(|| {
        format!(
            "M{x:.1} {low:.1}V{high:.1}M{0:.1} {low:.1}h5M{0:.1} {high:.1}h5",
            x - 2.5
        )
    })
}

/// Names at the lines' ends, each once, if there is room near enough.
fn direct_labels(series: &[Series], axes: &Axes) -> Markup {
    let mut wanted: Vec<(f64, &Series)> = Vec::new();
    for s in series {
        let Some(last) = s.points.last().filter(|p| axes.x.place(p.x) > RIGHT - 24.0) else {
            continue;
        };
        let fits = (1..=MOST_LABEL_CHARS).contains(&s.short.chars().count());
        if fits && !wanted.iter().any(|(_, other)| other.short == s.short) {
            wanted.push((axes.y.place(last.y), s));
        }
    }
    // Where lines end in one place, a name at one of them would deny the others: the legend serves.
    let ends: Vec<f64> = wanted.iter().map(|(y, _)| *y).collect();
    wanted.retain(|(y, _)| {
        ends.iter()
            .filter(|end| (*end - y).abs() < SAME_PLACE)
            .count()
            == 1
    });
    wanted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut placed: Vec<(f64, &Series)> = Vec::new();
    for (y, s) in wanted {
        let free = placed
            .last()
            .map_or(y, |(above, _)| y.max(above + LABEL_HEIGHT));
        if free - y <= LABEL_SHIFT && free <= axes.bottom + 4.0 {
            placed.push((free, s));
        }
    }
    html! {
        g class="labels" {
            @for (y, s) in placed {
                text class={ "c" (s.style.color % 8) } data-series=(s.name) x=(at(RIGHT + 4.0)) y=(at(y + 4.0)) { (s.short) }
            }
        }
    }
}
