//! A row as text, its deserializer, and the reader that collects the faults of all cells.

use std::fmt;

use serde::Deserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Error as _, MapAccess, Visitor};

use crate::cell::{number, whole};
use crate::columns::Column;
use crate::fault::{Fault, Problem};

/// A row's text, by column.
#[derive(Clone, Debug)]
pub(crate) struct Cells(Vec<String>);

impl Cells {
    /// The cells that `text` returns for each column, trimmed.
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

    /// The cell's text, unless it is empty.
    pub(crate) fn given(&self, column: Column) -> Option<&str> {
        Some(self.get(column)).filter(|text| !text.is_empty())
    }

    pub(crate) fn set(&mut self, column: Column, text: &str) {
        text.clone_into(&mut self.0[column.index()]);
    }
}

/// Reads cells. An unreadable cell adds a fault and reads as empty.
pub(crate) struct Reader<'a> {
    pub(crate) cells: &'a Cells,
    pub(crate) faults: Vec<Fault>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(cells: &'a Cells) -> Self {
        Reader {
            cells,
            faults: Vec::new(),
        }
    }

    pub(crate) fn fault(&mut self, column: Column, problem: Problem) {
        self.faults.push(Fault { column, problem });
    }

    /// Reads the columns that are fields of `T`. Each may be empty.
    pub(crate) fn read<T: DeserializeOwned>(&mut self) -> T {
        let mut cells = self.cells.clone();
        loop {
            match T::deserialize(&cells) {
                Ok(group) => return group,
                Err(unread) => {
                    let column = unread.column.expect("empty cells are skipped");
                    self.unreadable(column, unread.wanted);
                    cells.set(column, "");
                }
            }
        }
    }

    /// Reads a cell that may be empty.
    pub(crate) fn opt<T: DeserializeOwned>(&mut self, column: Column) -> Option<T> {
        let read = T::deserialize(Cell(self.cells.given(column)?));
        read.map_err(|unread| self.unreadable(column, unread.wanted))
            .ok()
    }

    fn unreadable(&mut self, column: Column, wanted: String) {
        let value = self.cells.get(column).to_owned();
        self.fault(column, Problem::Unreadable { value, wanted });
    }

    /// Reads a cell that must not be empty.
    pub(crate) fn required<T: DeserializeOwned>(
        &mut self,
        column: Column,
        wanted: &'static str,
    ) -> Option<T> {
        if self.cells.given(column).is_none() {
            self.fault(column, Problem::Empty { wanted });
        }
        self.opt(column)
    }
}

/// Why a cell cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("not {wanted}")]
pub(crate) struct Unread {
    column: Option<Column>,
    /// Describes valid text, to complete "is not …".
    wanted: String,
}

impl de::Error for Unread {
    fn custom<T: fmt::Display>(wanted: T) -> Self {
        Unread {
            column: None,
            wanted: wanted.to_string(),
        }
    }

    fn unknown_variant(_: &str, words: &'static [&'static str]) -> Self {
        Self::custom(format!("one of {}", words.join(", ")))
    }

    fn invalid_value(value: de::Unexpected<'_>, wanted: &dyn de::Expected) -> Self {
        match value {
            de::Unexpected::Unsigned(0) => Self::custom("a whole number from 1"),
            _ => Self::custom(wanted),
        }
    }
}

/// The text of a cell that is not empty.
#[derive(Clone, Copy)]
pub(crate) struct Cell<'a>(pub(crate) &'a str);

impl<'de> Deserializer<'de> for Cell<'_> {
    type Error = Unread;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        visitor.visit_str(self.0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        match self.0 {
            "0" => visitor.visit_bool(false),
            "1" => visitor.visit_bool(true),
            _ => Err(Unread::custom("0 or 1")),
        }
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        let n = whole(self.0).and_then(|n| u32::try_from(n).ok());
        let n = n.ok_or_else(|| Unread::custom(format!("a whole number up to {}", u32::MAX)));
        visitor.visit_u32(n?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        let n = whole(self.0);
        visitor.visit_u64(n.ok_or_else(|| Unread::custom("a whole number"))?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        let n = number(self.0);
        visitor.visit_f64(n.ok_or_else(|| Unread::custom("a number"))?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unread> {
        visitor.visit_enum(de::value::StrDeserializer::new(self.0))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 u8 u16 f32 char str string bytes byte_buf unit unit_struct newtype_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}

/// A row as a map of the cells that are not empty.
impl<'de> Deserializer<'de> for &Cells {
    type Error = Unread;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        let given = Column::ALL.iter().filter_map(|column| {
            let text = self.given(*column)?;
            Some((*column, Cell(text)))
        });
        visitor.visit_map(Given { given, next: None })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Cells that are not empty, by column.
struct Given<'a, I> {
    given: I,
    next: Option<(Column, Cell<'a>)>,
}

impl<'de, 'a, I: Iterator<Item = (Column, Cell<'a>)>> MapAccess<'de> for Given<'a, I> {
    type Error = Unread;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Unread> {
        self.next = self.given.next();
        let key = self.next.map(|(column, _)| Cell(column.name()));
        key.map(|name| seed.deserialize(name)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Unread> {
        let (column, cell) = self.next.take().expect("serde asks for a key first");
        seed.deserialize(cell).map_err(|unread| Unread {
            column: Some(column),
            ..unread
        })
    }
}
