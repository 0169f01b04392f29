//! One cell: how its text becomes a value, and what it should have been.

use std::num::{NonZeroU32, NonZeroU64};

use adverb_units::{Bytes, MessageRate, Span, Throughput};

/// What a cell should have held, to complete "is not …": `a whole number`, `one of on, off`.
pub(crate) type Wanted = String;

/// A type that a cell is read as.
pub(crate) trait Cell: Sized {
    /// The value of a cell that is not empty.
    fn read(text: &str) -> Result<Self, Wanted>;
}

/// The largest whole number that `f64` holds with all those below it.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A whole number; also as other programs write one: `16.0`, `1e6`.
fn whole(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| {
        let n = number(text)?;
        ((0.0..EXACT).contains(&n) && n.fract() == 0.0).then_some(n as u64)
    })
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|n: &f64| n.is_finite())
}

impl Cell for String {
    fn read(text: &str) -> Result<Self, Wanted> {
        Ok(text.to_owned())
    }
}

impl Cell for f64 {
    fn read(text: &str) -> Result<Self, Wanted> {
        number(text).ok_or_else(|| "a number".to_owned())
    }
}

impl Cell for bool {
    fn read(text: &str) -> Result<Self, Wanted> {
        match text {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err("0 or 1".to_owned()),
        }
    }
}

impl Cell for u64 {
    fn read(text: &str) -> Result<Self, Wanted> {
        whole(text).ok_or_else(|| "a whole number".to_owned())
    }
}

impl Cell for u32 {
    fn read(text: &str) -> Result<Self, Wanted> {
        whole(text)
            .and_then(|n| u32::try_from(n).ok())
            .ok_or_else(|| format!("a whole number up to {}", u32::MAX))
    }
}

impl Cell for NonZeroU32 {
    fn read(text: &str) -> Result<Self, Wanted> {
        u32::read(text)
            .ok()
            .and_then(NonZeroU32::new)
            .ok_or_else(|| format!("a whole number from 1 to {}", u32::MAX))
    }
}

impl Cell for NonZeroU64 {
    fn read(text: &str) -> Result<Self, Wanted> {
        whole(text)
            .and_then(NonZeroU64::new)
            .ok_or_else(|| "a whole number from 1".to_owned())
    }
}

impl Cell for Bytes {
    fn read(text: &str) -> Result<Self, Wanted> {
        whole(text)
            .map(Bytes::new)
            .ok_or_else(|| "a whole number of bytes".to_owned())
    }
}

/// At least one byte.
pub(crate) struct SomeBytes(pub(crate) Bytes);

impl Cell for SomeBytes {
    fn read(text: &str) -> Result<Self, Wanted> {
        Bytes::read(text)
            .ok()
            .filter(|b| b.get() > 0)
            .map(SomeBytes)
            .ok_or_else(|| "a whole number of bytes from 1".to_owned())
    }
}

/// Sizes one after the other: `64`, `16+1024`.
impl Cell for Vec<Bytes> {
    fn read(text: &str) -> Result<Self, Wanted> {
        text.split(['+', ',', ';', '/', ' '])
            .filter(|size| !size.is_empty())
            .map(Bytes::read)
            .collect::<Result<Vec<_>, _>>()
            .ok()
            .filter(|sizes| !sizes.is_empty())
            .ok_or_else(|| "a list of sizes in bytes such as 64 or 16+1024".to_owned())
    }
}

/// A part of a whole, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Share(f64);

impl Share {
    /// 0 to 1.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Cell for Share {
    fn read(text: &str) -> Result<Self, Wanted> {
        number(text)
            .filter(|n| (0.0..=1.0).contains(n))
            .map(Share)
            .ok_or_else(|| "a number from 0 to 1".to_owned())
    }
}

/// A mean number of things.
pub(crate) struct Mean(pub(crate) f64);

impl Cell for Mean {
    fn read(text: &str) -> Result<Self, Wanted> {
        number(text)
            .filter(|n| *n >= 0.0)
            .map(Mean)
            .ok_or_else(|| "a number from 0".to_owned())
    }
}

/// Operations a second.
pub(crate) struct PerSecond(pub(crate) MessageRate);

impl Cell for PerSecond {
    fn read(text: &str) -> Result<Self, Wanted> {
        number(text)
            .filter(|n| *n >= 1.0 && *n < EXACT)
            .and_then(|n| MessageRate::over(n.round() as u64, Span::from_secs(1)))
            .map(PerSecond)
            .ok_or_else(|| "a rate from 1 operation per second".to_owned())
    }
}

/// Gigabits a second.
pub(crate) struct Gbps(pub(crate) Throughput);

impl Cell for Gbps {
    fn read(text: &str) -> Result<Self, Wanted> {
        const BYTES: f64 = 1e9 / 8.0;
        number(text)
            .map(|n| (n * BYTES).round())
            .filter(|n| *n >= 1.0 && *n < EXACT)
            .and_then(|n| Throughput::over(Bytes::new(n as u64), Span::from_secs(1)))
            .map(Gbps)
            .ok_or_else(|| "a data rate in Gb/s, above 0".to_owned())
    }
}

/// Microseconds.
pub(crate) struct Micros(pub(crate) Span);

impl Cell for Micros {
    fn read(text: &str) -> Result<Self, Wanted> {
        number(text)
            .filter(|n| (0.0..=3.6e9).contains(n))
            .map(|n| Micros(Span::from_secs_f64(n / 1e6)))
            .ok_or_else(|| "a time in microseconds, 0 to an hour".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_as_spreadsheets_write_them() {
        for (text, n) in [("0", 0), ("16384", 16384), ("16.0", 16), ("1e6", 1_000_000)] {
            assert_eq!(u64::read(text), Ok(n), "{text}");
        }
        for bad in ["", "-1", "1.5", "many", "NaN", "inf", "1e300"] {
            assert!(u64::read(bad).is_err(), "{bad}");
        }
        assert!(NonZeroU32::read("0").is_err());
        assert!(u32::read("4294967296").is_err());
    }

    #[test]
    fn quantities_keep_their_units() {
        assert_eq!(Micros::read("4000").unwrap().0, Span::from_ms(4));
        assert_eq!(
            Gbps::read("54.5").unwrap().0.bytes_per_second(),
            6_812_500_000.0
        );
        assert_eq!(PerSecond::read("5e6").unwrap().0.per_second(), 5e6);
        assert_eq!(
            Vec::<Bytes>::read("16+1024").unwrap(),
            [Bytes::new(16), Bytes::kib(1)]
        );
        assert!(Vec::<Bytes>::read("+").is_err());
        assert!(Share::read("1.01").is_err());
        assert!(Micros::read("-1").is_err());
        assert!(Gbps::read("0").is_err());
    }
}
