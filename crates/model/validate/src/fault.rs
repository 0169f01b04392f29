//! Faults of a row, cell by cell.

use std::fmt;
use std::sync::Arc;

use crate::columns::Column;
use crate::words::{Metric, Quantity};

/// The place of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, by the name that the reader was given.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.file, self.line)
    }
}

/// A fault of a cell.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("column {column}: {problem}")]
pub struct Fault {
    /// The cell's column.
    pub column: Column,
    pub(crate) problem: Problem,
}

/// What is wrong with a cell.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Problem {
    #[error("'{value}' is not {wanted}")]
    Unreadable { value: String, wanted: String },
    #[error("empty; write {wanted}")]
    Empty { wanted: &'static str },
    #[error("'{id}' is also the id of {first}; ids are unique over all files")]
    DuplicateId { id: String, first: Place },
    #[error("{lo} is above hi {hi}; lo..hi is the interval of the published value")]
    Reversed { lo: f64, hi: f64 },
    #[error("{value} is outside lo..hi, {lo}..{hi}")]
    OutsideItsInterval { value: f64, lo: f64, hi: f64 },
    #[error("value, lo and hi are all empty; a row has a value, or a bound by lo or hi")]
    NothingPublished,
    #[error("'{unit}' does not fit metric {metric}; its unit is {wanted}", wanted = metric.unit())]
    Unit { unit: String, metric: Quantity },
    #[error("empty, and metric {metric} compares with a reference; write {wanted}")]
    NoReference {
        metric: Quantity,
        wanted: &'static str,
    },
    #[error(
        "'{value}' has no meaning with metric {metric}; leave it empty, or use ratio or delta_ns"
    )]
    NeedlessReference { value: String, metric: Quantity },
    #[error("delta_ns needs a metric in ns, which '{of}' is not; use ratio")]
    DeltaOfOtherUnit { of: Metric },
    /// A part of `base`.
    #[error("invalid override '{part}': expected COLUMN=VALUE, several with ';' between them")]
    NoAssignment { part: String },
    /// `base` names a column that does not exist.
    #[error("there is no column '{name}'{near}")]
    NoSuchColumn { name: String, near: String },
    #[error(
        "'{overridden}' cannot be overridden: it describes the publication, not the experiment"
    )]
    NotOfTheExperiment { overridden: Column },
    #[error("'{overridden}' is overridden twice")]
    OverriddenTwice { overridden: Column },
    /// A fault of an overridden cell.
    #[error("{overridden}: {problem}")]
    Override {
        overridden: Column,
        problem: Box<Problem>,
    },
}

/// A row with faults, which is displayed as one line per fault.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedRow {
    /// Its place.
    pub place: Place,
    /// Its id, which may be empty.
    pub id: String,
    /// Its faults; at least one.
    pub faults: Vec<Fault>,
}

impl fmt::Display for RefusedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.faults.iter().enumerate() {
            let separator = if n == 0 { "" } else { "\n" };
            write!(f, "{separator}{}, row '{}', {fault}", self.place, self.id)?;
        }
        Ok(())
    }
}

impl std::error::Error for RefusedRow {}
