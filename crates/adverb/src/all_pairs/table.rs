//! Hosts and matrices as text: up to eight hosts fit into 80 columns.

use std::io::Write;

use adverb_measure::Hosts;
use adverb_report::matrix::{Matrix, matrices};
use adverb_results::Record;
use adverb_units::three_digits;

use crate::terminal;

/// Width of a value, with the space before it and the mark behind it.
const WIDTH: usize = 9;
/// Width of the number of a row.
const HEAD: usize = 4;

/// Prints the numbers of the hosts and their names.
pub(super) fn print_hosts(hosts: &Hosts) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    writeln!(out, "hosts:")?;
    for (number, host) in hosts.iter().enumerate() {
        writeln!(out, "{number:>HEAD$}  {}", host.name)?;
    }
    Ok(out.flush()?)
}

/// Prints the matrices of the pairs that were measured at one point, and which of them are slow.
pub(super) fn print(records: &[Record]) -> anyhow::Result<()> {
    let mut out = terminal::stdout();
    for matrix in matrices(records) {
        writeln!(out, "\n{}", text(&matrix))?;
        for finding in matrix.findings() {
            writeln!(out, "{}", terminal::item(&finding))?;
        }
    }
    Ok(out.flush()?)
}

fn text(matrix: &Matrix) -> String {
    let hosts = 0..matrix.hosts().len();
    let (unit, size) = matrix.unit();
    let row = |from: usize| {
        let cell = |to: usize| match matrix.cell(from, to) {
            None => String::new(),
            Some(None) => "failed ".to_owned(),
            Some(Some(value)) => {
                let mark = if matrix.is_slow(from, to) { '*' } else { ' ' };
                format!("{}{mark}", three_digits(value / size))
            }
        };
        let cells: String = hosts
            .clone()
            .map(|to| format!("{:>WIDTH$}", cell(to)))
            .collect();
        format!("{from:>HEAD$}{}", cells.trim_end())
    };
    let head: String = hosts
        .clone()
        .map(|to| format!("{to:>0$} ", WIDTH - 1))
        .collect();
    let head = format!("{:HEAD$}{}", "", head.trim_end());
    let title = format!("{}, {unit} (rows from, columns to; * slow)", matrix.title());
    let rows = hosts.clone().map(row);
    [title, head]
        .into_iter()
        .chain(rows)
        .collect::<Vec<_>>()
        .join("\n")
}
