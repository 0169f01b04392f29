//! Parsers of values.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;

use adverb_results::Word;
use adverb_units::{ParseSpanError, Span};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Parses one of these words to its value.
pub(super) fn one_of<T: Clone + Send + Sync + 'static, const N: usize>(
    words: [(&'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let parser = PossibleValuesParser::new(words.each_ref().map(|(word, _)| *word));
    parser.map(move |typed| {
        let found = words.iter().find(|(word, _)| *word == typed);
        found.expect("the parser takes no other word").1.clone()
    })
}

/// Parses the word of one of these values, or an alias of it.
pub(super) fn word_of<T: Word>(values: &'static [T]) -> impl TypedValueParser<Value = T> {
    let words = values.iter().map(|value| {
        let word = PossibleValue::new(value.word());
        word.aliases(value.aliases())
    });
    PossibleValuesParser::new(words).map(move |typed| {
        let is_typed = |value: &&T| value.word() == typed || value.aliases().contains(&&*typed);
        *values
            .iter()
            .find(is_typed)
            .expect("the parser takes no other word")
    })
}

/// Takes a whole number within `range`.
pub(super) fn count<T, R>(range: R) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display,
    R: RangeBounds<T> + Clone,
{
    move |text| {
        let count = text.parse().ok().filter(|count| range.contains(count));
        count.ok_or_else(|| {
            let first = match range.start_bound() {
                Bound::Included(first) => first.to_string(),
                _ => "0".to_owned(),
            };
            let last = match range.end_bound() {
                Bound::Included(last) => format!(" to {last}"),
                _ => String::new(),
            };
            format!("invalid count '{text}': expected a whole number from {first}{last}")
        })
    }
}

/// Parses a duration, in seconds if it has no unit.
pub(super) fn duration(text: &str) -> Result<Span, String> {
    let span = match text.ends_with(|c: char| c.is_ascii_digit()) {
        true => format!("{text}s").parse(),
        false => text.parse(),
    };
    span.map_err(|_: ParseSpanError| {
        format!("invalid duration '{text}': expected seconds, such as 10 or 0.5, or a number with a unit, such as 500ms or 20us")
    })
}

/// Parses messages or requests per second, with `k` or `M` for thousands or millions.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let (digits, scale) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1e3),
        Some(b'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    let rate = digits.parse::<f64>().ok().map(|rate| rate * scale);
    let rate = rate.filter(|rate| (1.0..=1e12).contains(rate));
    rate.ok_or_else(|| {
        format!("invalid rate '{text}': expected a number per second, 1 or more, such as 5000, 100k or 2M")
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

    #[test]
    fn rates_take_thousands_and_millions() {
        assert_eq!(rate("100k"), Ok(1e5));
        assert_eq!(rate("2.5M"), Ok(2.5e6));
        assert_eq!(rate("5000"), Ok(5e3));
        for bad in ["", "k", "0", "-1", "nan", "inf", "1G", "é"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
