//! `--json`: results for programs instead of people.

use clap::builder::{BoolValueParser, TypedValueParser};

/// What results on stdout look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Tables and sentences.
    Text,
    /// JSON objects, each on a line of its own.
    Json,
}

/// What the flag `--json` means.
pub(super) fn format() -> impl TypedValueParser<Value = Format> {
    BoolValueParser::new().map(|is_json| match is_json {
        true => Format::Json,
        false => Format::Text,
    })
}
