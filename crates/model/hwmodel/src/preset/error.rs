//! Why a preset cannot be used, and what was probably meant.

use super::names;
use crate::params::FIELDS;

/// Why a preset cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PresetError {
    /// No preset of that name comes with Adverb.
    #[error("there is no preset '{name}'{}", near_or_all(name))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// A preset extends one that does not come with Adverb.
    #[error(
        "{file}:{line}: extends = '{name}', but there is no such preset{}",
        near_or_all(name)
    )]
    UnknownBase {
        /// Which file.
        file: String,
        /// Where.
        line: usize,
        /// What it extends.
        name: String,
    },
    /// The file is not TOML.
    #[error("{file}:{line}: {message}")]
    Syntax {
        /// Which file.
        file: String,
        /// Where.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// A parameter that the model does not have.
    #[error("{file}:{line}: there is no parameter '{name}'{}", near_field(name))]
    UnknownParameter {
        /// Which file.
        file: String,
        /// Where.
        line: usize,
        /// Its name.
        name: String,
    },
    /// A value outside of what is possible.
    #[error("{file}:{line}: {name} = {value} is impossible: {expected}")]
    Impossible {
        /// Which file.
        file: String,
        /// Where.
        line: usize,
        /// Which parameter.
        name: String,
        /// What was given.
        value: String,
        /// What would be possible.
        expected: String,
    },
    /// A preset that extends none lacks a parameter.
    #[error("{file}: {name} is missing; give it, or extend a preset that has it")]
    Missing {
        /// Which file.
        file: String,
        /// Which parameter.
        name: &'static str,
    },
}
/// The near preset, or else all there are.
fn near_or_all(name: &str) -> String {
    match closest(name, names()) {
        none if none.is_empty() => format!("; presets: {}", names().join(", ")),
        near => near,
    }
}

fn near_field(name: &str) -> String {
    closest(name, FIELDS.iter().map(|field| field.path).collect())
}

/// `; did you mean …?`, where something is near.
fn closest(name: &str, choices: Vec<&str>) -> String {
    let near = choices
        .into_iter()
        .map(|choice| (distance(name, choice), choice))
        .min();
    match near {
        Some((distance, choice)) if distance <= 1 + name.len() / 3 => {
            format!("; did you mean {choice}?")
        }
        _ => String::new(),
    }
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
