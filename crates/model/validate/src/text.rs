//! Outcomes and scores as aligned tables.

use adverb_units::{MessageRate, Span};

use crate::published::Interval;
use crate::report::{Outcome, Report};
use crate::score::{Group, Score, Scores, Spread, Tally};
use crate::words::Unit;

/// Replaces a missing figure.
const NONE: &str = "-";

impl Report {
    /// Lists all rows in order: published and predicted value, and whether the latter is inside.
    pub fn rows_text(&self) -> String {
        rows(self.outcomes())
    }

    /// Lists the `most` worst rows ([`Report::worst`]) and their total number.
    pub fn worst_text(&self, most: usize) -> String {
        let worst = self.worst();
        let shown = &worst[..most.min(worst.len())];
        if worst.is_empty() {
            return "every row that counts is predicted, and inside lo..hi\n".to_owned();
        }
        let table = rows(shown.iter().copied());
        format!("worst {} of {} rows:\n{table}", shown.len(), worst.len())
    }
}

impl Outcome {
    /// Describes the row in a sentence: `RUS-03, ping on qdr_switch: delta_ns 5.35 µs, published 5.40 µs (5.20 µs..5.60 µs)`.
    pub fn sentence(&self) -> String {
        let [
            id,
            program,
            preset,
            metric,
            published,
            interval,
            predicted,
            ..,
        ] = row(self);
        let published = match published.as_str() {
            NONE => interval,
            value => format!("{value} ({interval})"),
        };
        format!("{id}, {program} on {preset}: {metric} {predicted}, published {published}")
    }
}

impl Scores {
    /// Lists the score of all rows, then by file, program, preset and curve.
    pub fn text(&self) -> String {
        let mut table = Table::new(&[
            "score of",
            ">error",
            ">curves",
            ">inside",
            ">within 3 %",
            ">bounds",
            ">missing",
        ]);
        table.row(score("all rows", &self.overall));
        for (title, groups) in [
            ("file", &self.files),
            ("program", &self.programs),
            ("preset", &self.presets),
            ("curve", &self.curves),
        ] {
            for Group { name, score: of } in groups {
                table.row(score(&format!("{title} {name}"), of));
            }
        }
        format!("{}\n{}", table.text(), self.spread.text())
    }
}

impl Spread {
    /// `error of curves: median 0.000, 90th percentile 0.144; 41 of 43 pairs of values in the published order`
    fn text(&self) -> String {
        let figure = |error: Option<f64>| error.map_or(NONE.to_owned(), |e| format!("{e:.3}"));
        let (median, p90) = (figure(self.median), figure(self.p90));
        let pairs = match self.pairs {
            Tally { of: 0, .. } => String::new(),
            Tally { inside, of } => {
                format!("; {inside} of {of} pairs of values in the published order")
            }
        };
        format!("error of curves: median {median}, 90th percentile {p90}{pairs}\n")
    }
}

fn score(name: &str, score: &Score) -> Vec<String> {
    let Tally { inside, of } = score.values;
    let part = |n: usize, of: usize| match of {
        0 => NONE.to_owned(),
        _ => format!("{n}/{of}"),
    };
    vec![
        name.to_owned(),
        score
            .error
            .map_or_else(|| NONE.to_owned(), |e| format!("{e:.3}")),
        score.curves.to_string(),
        part(inside, of),
        part(score.close, of),
        part(score.bounds.inside, score.bounds.of),
        score.missing.to_string(),
    ]
}

fn rows<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> String {
    let mut table = Table::new(&[
        "id",
        "program",
        "preset",
        "metric",
        ">published",
        "lo..hi",
        ">predicted",
        ">ratio",
        ">error",
        "status",
    ]);
    for outcome in outcomes {
        table.row(row(outcome).to_vec());
    }
    table.text()
}

/// Lists results with their rows under a common heading.
pub(crate) fn headlines(parts: &[(&str, Vec<(&str, &Outcome)>)]) -> String {
    let mut table = Table::new(&[
        "",
        "id",
        ">published",
        "lo..hi",
        ">predicted",
        ">ratio",
        "status",
    ]);
    for (what, outcome) in parts.iter().flat_map(|(_, rows)| rows) {
        let [
            id,
            _,
            _,
            _,
            published,
            interval,
            predicted,
            ratio,
            _,
            status,
        ] = row(outcome);
        let what = format!("  {what}");
        let status = match outcome.entry().is_fitted() {
            true => format!("{status}, fitted"),
            false => status,
        };
        table.row(vec![
            what, id, published, interval, predicted, ratio, status,
        ]);
    }
    let text = table.text();
    let mut lines = text.lines();
    let mut out = String::new();
    let mut push = |line: &str| {
        out.push_str(line);
        out.push('\n');
    };
    lines.by_ref().take(1).for_each(&mut push);
    for (title, rows) in parts.iter().filter(|(_, rows)| !rows.is_empty()) {
        push("");
        push(title);
        lines.by_ref().take(rows.len()).for_each(&mut push);
    }
    out
}

fn row(outcome: &Outcome) -> [String; 10] {
    let labels = &outcome.entry().labels;
    let row = outcome.row();
    let unit = row.map_or(Unit::One, |row| row.quantity.unit());
    let published = row.map(|row| row.published);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    let status = outcome.status();
    [
        labels.id.clone(),
        labels.program.clone(),
        labels.preset.clone(),
        labels.metric.clone(),
        or_none(published.and_then(|p| p.value()).map(|v| figure(v, unit))),
        or_none(published.map(|p| interval(p.interval(), unit))),
        or_none(outcome.predicted().map(|v| figure(v, unit))),
        or_none(outcome.ratio().map(signed)),
        or_none(outcome.error().map(|error| format!("{error:.3}"))),
        match outcome.reason() {
            Some(reason) => format!("{status}: {}", reason.replace('\n', "; ")),
            None => status.to_string(),
        },
    ]
}

/// Formats an interval: `2.21 µs..2.28 µs`, with nothing at an open end.
pub(crate) fn interval(interval: Interval, unit: Unit) -> String {
    let end = |end: f64| match end.is_finite() {
        true => figure(end, unit),
        false => String::new(),
    };
    format!("{}..{}", end(interval.lo()), end(interval.hi()))
}

/// Formats a value with its unit, to three or four digits.
pub(crate) fn figure(value: f64, unit: Unit) -> String {
    let (sign, size) = parts(value);
    let text = match unit {
        Unit::Nanoseconds => Span::from_secs_f64(size / 1e9).to_string(),
        Unit::PerSecond => MessageRate::over(size.round() as u64, Span::from_secs(1))
            .map_or_else(String::new, |rate| rate.to_string()),
        Unit::GigabitsPerSecond => format!("{} Gb/s", digits(size)),
        Unit::Percent => format!("{} %", digits(size)),
        Unit::One => digits(size),
    };
    format!("{sign}{text}")
}

/// Formats a number to three or four digits.
fn signed(value: f64) -> String {
    let (sign, size) = parts(value);
    format!("{sign}{}", digits(size))
}

fn parts(value: f64) -> (&'static str, f64) {
    (if value < 0.0 { "-" } else { "" }, value.abs())
}

fn digits(size: f64) -> String {
    match size {
        v if v > 0.0 && v < 0.000_5 => format!("{v:.1e}"),
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}

/// A table with aligned columns, two blanks apart.
pub(crate) struct Table {
    /// Whether each column is aligned to the right.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows. `>` before a column's name aligns it to the right.
    pub(crate) fn new(columns: &[&str]) -> Self {
        let names = columns.iter().map(|name| name.trim_start_matches('>'));
        Table {
            right: columns.iter().map(|name| name.starts_with('>')).collect(),
            rows: vec![names.map(str::to_owned).collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub(crate) fn text(&self) -> String {
        let widths: Vec<usize> = (0..self.right.len())
            .map(|n| {
                let cells = self.rows.iter().map(|row| row[n].chars().count());
                cells.max().unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).zip(&self.right);
            let line: Vec<String> = cells
                .map(|((cell, width), is_right)| match is_right {
                    true => format!("{cell:>width$}"),
                    false => format!("{cell:<width$}"),
                })
                .collect();
            text.push_str(line.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}
