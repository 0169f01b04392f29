//! `base`: overrides that turn a row's cells into the cells of its reference experiment.

use crate::cells::Cells;
use crate::columns::Column;
use crate::fault::{Fault, Problem};
use crate::near;

/// Applies `column=value;…` to a row's cells. An empty value clears the cell.
///
/// Faults name column `base`.
pub(crate) fn apply(cells: &Cells, overrides: &str) -> Result<Cells, Vec<Fault>> {
    let mut based = cells.clone();
    let mut seen = Vec::new();
    let mut faults = Vec::new();
    let parts = overrides.split(';').map(str::trim);
    for part in parts.filter(|part| !part.is_empty()) {
        match assignment(part, &seen) {
            Ok((column, value)) => {
                seen.push(column);
                based.set(column, value);
            }
            Err(problem) => faults.push(Fault {
                column: Column::Base,
                problem,
            }),
        }
    }
    if faults.is_empty() {
        Ok(based)
    } else {
        Err(faults)
    }
}

/// Converts a fault of an overridden cell to one of `base`.
pub(crate) fn of_base(fault: Fault) -> Fault {
    Fault {
        column: Column::Base,
        problem: Problem::Override {
            overridden: fault.column,
            problem: Box::new(fault.problem),
        },
    }
}

fn assignment<'a>(part: &'a str, seen: &[Column]) -> Result<(Column, &'a str), Problem> {
    let (name, value) = part.split_once('=').ok_or_else(|| Problem::NoAssignment {
        part: part.to_owned(),
    })?;
    let name = name.trim();
    let overridden = Column::named(name).ok_or_else(|| Problem::NoSuchColumn {
        name: name.to_owned(),
        near: near::suffix(&near::near(name, Column::ALL.iter().map(|c| c.name()))),
    })?;
    if !overridden.describes_the_experiment() {
        return Err(Problem::NotOfTheExperiment { overridden });
    }
    if seen.contains(&overridden) {
        return Err(Problem::OverriddenTwice { overridden });
    }
    Ok((overridden, value.trim()))
}
