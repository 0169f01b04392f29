//! What is wrong with a row, cell by cell.

use std::fmt;
use std::sync::Arc;

use crate::columns::Column;
use crate::words::{Metric, Quantity};

/// Where a row stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as it was named to the reader.
    pub file: Arc<str>,
    /// Its line, from 1.
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.file, self.line)
    }
}

/// One cell's fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("column {column}: {problem}")]
pub struct Fault {
    /// The cell's column.
    pub column: Column,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong with a cell.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// It is not what the column holds.
    #[error("'{value}' is not {wanted}")]
    Unreadable {
        /// What stands there.
        value: String,
        /// What may.
        wanted: String,
    },
    /// It is empty and must not be.
    #[error("empty; write {wanted}")]
    Empty {
        /// What may stand there.
        wanted: &'static str,
    },
    /// Another row has that id.
    #[error("'{id}' is also the id of {first}; ids are unique over all files")]
    DuplicateId {
        /// The id.
        id: String,
        /// The row that has it.
        first: Place,
    },
    /// The interval's ends are the wrong way round.
    #[error("{lo} lies above hi {hi}; lo..hi is the interval of the published value")]
    UpsideDown {
        /// Its lower end.
        lo: f64,
        /// Its upper end.
        hi: f64,
    },
    /// The published value lies outside its own interval.
    #[error("{value} lies outside lo..hi, {lo}..{hi}")]
    OutsideItsInterval {
        /// The value.
        value: f64,
        /// The interval's lower end.
        lo: f64,
        /// Its upper end.
        hi: f64,
    },
    /// Neither value nor interval.
    #[error("value, lo and hi are all empty; a row states a value, or a bound by lo or hi")]
    NothingPublished,
    /// The unit is not the metric's.
    #[error("'{unit}' does not fit metric {metric}; its unit is {wanted}", wanted = metric.unit())]
    Unit {
        /// What stands there.
        unit: String,
        /// The row's metric.
        metric: Quantity,
    },
    /// A comparison without its other half.
    #[error("empty, and metric {metric} compares with a reference; write {wanted}")]
    NoReference {
        /// The row's metric.
        metric: Quantity,
        /// What may stand there.
        wanted: &'static str,
    },
    /// A reference for a metric that needs none.
    #[error(
        "'{value}' has no meaning with metric {metric}; leave it empty, or use ratio or delta_ns"
    )]
    NeedlessReference {
        /// What stands there.
        value: String,
        /// The row's metric.
        metric: Quantity,
    },
    /// A difference in nanoseconds of something that is no time.
    #[error("'{of}' is not in ns, so delta_ns cannot be formed of it; use ratio")]
    DeltaOfNoTime {
        /// The metric.
        of: Metric,
    },
    /// A part of `base` is no assignment.
    #[error("'{part}' is no override; write COLUMN=VALUE, several with ';' between them")]
    NoAssignment {
        /// The part.
        part: String,
    },
    /// `base` names a column that does not exist.
    #[error("there is no column '{name}'{near}")]
    NoSuchColumn {
        /// What it names.
        name: String,
        /// `; near: …`, or nothing.
        near: String,
    },
    /// `base` overrides what does not describe the experiment.
    #[error(
        "'{overridden}' cannot be overridden: it says what was published, not what the experiment is"
    )]
    NotOfTheExperiment {
        /// The column.
        overridden: Column,
    },
    /// `base` overrides a column twice.
    #[error("'{overridden}' is overridden twice")]
    OverriddenTwice {
        /// The column.
        overridden: Column,
    },
    /// The overridden cell is not what its column holds.
    #[error("{overridden}: {problem}")]
    Override {
        /// The column.
        overridden: Column,
        /// What is wrong with the override.
        problem: Box<Problem>,
    },
}

/// A row that could not be read: all its faults, one line each.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedRow {
    /// Where.
    pub place: Place,
    /// Its id, empty where there is none.
    pub id: String,
    /// What is wrong; never empty.
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
