//! Data files: CSV with the columns of `data/schema.md`, in any order.
//!
//! A file must have every column, else it is refused whole. Further columns are ignored and named
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

/// The file of values that parameters of the model may be fitted to.
const FITTED_FILE: &str = "calibration.csv";
const CALIBRATION: &str = include_str!("../data/calibration.csv");
/// Values to look at; nothing is fitted to them.
const VISIBLE: &str = include_str!("../data/visible.csv");

/// Rows of one or more data files, in order.
#[derive(Clone, Debug, Default)]
pub struct Data {
    entries: Vec<Entry>,
    places: HashMap<String, Place>,
    ignored: Vec<IgnoredColumn>,
}

/// A row as it came: readable or not.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where it stands.
    pub place: Place,
    /// How it is listed.
    pub labels: Labels,
    /// The row, or why there is none.
    pub row: Result<Row, RefusedRow>,
}

/// What a row is listed by: the text of its cells, whether or not they can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// Unique over all files.
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

/// A column that is none of the schema's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: column '{name}' is not one of the schema's and is ignored")]
pub struct IgnoredColumn {
    /// The file.
    pub file: Arc<str>,
    /// The column's name.
    pub name: String,
}

/// Why a file is no data file.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// It is empty.
    #[error(
        "{file} is empty; its first line must name the columns: {}",
        all_columns()
    )]
    Empty {
        /// The file.
        file: Arc<str>,
    },
    /// Columns are missing.
    #[error(
        "{file} has no column {}; a data file has all {} columns of the schema, with empty cells where \
         they do not apply",
        missing_list(missing),
        Column::ALL.len()
    )]
    MissingColumns {
        /// The file.
        file: Arc<str>,
        /// The columns, each with names in the file that are perhaps it.
        missing: Vec<(Column, Vec<String>)>,
    },
    /// A column stands in the header twice.
    #[error("{file} has column '{column}' twice; name each column once")]
    RepeatedColumn {
        /// The file.
        file: Arc<str>,
        /// The column.
        column: Column,
    },
    /// A row with more or fewer cells than the header.
    #[error(
        "{place} has {cells} cells where the header has {columns}; quote a cell that holds a comma"
    )]
    Cells {
        /// Where.
        place: Place,
        /// In the row.
        cells: u64,
        /// In the header.
        columns: u64,
    },
    /// It is not text.
    #[error("{place} is not UTF-8")]
    NotUtf8 {
        /// Where.
        place: Place,
    },
    /// It cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// The file.
        file: Arc<str>,
        /// Why.
        source: io::Error,
    },
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

    /// Adds a file's rows, after those that are there.
    ///
    /// # Errors
    /// If it is no data file; then none of its rows is added. Rows with faults are no error here:
    /// see [`Data::refused`].
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

    /// Columns that are none of the schema's: they were ignored.
    pub fn ignored_columns(&self) -> &[IgnoredColumn] {
        &self.ignored
    }

    pub(crate) fn into_entries(self) -> Vec<Entry> {
        self.entries
    }

    /// Keeps only the rows that `keep` says.
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

    /// Notes the id; the fault if it is not new.
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
    /// Whether parameters of the model were fitted to it: then it is no prediction.
    pub fn is_fitted(&self) -> bool {
        &*self.place.file == FITTED_FILE
    }

    /// Whether it counts in the scores. A row that cannot be read does: it is missing there.
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

/// Where in a file's rows each column stands.
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
        let ignored = unknown(&names);
        let index = Column::ALL
            .iter()
            .map(|column| sole(file, &names, *column))
            .collect::<Result<Vec<_>, _>>()?;
        let missing: Vec<_> = Column::ALL
            .iter()
            .zip(&index)
            .filter(|(_, index)| index.is_none())
            .map(|(column, _)| (*column, meant(*column, &ignored)))
            .collect();
        if !missing.is_empty() {
            let file = Arc::clone(file);
            return Err(DataError::MissingColumns { file, missing });
        }
        Ok(Layout {
            index: index.into_iter().flatten().collect(),
            ignored: ignored
                .into_iter()
                .map(|name| IgnoredColumn {
                    file: Arc::clone(file),
                    name: name.to_owned(),
                })
                .collect(),
        })
    }

    fn index(&self, column: Column) -> usize {
        self.index[column.index()]
    }
}

/// Names that are no column's.
fn unknown<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let unknown = names.iter().filter(|name| Column::named(name).is_none());
    unknown.copied().collect()
}

/// The place of a column that stands there at most once.
fn sole(file: &Arc<str>, names: &[&str], column: Column) -> Result<Option<usize>, DataError> {
    let mut places = (0..names.len()).filter(|n| names[*n] == column.name());
    let place = places.next();
    if places.next().is_some() {
        let file = Arc::clone(file);
        return Err(DataError::RepeatedColumn { file, column });
    }
    Ok(place)
}

fn meant(column: Column, unknown: &[&str]) -> Vec<String> {
    near::near(column.name(), unknown.iter().copied())
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// Missing columns that are named at most.
const NAMED: usize = 5;

fn missing_list(missing: &[(Column, Vec<String>)]) -> String {
    let columns = missing.iter().take(NAMED).map(|(column, meant)| {
        if meant.is_empty() {
            format!("'{column}'")
        } else {
            format!("'{column}' (is '{}' it?)", meant.join("' or '"))
        }
    });
    let named = columns.collect::<Vec<_>>().join(", ");
    match missing.len().saturating_sub(NAMED) {
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
