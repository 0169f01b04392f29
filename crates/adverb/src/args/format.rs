//! `--json`: results for programs.

use clap::builder::{BoolValueParser, TypedValueParser};

/// Format of results on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Tables and sentences.
    Text,
    /// JSON objects, each on a line of its own.
    Json,
}

/// Parses the flag `--json`.
pub(super) fn format() -> impl TypedValueParser<Value = Format> {
    BoolValueParser::new().map(|is_json| match is_json {
        true => Format::Json,
        false => Format::Text,
    })
}
