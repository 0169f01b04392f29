//! Why a preset cannot be used, and what was probably meant.

use super::names;
use crate::params::FIELDS;

/// Why a preset cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PresetError {
    /// No preset of this name comes with Adverb.
    #[error("there is no preset '{0}'{near} The newest are {NEWEST}; for other hardware write a file that extends one (docs/model.md)", near = near_or_all(.0))]
    Unknown(String),
    /// An entry of a file is invalid.
    #[error("{file}:{line}: {problem}")]
    Entry {
        /// The file.
        file: String,
        /// The line of the entry, from 1.
        line: usize,
        /// What is wrong with it.
        problem: EntryProblem,
    },
    /// A preset that extends none lacks a parameter.
    #[error("{file}: {name} is missing; give it, or extend a preset that has it")]
    Missing {
        /// The file.
        file: String,
        /// The parameter.
        name: &'static str,
    },
    /// Parameters contradict each other.
    #[error("{file}: {problem}")]
    Contradiction {
        /// The file.
        file: String,
        /// Which parameters, with their values and the reason.
        problem: String,
    },
}

/// What is wrong with an entry of a preset file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryProblem {
    /// It extends a preset that does not come with Adverb.
    #[error("extends = '{0}', but there is no such preset{near}", near = near_or_all(.0))]
    UnknownBase(String),
    /// It is not TOML, for this reason.
    #[error("{0}")]
    Syntax(String),
    /// The model does not have this parameter.
    #[error("there is no parameter '{0}'{near}", near = near_field(.0))]
    UnknownParameter(String),
    /// The value is out of range, or of the wrong type.
    #[error("{name} = {value} is impossible: {expected}")]
    Impossible {
        /// The parameter.
        name: String,
        /// The given value.
        value: String,
        /// Which values are possible.
        expected: String,
    },
}

/// The presets of the newest NICs.
const NEWEST: &str = "cx7, cx6dx and cx5_skylake";

/// The most similar preset, or else where all are.
fn near_or_all(name: &str) -> String {
    match closest(name, names()) {
        none if none.is_empty() => "; `adverb model list` prints all.".to_owned(),
        near => near,
    }
}

fn near_field(name: &str) -> String {
    closest(name, FIELDS.iter().map(|field| field.path).collect())
}

/// `; did you mean …?` if one of the choices is similar.
fn closest(name: &str, choices: Vec<&str>) -> String {
    let near = choices
        .into_iter()
        .map(|choice| (strsim::levenshtein(name, choice), choice))
        .min();
    match near {
        Some((distance, choice)) if distance <= 1 + name.len() / 3 => {
            format!("; did you mean {choice}?")
        }
        _ => String::new(),
    }
}
