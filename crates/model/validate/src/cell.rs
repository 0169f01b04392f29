//! Deserializes cells that hold a quantity, in the unit that the column's name ends with.
//!
//! Errors complete "is not …": `a whole number of bytes`.

use adverb_units::{Bytes, MessageRate, Span, Throughput};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// 2^53: `f64` represents all whole numbers up to it exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A whole number, including the spellings of spreadsheets: `16.0`, `1e6`.
pub(crate) fn whole(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| {
        let n = number(text)?;
        ((0.0..EXACT).contains(&n) && n.fract() == 0.0).then_some(n as u64)
    })
}

/// A finite number.
pub(crate) fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|n: &f64| n.is_finite())
}

/// Reads a cell's text. `wanted` describes valid text.
fn parse<'de, D: Deserializer<'de>, T>(
    cell: D,
    wanted: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, D::Error> {
    let text = String::deserialize(cell)?;
    read(&text).ok_or_else(|| D::Error::custom(wanted))
}

/// A fraction from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    /// The fraction.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(cell: D) -> Result<Self, D::Error> {
        let share = |text: &str| number(text).filter(|n| (0.0..=1.0).contains(n));
        parse(cell, "a number from 0 to 1", share).map(Share)
    }
}

pub(crate) fn bytes<'de, D: Deserializer<'de>>(cell: D) -> Result<Option<Bytes>, D::Error> {
    parse(cell, "a whole number of bytes", whole).map(|n| Some(Bytes::new(n)))
}

/// At least one byte.
pub(crate) fn some_bytes<'de, D: Deserializer<'de>>(cell: D) -> Result<Option<Bytes>, D::Error> {
    let some = |text: &str| whole(text).filter(|n| *n > 0);
    parse(cell, "a whole number of bytes from 1", some).map(|n| Some(Bytes::new(n)))
}

/// A list of sizes: `64`, `16+1024`.
pub(crate) fn sizes<'de, D: Deserializer<'de>>(cell: D) -> Result<Vec<Bytes>, D::Error> {
    let wanted = "a list of sizes in bytes such as 64 or 16+1024";
    parse(cell, wanted, |text| {
        let sizes = text.split(['+', ',', ';', '/', ' ']);
        let sizes = sizes.filter(|size| !size.is_empty());
        let sizes: Option<Vec<_>> = sizes.map(|size| whole(size).map(Bytes::new)).collect();
        sizes.filter(|sizes| !sizes.is_empty())
    })
}

/// A mean count.
pub(crate) fn mean<'de, D: Deserializer<'de>>(cell: D) -> Result<Option<f64>, D::Error> {
    let mean = |text: &str| number(text).filter(|n| *n >= 0.0);
    parse(cell, "a number from 0", mean).map(Some)
}

/// Operations per second.
pub(crate) fn per_second<'de, D: Deserializer<'de>>(
    cell: D,
) -> Result<Option<MessageRate>, D::Error> {
    let wanted = "a rate from 1 operation per second";
    let rate = parse(cell, wanted, |text| {
        let n = number(text).filter(|n| *n >= 1.0 && *n < EXACT)?;
        MessageRate::over(n.round() as u64, Span::from_secs(1))
    });
    rate.map(Some)
}

/// Gigabits per second.
pub(crate) fn gbps<'de, D: Deserializer<'de>>(cell: D) -> Result<Option<Throughput>, D::Error> {
    const BYTES: f64 = 1e9 / 8.0;
    let rate = parse(cell, "a data rate in Gb/s, above 0", |text| {
        let n = (number(text)? * BYTES).round();
        let bytes = (1.0..EXACT).contains(&n).then_some(Bytes::new(n as u64))?;
        Throughput::over(bytes, Span::from_secs(1))
    });
    rate.map(Some)
}

pub(crate) fn micros<'de, D: Deserializer<'de>>(cell: D) -> Result<Option<Span>, D::Error> {
    let hour = |text: &str| number(text).filter(|n| (0.0..=3.6e9).contains(n));
    let span = parse(cell, "a time in microseconds, 0 to an hour", hour);
    span.map(|n| Some(Span::from_secs_f64(n / 1e6)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::Cell;

    #[test]
    fn whole_numbers_are_read_in_the_spellings_of_spreadsheets() {
        for (text, n) in [("0", 0), ("16384", 16384), ("16.0", 16), ("1e6", 1_000_000)] {
            assert_eq!(whole(text), Some(n), "{text}");
        }
        for bad in ["", "-1", "1.5", "many", "NaN", "inf", "1e300"] {
            assert_eq!(whole(bad), None, "{bad}");
        }
    }

    #[test]
    fn quantities_keep_their_units() {
        assert_eq!(micros(Cell("4000")).unwrap(), Some(Span::from_ms(4)));
        let rate = gbps(Cell("54.5")).unwrap().unwrap();
        assert_eq!(rate.bytes_per_second(), 6_812_500_000.0);
        let rate = per_second(Cell("5e6")).unwrap().unwrap();
        assert_eq!(rate.per_second(), 5e6);
        let both = [Bytes::new(16), Bytes::kib(1)];
        assert_eq!(sizes(Cell("16+1024")).unwrap(), both);
        assert!(sizes(Cell("+")).is_err());
        assert!(Share::deserialize(Cell("1.01")).is_err());
        assert!(micros(Cell("-1")).is_err());
        assert!(gbps(Cell("0")).is_err());
    }
}
