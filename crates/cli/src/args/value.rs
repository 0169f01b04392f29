//! Parsers of values.

use std::str::FromStr;

use adverb_units::{ParseSpanError, Span};
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Takes one of these words for its value.
pub(super) fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    words: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let parser = PossibleValuesParser::new(words.each_ref().map(|(word, _)| *word));
    parser.map(move |typed| {
        let found = words.iter().find(|(word, _)| *word == typed);
        found.expect("the parser takes no other word").1.clone()
    })
}

/// A whole number; whether 0 makes sense is for the program to say.
pub(super) fn count<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("'{text}' is no count: write a whole number from 1"))
}

/// A duration; in seconds if it has no unit.
pub(super) fn duration(text: &str) -> Result<Span, String> {
    let span = match text.ends_with(|c: char| c.is_ascii_digit()) {
        true => format!("{text}s").parse(),
        false => text.parse(),
    };
    span.map_err(|_: ParseSpanError| {
        format!("invalid duration '{text}': expected seconds, such as 10 or 0.5, or a number with a unit, such as 500ms or 20us")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_without_a_unit_are_seconds() {
        assert_eq!(duration("10"), Ok(Span::from_secs(10)));
        assert_eq!(duration("0.5"), duration("500ms"));
        for bad in ["", "s", "-1", "1e3", "10m"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
