//! Data files: CSV with the columns of `data/schema.md`, in any order.
//!
//! A file that lacks a column is refused. Unknown columns are ignored and reported
//! ([`Data::ignored_columns`]). A row with faults is kept as refused, so that the others can run.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use csv::StringRecord;

use crate::cells::Cells;
use crate::columns::Column;
use crate::fault::{Fault, Place, Problem, RefusedRow};
use crate::near;
use crate::row::{Grade, Row};

/// The file of values that the model's parameters may be fitted to.
const FITTED_FILE: &str = "calibration.csv";
const CALIBRATION: &str = include_str!("../data/calibration.csv");
/// Visible values that nothing is fitted to.
const VISIBLE: &str = include_str!("../data/visible.csv");

/// Rows of one or more data files, in order.
#[derive(Clone, Debug, Default)]
pub struct Data {
    entries: Vec<Entry>,
    places: HashMap<String, Place>,
    ignored: Vec<IgnoredColumn>,
}

/// A row, readable or not.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its file and line.
    pub place: Place,
    /// What it is listed by.
    pub labels: Labels,
    /// The row, or its faults.
    pub row: Result<Row, RefusedRow>,
}

/// What a row is listed by: the text of cells, readable or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// The id, unique over all files.
    pub id: String,
    /// The hardware's name.
    pub preset: String,
    /// The program's name.
    pub program: String,
    /// The curve that the point belongs to.
    pub curve: String,
    /// What was published.
    pub metric: String,
}

/// A column that the schema does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: column '{name}' is not one of the schema's and is ignored")]
pub struct IgnoredColumn {
    /// The file.
    pub file: Arc<str>,
    /// The column's name.
    pub name: String,
}

/// Why a file was refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum DataError {
    /// It is empty.
    #[error(
        "{file} is empty; its first line must name the columns: {}",
        all_columns()
    )]
    Empty { file: Arc<str> },
    /// Columns are missing. Each comes with similar names in the file.
    #[error(
        "{file} has no column {}; a data file has all {} columns of the schema, with empty cells where \
         they do not apply",
        missing_list(missing),
        Column::ALL.len()
    )]
    MissingColumns {
        file: Arc<str>,
        missing: Vec<(Column, Vec<String>)>,
    },
    /// The header has a column twice.
    #[error("{file} has column '{column}' twice; name each column once")]
    RepeatedColumn { file: Arc<str>, column: Column },
    /// A row has more or fewer cells than the header.
    #[error(
        "{place} has {cells} cells where the header has {columns}; quote a cell that holds a comma"
    )]
    Cells {
        place: Place,
        cells: u64,
        columns: u64,
    },
    /// It is not text.
    #[error("{place} is not UTF-8")]
    NotUtf8 { place: Place },
    /// It cannot be read.
    #[error("cannot read {file}: {source}")]
    Read { file: Arc<str>, source: io::Error },
}

impl Data {
    /// The published values that ship with Adverb: `calibration.csv` and `visible.csv`.
    pub fn shipped() -> Data {
        let mut data = Data::default();
        for (file, text) in [(FITTED_FILE, CALIBRATION), ("visible.csv", VISIBLE)] {
            data.read(file, text.as_bytes())
                .expect("the shipped files have the schema's columns, which a test holds");
        }
        data
    }

    /// Appends a file's rows.
    ///
    /// # Errors
    /// If the file is refused; then none of its rows is added. Rows with faults are not errors here, see
    /// [`Data::refused`].
    pub fn read(&mut self, file: &str, from: impl io::Read) -> Result<(), DataError> {
        let file: Arc<str> = file.into();
        let mut table = csv::Reader::from_reader(from);
        let header = table.headers().map_err(|e| refusal(&file, e))?.clone();
        let layout = Layout::of(&file, &header)?;
        let records: Result<Vec<_>, _> = table.records().collect();
        let records = records.map_err(|e| refusal(&file, e))?;
        for record in &records {
            let line = record.position().map_or(0, csv::Position::line);
            let cells = Cells::new(|column| record.get(layout.index(column)).unwrap_or_default());
            let file = Arc::clone(&file);
            self.add(Place { file, line }, &cells);
        }
        self.ignored.extend(layout.ignored);
        Ok(())
    }

    /// The rows, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The rows that could not be read.
    pub fn refused(&self) -> impl Iterator<Item = &RefusedRow> {
        self.entries.iter().filter_map(|e| e.row.as_ref().err())
    }

    /// Columns that the schema does not have, which were ignored.
    pub fn ignored_columns(&self) -> &[IgnoredColumn] {
        &self.ignored
    }

    pub(crate) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    /// Keeps only the rows for which `keep` returns true.
    pub fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.entries.retain(keep);
    }

    fn add(&mut self, place: Place, cells: &Cells) {
        let labels = Labels::of(cells);
        let mut row = Row::read(cells);
        if let Some(fault) = self.repeated(&labels.id, &place) {
            row = Err(std::iter::once(fault)
                .chain(row.err().into_iter().flatten())
                .collect());
        }
        let row = row.map_err(|faults| RefusedRow {
            place: place.clone(),
            id: labels.id.clone(),
            faults,
        });
        self.entries.push(Entry { place, labels, row });
    }

    /// Records the id; returns a fault if another row has it.
    fn repeated(&mut self, id: &str, place: &Place) -> Option<Fault> {
        if id.is_empty() {
            return None;
        }
        let first = self.places.get(id).cloned();
        let Some(first) = first else {
            self.places.insert(id.to_owned(), place.clone());
            return None;
        };
        Some(Fault {
            column: Column::Id,
            problem: Problem::DuplicateId {
                id: id.to_owned(),
                first,
            },
        })
    }
}

impl Entry {
    /// Whether the model's parameters were fitted to it, so that it is not a prediction.
    pub fn is_fitted(&self) -> bool {
        &*self.place.file == FITTED_FILE
    }

    /// Whether it counts in the scores. An unreadable row does, as missing.
    pub fn counts(&self) -> bool {
        self.row
            .as_ref()
            .map_or(true, |row| row.grade == Grade::Counted)
    }
}

impl Labels {
    fn of(cells: &Cells) -> Self {
        let text = |column| cells.get(column).to_owned();
        Labels {
            id: text(Column::Id),
            preset: text(Column::Preset),
            program: text(Column::Program),
            curve: text(Column::Curve),
            metric: text(Column::Metric),
        }
    }
}

/// The position of each column in a file's rows.
struct Layout {
    index: Vec<usize>,
    ignored: Vec<IgnoredColumn>,
}

impl Layout {
    fn of(file: &Arc<str>, header: &StringRecord) -> Result<Self, DataError> {
        let names: Vec<&str> = header.iter().map(str::trim).collect();
        if names.iter().all(|name| name.is_empty()) {
            let file = Arc::clone(file);
            return Err(DataError::Empty { file });
        }
        let unknown = || {
            let names = names.iter().copied();
            names.filter(|name| Column::named(name).is_none())
        };
        let (mut index, mut missing) = (Vec::new(), Vec::new());
        for column in Column::ALL {
            match sole(file, &names, *column)? {
                Some(place) => index.push(place),
                None => missing.push((*column, near::near(column.name(), unknown()))),
            }
        }
        if !missing.is_empty() {
            let file = Arc::clone(file);
            return Err(DataError::MissingColumns { file, missing });
        }
        let ignored = unknown().map(|name| IgnoredColumn {
            file: Arc::clone(file),
            name: name.to_owned(),
        });
        Ok(Layout {
            index,
            ignored: ignored.collect(),
        })
    }

    fn index(&self, column: Column) -> usize {
        self.index[column.index()]
    }
}

/// The position of a column, which may occur at most once.
fn sole(file: &Arc<str>, names: &[&str], column: Column) -> Result<Option<usize>, DataError> {
    let mut places = (0..names.len()).filter(|n| names[*n] == column.name());
    let place = places.next();
    if places.next().is_some() {
        let file = Arc::clone(file);
        return Err(DataError::RepeatedColumn { file, column });
    }
    Ok(place)
}

/// Largest number of missing columns that an error names.
const MAX_NAMED: usize = 5;

fn missing_list(missing: &[(Column, Vec<String>)]) -> String {
    let columns = missing.iter().take(MAX_NAMED).map(|(column, meant)| {
        if meant.is_empty() {
            format!("'{column}'")
        } else {
            format!("'{column}' (is '{}' it?)", meant.join("' or '"))
        }
    });
    let named = columns.collect::<Vec<_>>().join(", ");
    match missing.len().saturating_sub(MAX_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn all_columns() -> String {
    let names: Vec<&str> = Column::ALL.iter().map(|column| column.name()).collect();
    names.join(",")
}

fn refusal(file: &Arc<str>, error: csv::Error) -> DataError {
    let file = Arc::clone(file);
    let at = |file, pos: Option<csv::Position>| Place {
        file,
        line: pos.map_or(1, |pos| pos.line()),
    };
    match error.into_kind() {
        csv::ErrorKind::Io(source) => DataError::Read { file, source },
        csv::ErrorKind::Utf8 { pos, .. } => DataError::NotUtf8 {
            place: at(file, pos),
        },
        csv::ErrorKind::UnequalLengths {
            pos,
            expected_len,
            len,
        } => DataError::Cells {
            place: at(file, pos),
            cells: len,
            columns: expected_len,
        },
        other => DataError::Read {
            file,
            source: io::Error::other(format!("{other:?}")),
        },
    }
}
