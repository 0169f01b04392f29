//! A traced message as text: the steps as a table, then in lanes.

use std::fmt::Write;

use adverb_units::{Span, Time};

use super::journey::{Leg, Piece};
use super::{Trace, since};

/// Smallest and largest width of the drawing, in columns.
const WIDTHS: (usize, usize) = (60, 120);
const NAMES: usize = 14;
/// Smallest distance of ticks on the axis, in columns.
const TICKS: f64 = 12.0;

/// Draws the title, the steps of the first leg with their sum, the lanes, and the steps off the critical path.
pub(super) fn draw(trace: &Trace, columns: usize) -> String {
    let leg = &trace.journey.legs[0];
    let path: Vec<&Piece> = leg.path().collect();
    let mut out = format!("{}\n\n", trace.title());
    row(&mut out, [" ", "start", "duration", "where", "what"]);
    for (index, piece) in path.iter().enumerate() {
        let mark = mark(index).to_string();
        piece_row(&mut out, leg, piece, &mark);
    }
    let sum = leg.path().map(Piece::span).sum::<Span>();
    let end = match trace.journey.legs.len() {
        1 => "the client's next post",
        _ => "the server's answer, posted",
    };
    row(
        &mut out,
        ["=", &leg.span().to_string(), &sum.to_string(), end, ""],
    );
    out.push('\n');
    lanes(&mut out, leg, columns.clamp(WIDTHS.0, WIDTHS.1));
    out.push('\n');
    let _ = writeln!(out, "{}", trace.summary());
    let off_path: Vec<&Piece> = leg.off_path().collect();
    if !off_path.is_empty() {
        out.push_str("\nOff the critical path (·):\n");
        for piece in off_path {
            piece_row(&mut out, leg, piece, "·");
        }
    }
    out
}

fn piece_row(out: &mut String, leg: &Leg, piece: &Piece, mark: &str) {
    let start = match piece.begin - leg.from {
        Span::ZERO => "0".to_owned(),
        span => span.to_string(),
    };
    let (span, place) = (piece.span().to_string(), piece.lane().to_string());
    row(out, [mark, &start, &span, &place, &piece.what]);
}

fn row(out: &mut String, [mark, start, span, place, what]: [&str; 5]) {
    let line = format!("{mark} {start:>9}  {span:>9}  {place:<NAMES$}  {what}");
    let _ = writeln!(out, "{}", line.trim_end());
}

/// The letter of the `index`th step of the critical path.
fn mark(index: usize) -> char {
    let letters = ('a'..='z').chain('A'..='Z');
    letters.into_iter().nth(index).unwrap_or('*')
}

/// Maps a span of time to columns.
struct Columns {
    from: Time,
    span_ns: f64,
    columns: usize,
}

impl Columns {
    fn place(&self, at: Time) -> f64 {
        since(self.from, at) / self.span_ns.max(f64::MIN_POSITIVE) * self.columns as f64
    }

    /// The columns that a piece covers, at least one.
    fn cover(&self, piece: &Piece) -> std::ops::Range<usize> {
        let first = (self.place(piece.begin) as usize).min(self.columns - 1);
        let last = (self.place(piece.end).round() as usize).min(self.columns);
        first..last.max(first + 1)
    }
}

fn lanes(out: &mut String, leg: &Leg, width: usize) {
    let columns = Columns {
        from: leg.from,
        span_ns: leg.span().as_ns_f64(),
        columns: width - NAMES - 2,
    };
    let marks: Vec<(char, &Piece)> = leg
        .off_path()
        .map(|piece| ('·', piece))
        .chain(leg.path().enumerate().map(|(i, piece)| (mark(i), piece)))
        .collect();
    for lane in leg.lanes() {
        let mut cells = vec![' '; columns.columns];
        for (mark, piece) in marks.iter().filter(|(_, piece)| piece.lane() == lane) {
            cells[columns.cover(piece)].fill(*mark);
        }
        let cells: String = cells.into_iter().collect();
        let name = lane.to_string();
        let _ = writeln!(out, "{}", format!("{name:<NAMES$} │{cells}").trim_end());
    }
    axis(out, &columns);
}

/// Draws ticks at round times.
fn axis(out: &mut String, columns: &Columns) {
    let least = columns.span_ns * TICKS / columns.columns as f64;
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    let step = steps.into_iter().find(|step| *step >= least);
    let step = step.unwrap_or(least);
    let (mut line, mut texts) = (vec!['─'; columns.columns], vec![' '; columns.columns]);
    let ticks = (columns.span_ns / step) as usize;
    for tick in 0..=ticks {
        let time = tick as f64 * step;
        let at = (time / columns.span_ns * columns.columns as f64) as usize;
        let text = if tick == 0 {
            "0".to_owned()
        } else {
            Span::from_ns_f64(time)
                .to_string()
                .replace(".00 ", " ")
                .replace(".0 ", " ")
        };
        if at + text.chars().count() <= columns.columns {
            line[at] = '┴';
            for (cell, letter) in texts[at..].iter_mut().zip(text.chars()) {
                *cell = letter;
            }
        }
    }
    let (line, texts): (String, String) = (line.into_iter().collect(), texts.into_iter().collect());
    let _ = writeln!(out, "{:NAMES$} └{line}", "");
    let _ = writeln!(out, "{:NAMES$}  {}", "", texts.trim_end());
}
