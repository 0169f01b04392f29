//! What goes on when: bars in lanes over time, as one SVG file that needs no other.
//!
//! Input is what a caller has traced; nothing is computed here but places.

use maud::{Markup, PreEscaped, html};

use crate::format;

/// Bars in lanes.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// What is shown.
    pub title: String,
    /// What else a reader must know, in a line.
    pub note: String,
    /// From top to bottom.
    pub lanes: Vec<Lane>,
    /// The time that is shown, from 0 on, in nanoseconds.
    pub span_ns: f64,
    /// In the order of their beginnings.
    pub bars: Vec<Bar>,
}

/// A lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Written before it.
    pub name: String,
    /// One of the plots' eight colours.
    pub color: u8,
}

/// A bar in a lane.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Which.
    pub lane: usize,
    /// From when on, in nanoseconds.
    pub begin_ns: f64,
    /// Until when, in nanoseconds.
    pub end_ns: f64,
    /// Seen on hovering.
    pub text: String,
    /// How it is drawn.
    pub weight: Weight,
}

/// What a bar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// What is shown waits for it.
    Path,
    /// It goes on beside.
    Beside,
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 120.0;
const RIGHT: f64 = 944.0;
const TOP: f64 = 58.0;
const LANE: f64 = 30.0;
const BAR: f64 = 18.0;
const THIN: f64 = 8.0;
/// Room below the lanes.
const BELOW: f64 = 36.0;
/// Ticks at most.
const TICKS: f64 = 8.0;
/// Narrower bars have no words.
const NARROWEST: f64 = 34.0;
/// Width of a letter.
const LETTER: f64 = 6.1;

/// Colours and type of the plots, as in `assets/report.css`.
const STYLE: &str = "
svg { --paper: #ffffff; --ink: #1b1b1b; --soft: #5a5a5a; --faint: #ececec; color-scheme: light dark;
  --c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b5568f; --c4: #c78500; --c5: #3a9fd6; --c6: #1b1b1b; --c7: #8a8100;
  font: 11.5px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif; background: var(--paper); }
@media (prefers-color-scheme: dark) {
  svg { --paper: #16181b; --ink: #e8e6e3; --soft: #a5a8ac; --faint: #272a2f;
    --c0: #4aa3df; --c1: #f08a3c; --c2: #2fc79a; --c3: #dd92bd; --c4: #e8b030; --c5: #8fd0f5; --c6: #e8e6e3; --c7: #d9d04a; }
}
.paper { fill: var(--paper); }
text { fill: var(--soft); } .title { fill: var(--ink); font-size: 14px; font-weight: 600; } .name { fill: var(--ink); }
.grid path { fill: none; stroke: var(--faint); } .grid .frame { stroke: var(--soft); stroke-opacity: .55; }
.bar { fill-opacity: .85; } .beside { fill-opacity: .28; } .words { fill: var(--paper); font-size: 10.5px; pointer-events: none; }
.handover { fill: none; stroke: var(--soft); stroke-width: 1; stroke-opacity: .7; }
.c0 { fill: var(--c0); } .c1 { fill: var(--c1); } .c2 { fill: var(--c2); } .c3 { fill: var(--c3); }
.c4 { fill: var(--c4); } .c5 { fill: var(--c5); } .c6 { fill: var(--c6); } .c7 { fill: var(--c7); }
";

impl Timeline {
    /// One SVG file, for light and dark paper.
    pub fn svg(&self) -> String {
        let bottom = TOP + LANE * self.lanes.len() as f64;
        let height = bottom + BELOW;
        let picture = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {height}"))
                width=(WIDTH) height=(height) role="img" aria-labelledby="t d" {
                title id="t" { (self.title) }
                desc id="d" { (self.note) }
                style { (PreEscaped(STYLE)) }
                rect class="paper" width=(WIDTH) height=(height) {}
                text class="title" x="16" y="22" { (self.title) }
                text x="16" y="40" { (self.note) }
                (self.grid(bottom))
                // What goes on beside must not hide the path.
                @for weight in [Weight::Beside, Weight::Path] {
                    @for bar in self.bars.iter().filter(|bar| bar.weight == weight) { (self.bar(bar)) }
                }
                (self.handovers())
            }
        };
        picture.into_string()
    }

    fn place(&self, ns: f64) -> f64 {
        let share = ns / self.span_ns.max(f64::MIN_POSITIVE);
        LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn middle(lane: usize) -> f64 {
        TOP + LANE * (lane as f64 + 0.5)
    }

    fn grid(&self, bottom: f64) -> Markup {
        let step = round_step(self.span_ns / TICKS);
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
            Weight::Beside => ("beside", THIN),
        };
        let color = self.lanes.get(bar.lane).map_or(0, |lane| lane.color % 8);
        let top = Self::middle(bar.lane) - tall / 2.0;
        // What is said of a bar begins with its lane's name, which stands before it already.
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

/// The next of 1, 2, 5, 10, … times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-3).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step >= least).unwrap_or(1.0)
}

fn whole(text: &str) -> String {
    text.replace(".00 ", " ").replace(".0 ", " ")
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
                bar(0, 60.0, 250.0, Weight::Beside),
            ],
        }
    }

    #[test]
    fn bars_lie_where_their_times_are() {
        let svg = timeline().svg();
        assert!(svg.contains("one &amp; two"), "{svg}");
        // 0 to 50 of 100 ns is the first half of 120..944.
        assert!(svg.contains(r#"x="120.0" y="64" width="412.0""#), "{svg}");
        // What goes on beyond the end is cut there: 60 to 100 ns.
        assert!(svg.contains(r#"x="614.4" y="69" width="329.6""#), "{svg}");
        assert_eq!(svg.matches("class=\"handover\"").count(), 1);
        assert_eq!(svg, timeline().svg());
    }

    #[test]
    fn colours_are_those_of_the_report() {
        let report = include_str!("../assets/report.css");
        let palettes: Vec<&str> = STYLE
            .lines()
            .map(|line| line.trim().trim_end_matches(" }"))
            .filter(|line| line.starts_with("--c0"))
            .collect();
        assert_eq!(palettes.len(), 2);
        for palette in palettes {
            assert!(report.contains(palette), "{palette}");
        }
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
