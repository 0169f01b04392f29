//! Reads the entries of a preset file.

use std::ops::Range;

use adverb_verbs::LinkLayer;
use toml_edit::{Item, Table, Value};

use super::Preset;
use super::error::{EntryProblem, PresetError};
use super::kind::{Driver, Kind};
use crate::params::{Field, field};

const LINK_LAYERS: [(&str, LinkLayer); 3] = [
    ("infiniband", LinkLayer::InfiniBand),
    ("ethernet", LinkLayer::Ethernet),
    ("iwarp", LinkLayer::Iwarp),
];

/// Reads entries of `text`; errors name `file` and the line of an invalid entry.
pub(super) struct Reader<'t> {
    pub(super) file: &'t str,
    pub(super) text: &'t str,
}

impl Reader<'_> {
    fn impossible(
        &self,
        name: &str,
        value: impl Into<String>,
        expected: impl Into<String>,
        at: Option<Range<usize>>,
    ) -> PresetError {
        let problem = EntryProblem::Impossible {
            name: name.into(),
            value: value.into(),
            expected: expected.into(),
        };
        self.invalid(at, problem)
    }

    pub(super) fn invalid(&self, at: Option<Range<usize>>, problem: EntryProblem) -> PresetError {
        let before = self.text.get(..at.map_or(0, |range| range.start));
        PresetError::Entry {
            file: self.file.into(),
            line: 1 + before.map_or(0, |before| before.matches('\n').count()),
            problem,
        }
    }

    fn text_of<'i>(&self, name: &str, item: &'i Item) -> Result<&'i str, PresetError> {
        item.as_str()
            .ok_or_else(|| self.impossible(name, item.to_string().trim(), "a string", item.span()))
    }

    pub(super) fn base(&self, item: &Item) -> Result<Preset, PresetError> {
        let name = self.text_of("extends", item)?;
        Preset::built_in(name)
            .map_err(|_| self.invalid(item.span(), EntryProblem::UnknownBase(name.into())))
    }

    pub(super) fn entry(
        &self,
        preset: &mut Preset,
        key: &str,
        item: &Item,
    ) -> Result<(), PresetError> {
        match key {
            "name" => preset.name = self.text_of(key, item)?.into(),
            "summary" => preset.summary = self.text_of(key, item)?.into(),
            "extends" => {}
            "kind" => preset.become_kind(self.choice(key, item, &Kind::NAMES)?),
            "driver" => preset.driver = self.choice(key, item, &Driver::NAMES)?,
            "link_layer" => preset.link_layer = self.choice(key, item, &LINK_LAYERS)?,
            group => match item.as_table() {
                Some(table) => self.group(preset, group, table)?,
                None => return Err(self.unknown(group, item.span())),
            },
        }
        Ok(())
    }

    /// Reads one of a few names.
    fn choice<T: Copy>(
        &self,
        key: &str,
        item: &Item,
        names: &[(&str, T)],
    ) -> Result<T, PresetError> {
        let given = self.text_of(key, item)?;
        let found = names.iter().find(|(name, _)| *name == given);
        found.map(|(_, choice)| *choice).ok_or_else(|| {
            let choices: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            self.impossible(key, given, choices.join(", "), item.span())
        })
    }

    fn group(&self, preset: &mut Preset, group: &str, table: &Table) -> Result<(), PresetError> {
        for (name, item) in table {
            let at = table.key(name).and_then(toml_edit::Key::span);
            let found = self.field(&format!("{group}.{name}"), at.clone())?;
            let shape = "write { value = NUMBER, source = \"WHERE FROM\" }";
            let wrong = || self.impossible(found.path, item.to_string().trim(), shape, at.clone());
            let given = item.as_inline_table().ok_or_else(wrong)?;
            let value = given.get("value").and_then(number).ok_or_else(wrong)?;
            let source = given.get("source").and_then(Value::as_str);
            self.assign(preset, found, value, source.ok_or_else(wrong)?, at.clone())?;
        }
        Ok(())
    }

    fn unknown(&self, path: &str, at: Option<Range<usize>>) -> PresetError {
        self.invalid(at, EntryProblem::UnknownParameter(path.into()))
    }

    pub(super) fn field(
        &self,
        path: &str,
        at: Option<Range<usize>>,
    ) -> Result<&'static Field, PresetError> {
        field(path).ok_or_else(|| self.unknown(path, at))
    }

    pub(super) fn assign(
        &self,
        preset: &mut Preset,
        field: &'static Field,
        value: f64,
        source: &str,
        at: Option<Range<usize>>,
    ) -> Result<(), PresetError> {
        if !field.is_of(preset.kind) {
            let expected = format!("kind = \"{}\" has no such parameter", preset.kind.name());
            return Err(self.impossible(field.path, value.to_string(), expected, at));
        }
        let value = field
            .check(value)
            .map_err(|expected| self.impossible(field.path, value.to_string(), expected, at))?;
        (field.set)(&mut preset.params, value);
        preset.sources.insert(field.path, source.to_owned());
        Ok(())
    }
}

fn number(value: &Value) -> Option<f64> {
    value
        .as_float()
        .or_else(|| value.as_integer().map(|n| n as f64))
}
