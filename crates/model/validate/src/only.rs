//! Selects the rows of one program, preset, curve or file.

use std::fmt;
use std::str::FromStr;

use crate::data::{Data, Entry};
use crate::near;
use crate::words::LabelKind;

/// A selection of rows: `NAME` of a program, preset, curve or file, or `program=NAME`, `preset=NAME`,
/// `curve=NAME`, `file=NAME` if the name is ambiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Only {
    /// `None`: any kind.
    kind: Option<LabelKind>,
    name: String,
}

impl LabelKind {
    fn label(self, entry: &Entry) -> &str {
        let labels = &entry.labels;
        match self {
            LabelKind::Program => &labels.program,
            LabelKind::Preset => &labels.preset,
            LabelKind::Curve => &labels.curve,
            LabelKind::File => &entry.place.file,
        }
    }
}

/// No row has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no row has {only}{near}", near = near::suffix(near))]
pub struct OnlyError {
    only: Only,
    near: Vec<String>,
}

impl FromStr for Only {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) = text
            .split_once('=')
            .and_then(|(kind, name)| {
                let kind = LabelKind::ALL
                    .iter()
                    .copied()
                    .find(|k| k.as_str() == kind)?;
                Some((Some(kind), name))
            })
            .unwrap_or((None, text));
        let name = name.to_owned();
        Ok(Only { kind, name })
    }
}

impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self
            .kind
            .map_or("program, preset, curve or file", LabelKind::as_str);
        write!(f, "{kind} '{}'", self.name)
    }
}

impl Only {
    /// Removes all other rows.
    ///
    /// # Errors
    /// If no row matches. Then all rows are kept.
    pub fn apply(&self, data: &mut Data) -> Result<(), OnlyError> {
        let entries = data.entries();
        if !entries.iter().any(|entry| self.matches(entry)) {
            let mut names: Vec<&str> = entries
                .iter()
                .flat_map(|entry| self.kinds().map(|kind| kind.label(entry)))
                .collect();
            names.sort_unstable();
            names.dedup();
            return Err(OnlyError {
                near: near::near(&self.name, names),
                only: self.clone(),
            });
        }
        data.retain(|entry| self.matches(entry));
        Ok(())
    }

    fn matches(&self, entry: &Entry) -> bool {
        self.kinds().any(|kind| kind.label(entry) == self.name)
    }

    fn kinds(&self) -> impl Iterator<Item = LabelKind> + use<> {
        let only = self.kind;
        LabelKind::ALL
            .iter()
            .copied()
            .filter(move |kind| only.is_none_or(|only| only == *kind))
    }
}
