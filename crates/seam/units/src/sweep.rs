//! Values of a parameter that is swept: `64`, `8,64,4K`, `1..1M`.

use std::fmt;
use std::str::FromStr;

use crate::Bytes;

/// Most points of one parameter.
const MOST_POINTS: usize = 1024;

/// A parameter that ranges can double.
pub trait Doubling: FromStr + Copy + Ord + fmt::Display {
    /// Twice the value; `None` if it does not fit.
    fn doubled(self) -> Option<Self>;
}

macro_rules! doubling {
    ($($type:ty),+) => {$(
        impl Doubling for $type {
            fn doubled(self) -> Option<Self> {
                self.checked_mul(2)
            }
        }
    )+};
}

doubling!(u32, u64);

impl Doubling for Bytes {
    fn doubled(self) -> Option<Self> {
        self.get().doubled().map(Bytes::new)
    }
}

/// The points of a swept parameter, at least one, in the order in which they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep<T>(Vec<T>);

impl<T: Doubling> Sweep<T> {
    /// A single point.
    pub fn one(value: T) -> Self {
        Sweep(vec![value])
    }

    /// The points.
    pub fn points(&self) -> &[T] {
        &self.0
    }
}

/// The text is not a sweep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' {reason}: write a value, a list such as 8,64,4096, or a range that doubles such as 1..64"
)]
pub struct ParseSweepError {
    text: String,
    reason: String,
}

impl<T: Doubling> FromStr for Sweep<T>
where
    T::Err: fmt::Display,
{
    type Err = ParseSweepError;

    /// Reads a list of values and ranges; `1..10` is 1, 2, 4, 8.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |reason: String| ParseSweepError {
            text: text.to_owned(),
            reason,
        };
        let value = |part: &str| {
            let wrong = |_| refused(format!("has the invalid value '{part}'"));
            part.trim().parse::<T>().map_err(wrong)
        };
        let mut points = Vec::new();
        for part in text.split(',') {
            let Some((first, last)) = part.split_once("..") else {
                points.push(value(part)?);
                continue;
            };
            let (first, last) = (value(first)?, value(last)?);
            let is_zero = first.doubled() == Some(first);
            if first > last || is_zero {
                return Err(refused(format!("has no points from {first} to {last}")));
            }
            let doubled = std::iter::successors(Some(first), |point| point.doubled());
            points.extend(doubled.take_while(|point| *point <= last));
        }
        if points.len() > MOST_POINTS {
            return Err(refused(format!("has more than {MOST_POINTS} points")));
        }
        Ok(Sweep(points))
    }
}

impl<T: fmt::Display> fmt::Display for Sweep<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.pad(&points.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<u64> {
        let sweep: Sweep<Bytes> = text.parse().unwrap();
        sweep.points().iter().map(|size| size.get()).collect()
    }

    #[test]
    fn values_lists_and_ranges_are_read() {
        assert_eq!(sizes("64"), [64]);
        assert_eq!(sizes("0"), [0]);
        assert_eq!(sizes("8,64,4K"), [8, 64, 4096]);
        assert_eq!(sizes("1..10"), [1, 2, 4, 8]);
        assert_eq!(sizes("1..2, 1K..2K"), [1, 2, 1024, 2048]);
        assert_eq!(sizes("9223372036854775808..18446744073709551615").len(), 1);
        let counts: Sweep<u32> = "1,2,4".parse().unwrap();
        assert_eq!(counts.to_string(), "1,2,4");
    }

    #[test]
    fn a_sweep_without_points_is_refused_with_what_is_accepted() {
        for text in ["", ",", "8,", "x", "8..4", "0..8", "1..", "..4", "1...4"] {
            let error = text.parse::<Sweep<u32>>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("'{text}' has ")), "{error}");
            assert!(error.contains("a list such as 8,64,4096"), "{error}");
        }
    }
}
