//! Timelines: bars in lanes over time, as one SVG file that needs no other.
//!
//! Input is what a caller has traced; nothing is computed here but places.

use maud::{Markup, html};

use crate::format;
use crate::plot::scale::{round_step, whole};
use crate::sheet::Sheet;

/// A timeline: bars in lanes over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Title of the picture.
    pub title: String,
    /// One line below the title.
    pub note: String,
    /// The lanes from top to bottom.
    pub lanes: Vec<Lane>,
    /// Length of the time axis, in nanoseconds.
    pub span_ns: f64,
    /// The bars, in the order of their beginnings.
    pub bars: Vec<Bar>,
}

/// A lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Label to the left of the lane.
    pub name: String,
    /// One of the plots' eight colours.
    pub color: u8,
}

/// A bar in a lane.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Index of its lane.
    pub lane: usize,
    /// Begin, in nanoseconds.
    pub begin_ns: f64,
    /// End, in nanoseconds.
    pub end_ns: f64,
    /// Text on the bar, and its tooltip.
    pub text: String,
    /// How it is drawn.
    pub weight: Weight,
}

/// Whether the measured time depends on a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It is on the critical path.
    Path,
    /// It runs in parallel.
    Parallel,
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 120.0;
const RIGHT: f64 = 944.0;
const TOP: f64 = Sheet::TOP;
const LANE: f64 = 30.0;
const BAR: f64 = 18.0;
const THIN: f64 = 8.0;
/// Room below the lanes.
const BELOW: f64 = 36.0;
/// Maximum number of ticks.
const TICKS: f64 = 8.0;
/// Minimum width of a bar with text.
const NARROWEST: f64 = 34.0;
/// Width of a letter.
const LETTER: f64 = 6.1;

/// Style in addition to the plots' own.
const STYLE: &str = "
.bar { fill-opacity: .85; } .parallel { fill-opacity: .28; } .words { fill: var(--paper); font-size: 10.5px; pointer-events: none; }
.handover { fill: none; stroke: var(--soft); stroke-width: 1; stroke-opacity: .7; }
";

impl Timeline {
    /// One SVG file, for light and dark paper.
    pub fn svg(&self) -> String {
        let bottom = TOP + LANE * self.lanes.len() as f64;
        let height = bottom + BELOW;
        let sheet = Sheet {
            title: &self.title,
            note: &self.note,
            size: (WIDTH, height),
            style: STYLE,
        };
        sheet.svg(&html! {
            (self.grid(bottom))
            // What runs in parallel must not hide the path.
            @for weight in [Weight::Parallel, Weight::Path] {
                @for bar in self.bars.iter().filter(|bar| bar.weight == weight) { (self.bar(bar)) }
            }
            (self.handovers())
        })
    }

    fn place(&self, ns: f64) -> f64 {
        let share = ns / self.span_ns.max(f64::MIN_POSITIVE);
        LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn middle(lane: usize) -> f64 {
        TOP + LANE * (lane as f64 + 0.5)
    }

    fn grid(&self, bottom: f64) -> Markup {
        let step = round_step((self.span_ns / TICKS).max(1e-3));
        let ticks = (self.span_ns / step) as usize;
        html! {
            g class="grid" {
                @for tick in 0..=ticks {
                    @let ns = tick as f64 * step;
                    @let x = format!("{:.1}", self.place(ns));
                    path d=(format!("M{x} {TOP}V{bottom}")) {}
                    text x=(x) y=(bottom + 16.0) text-anchor="middle" {
                        @if tick == 0 { "0" } @else { (whole(&format::time(ns))) }
                    }
                }
                @for (index, lane) in self.lanes.iter().enumerate() {
                    text class="name" x=(LEFT - 8.0) y=(Self::middle(index) + 4.0) text-anchor="end" { (lane.name) }
                }
                path class="frame" d=(format!("M{LEFT} {TOP}V{bottom}H{RIGHT}")) {}
            }
        }
    }

    fn bar(&self, bar: &Bar) -> Markup {
        let (begin, end) = (self.place(bar.begin_ns), self.place(bar.end_ns));
        let width = (end - begin).max(1.0);
        let (class, tall) = match bar.weight {
            Weight::Path => ("bar", BAR),
            Weight::Parallel => ("parallel", THIN),
        };
        let color = self.lanes.get(bar.lane).map_or(0, |lane| lane.color % 8);
        let top = Self::middle(bar.lane) - tall / 2.0;
        // The text of a bar begins with the name of its lane, which is already in front of the lane.
        let lane = self.lanes.get(bar.lane).map_or("", |lane| &lane.name);
        let words = bar.text.strip_prefix(lane).unwrap_or(&bar.text).trim();
        let words = words.split(": ").next().unwrap_or_default();
        let room = ((width - 8.0) / LETTER) as usize;
        let fits = bar.weight == Weight::Path && width > NARROWEST && words.len() <= room;
        html! {
            g {
                title { (bar.text) }
                rect class={ (class) " c" (color) } x=(format!("{begin:.1}")) y=(top)
                    width=(format!("{width:.1}")) height=(tall) rx="1.5" {}
                @if fits {
                    text class="words" x=(format!("{:.1}", f64::midpoint(begin, end)))
                        y=(Self::middle(bar.lane) + 3.6) text-anchor="middle" { (words) }
                }
            }
        }
    }

    /// Where the path goes from one lane to another.
    fn handovers(&self) -> Markup {
        let path: Vec<&Bar> = self
            .bars
            .iter()
            .filter(|bar| bar.weight == Weight::Path)
            .collect();
        let between = path.windows(2).filter(|pair| pair[0].lane != pair[1].lane);
        html! {
            @for pair in between {
                @let x = format!("{:.1}", self.place(pair[1].begin_ns));
                @let (from, to) = (Self::middle(pair[0].lane), Self::middle(pair[1].lane));
                @let reach = (BAR / 2.0).copysign(to - from);
                path class="handover" d=(format!("M{x} {:.1}V{:.1}", from + reach, to - reach)) {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline() -> Timeline {
        let lane = |name: &str, color| Lane {
            name: name.to_owned(),
            color,
        };
        let bar = |lane, begin_ns, end_ns, weight| Bar {
            lane,
            begin_ns,
            end_ns,
            text: "client CPU build <WQE>: 50 ns".to_owned(),
            weight,
        };
        Timeline {
            title: "one & two".to_owned(),
            note: "all of it".to_owned(),
            lanes: vec![lane("client CPU", 0), lane("wire", 4)],
            span_ns: 100.0,
            bars: vec![
                bar(0, 0.0, 50.0, Weight::Path),
                bar(1, 50.0, 100.0, Weight::Path),
                bar(0, 60.0, 250.0, Weight::Parallel),
            ],
        }
    }

    #[test]
    fn bars_lie_where_their_times_are() {
        let svg = timeline().svg();
        assert!(svg.contains("one &amp; two"), "{svg}");
        // 0 to 50 of 100 ns is the first half of 120..944.
        assert!(svg.contains(r#"x="120.0" y="64" width="412.0""#), "{svg}");
        // Bars beyond the end are cut there: 60 to 100 ns.
        assert!(svg.contains(r#"x="614.4" y="69" width="329.6""#), "{svg}");
        assert_eq!(svg.matches("class=\"handover\"").count(), 1);
        assert_eq!(svg, timeline().svg());
    }

    #[test]
    fn an_empty_timeline_is_a_picture() {
        let empty = Timeline {
            bars: Vec::new(),
            span_ns: 0.0,
            ..timeline()
        };
        assert!(empty.svg().ends_with("</svg>"));
    }
}
