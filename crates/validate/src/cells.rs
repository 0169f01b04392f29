//! A row as text, and the reader that turns its cells into values and gathers their faults.

use crate::cell::Cell;
use crate::columns::Column;
use crate::fault::{Fault, Problem};

/// A row's text, by column.
#[derive(Clone, Debug)]
pub(crate) struct Cells(Vec<String>);

impl Cells {
    /// The cells that `text` gives for each column, without surrounding blanks.
    pub(crate) fn new<'a>(text: impl Fn(Column) -> &'a str) -> Self {
        Cells(
            Column::ALL
                .iter()
                .map(|column| text(*column).trim().to_owned())
                .collect(),
        )
    }

    pub(crate) fn get(&self, column: Column) -> &str {
        &self.0[column.index()]
    }

    /// Empty cells are absent.
    pub(crate) fn given(&self, column: Column) -> Option<&str> {
        Some(self.get(column)).filter(|text| !text.is_empty())
    }

    pub(crate) fn set(&mut self, column: Column, text: &str) {
        text.clone_into(&mut self.0[column.index()]);
    }
}

/// Reads cells; what cannot be read is a fault and reads as absent.
pub(crate) struct Reader<'a> {
    cells: &'a Cells,
    faults: Vec<Fault>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(cells: &'a Cells) -> Self {
        Reader {
            cells,
            faults: Vec::new(),
        }
    }

    pub(crate) fn cells(&self) -> &'a Cells {
        self.cells
    }

    pub(crate) fn fault(&mut self, column: Column, problem: Problem) {
        self.faults.push(Fault { column, problem });
    }

    pub(crate) fn extend(&mut self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.extend(faults);
    }

    pub(crate) fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    pub(crate) fn into_faults(self) -> Vec<Fault> {
        self.faults
    }

    /// A cell that may be empty.
    pub(crate) fn opt<T: Cell>(&mut self, column: Column) -> Option<T> {
        let text = self.cells.given(column)?;
        match T::read(text) {
            Ok(value) => Some(value),
            Err(wanted) => {
                let value = text.to_owned();
                self.fault(column, Problem::Unreadable { value, wanted });
                None
            }
        }
    }

    /// A cell that must not be empty.
    pub(crate) fn required<T: Cell>(&mut self, column: Column, wanted: &'static str) -> Option<T> {
        if self.cells.given(column).is_none() {
            self.fault(column, Problem::Empty { wanted });
        }
        self.opt(column)
    }
}
