//! Rows for the tests, as text.

use adverb_validate::{Budget, Column, Data, Experiment, Limits, Refusal, Report, validate};

/// A valid row: cells by column, the others empty.
const ROW: &[(Column, &str)] = &[
    (Column::Id, "R-1"),
    (Column::Source, "a paper"),
    (Column::Exactness, "table"),
    (Column::Curve, "Fig1"),
    (Column::Preset, "cx3"),
    (Column::Program, "ping"),
    (Column::Opcode, "WRITE"),
    (Column::Transport, "RC"),
    (Column::SizeBytes, "64"),
    (Column::Inline, "1"),
    (Column::Metric, "round_trip_ns"),
    (Column::Unit, "ns"),
    (Column::Value, "2000"),
    (Column::Lo, "1900"),
    (Column::Hi, "2100"),
    (Column::Grade, "1"),
];

/// Cells that differ from the valid row's.
pub(crate) type Changes<'a> = &'a [(Column, &'a str)];

/// A ratio of round trips, to one with `size_bytes=256`.
pub(crate) const RATIO: &[(Column, &str)] = &[
    (Column::Metric, "ratio"),
    (Column::Unit, "1"),
    (Column::Value, "0.5"),
    (Column::Lo, "0.4"),
    (Column::Hi, "0.6"),
    (Column::Of, "round_trip_ns"),
    (Column::Base, "size_bytes=256"),
];

/// A file with these columns and one line per change.
pub(crate) fn file_of(columns: &[Column], rows: &[Changes<'_>]) -> String {
    let mut text = names(columns);
    for changes in rows {
        let cell = |column: &Column| {
            let text = last(changes, *column).or_else(|| last(ROW, *column));
            let text = text.unwrap_or_default();
            format!("\"{}\"", text.replace('"', "\"\""))
        };
        let cells: Vec<String> = columns.iter().map(cell).collect();
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

fn last<'a>(cells: Changes<'a>, column: Column) -> Option<&'a str> {
    cells
        .iter()
        .rev()
        .find(|(of, _)| *of == column)
        .map(|(_, text)| *text)
}

fn names(columns: &[Column]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| column.name()).collect();
    format!("{}\n", names.join(","))
}

/// A file with the schema's columns.
pub(crate) fn file(rows: &[Changes<'_>]) -> String {
    file_of(Column::ALL, rows)
}

/// The rows of such a file.
pub(crate) fn data(rows: &[Changes<'_>]) -> Data {
    let mut data = Data::default();
    data.read("rows.csv", file(rows).as_bytes()).unwrap();
    data
}

/// Combines changes; later ones win.
pub(crate) fn with<'a>(
    under: &[(Column, &'a str)],
    over: &[(Column, &'a str)],
) -> Vec<(Column, &'a str)> {
    under.iter().chain(over).copied().collect()
}

/// Cells from `column=value`, separated by blanks.
pub(crate) fn cells(text: &str) -> Vec<(Column, &str)> {
    let cells = text
        .split_whitespace()
        .filter_map(|cell| cell.split_once('='));
    cells
        .map(|(name, value)| (Column::named(name).expect("a column"), value))
        .collect()
}

/// The faults of a row.
pub(crate) fn faults(changes: Changes<'_>) -> String {
    let data = data(&[changes]);
    let lines: Vec<String> = data.refused().map(ToString::to_string).collect();
    lines.join("\n")
}

/// A report on rows with this model.
pub(crate) fn report(
    rows: &[Changes<'_>],
    model: impl Fn(&Experiment) -> Result<f64, Refusal> + Sync,
) -> Report {
    let model = |experiment: &Experiment, _: &Budget| model(experiment);
    validate(&model, data(rows), &Limits::default(), |_| {})
}
