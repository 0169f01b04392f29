//! Probabilities.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Probability 1 in steps.
const ONE: u32 = 1_000_000_000;

/// A probability, in steps of 10^-9: exact, so that equal ones compare equal. In JSON a number from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Probability(u32);

impl Probability {
    /// Probability 0.
    pub const ZERO: Probability = Probability(0);

    /// Returns `n` in a million, at most 1.
    pub const fn per_million(n: u32) -> Self {
        let n = if n > 1_000_000 { 1_000_000 } else { n };
        Probability(n * (ONE / 1_000_000))
    }

    /// Returns the probability nearest to `share`; `None` unless it is from 0 to 1.
    pub fn new(share: f64) -> Option<Self> {
        let is_one = (0.0..=1.0).contains(&share);
        is_one.then(|| Probability((share * f64::from(ONE)).round() as u32))
    }

    /// Returns the probability, from 0 to 1.
    pub fn get(self) -> f64 {
        f64::from(self.0) / f64::from(ONE)
    }

    /// Returns true with this probability, given a uniformly distributed `random`.
    pub const fn happens(self, random: u64) -> bool {
        ((random as u128 * ONE as u128) >> 64) < self.0 as u128
    }
}

impl fmt::Display for Probability {
    /// `1 %`, `0.01 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PERCENT: u32 = ONE / 100;
        let (whole, rest) = (self.0 / PERCENT, self.0 % PERCENT);
        let digits = format!("{rest:07}");
        f.pad(&match digits.trim_end_matches('0') {
            "" => format!("{whole} %"),
            digits => format!("{whole}.{digits} %"),
        })
    }
}

/// The text is not a probability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid probability '{text}': expected 0 to 100 with %, or 0 to 1, such as 1% or 0.01")]
pub struct ParseProbabilityError {
    text: String,
}

impl FromStr for Probability {
    type Err = ParseProbabilityError;

    /// Reads `1%`, `0.5 %`, `0.01`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseProbabilityError {
            text: text.to_owned(),
        };
        let (number, whole) = match text.strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 100.0),
            None => (text, 1.0),
        };
        // Rejects signs, `inf` and `1e-3`.
        if !number.starts_with(|c: char| c.is_ascii_digit())
            || !number.chars().all(|c| c.is_ascii_digit() || c == '.')
        {
            return Err(refuse());
        }
        let share: f64 = number.parse().map_err(|_| refuse())?;
        Probability::new(share / whole).ok_or_else(refuse)
    }
}

impl Serialize for Probability {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(self.get())
    }
}

impl<'de> Deserialize<'de> for Probability {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(d)?;
        Probability::new(share).ok_or_else(|| {
            serde::de::Error::custom(format!("invalid probability {share}: expected 0 to 1"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_and_shares_are_the_same() {
        for (text, shown) in [
            ("1%", "1 %"),
            ("0.01", "1 %"),
            ("0", "0 %"),
            ("0%", "0 %"),
            ("100 %", "100 %"),
            ("1", "100 %"),
            ("0.1%", "0.1 %"),
            ("2.5%", "2.5 %"),
            ("0.0001%", "0.0001 %"),
        ] {
            let probability: Probability = text.parse().unwrap();
            assert_eq!(probability.to_string(), shown, "{text}");
        }
        assert_eq!("1%".parse(), Ok(Probability::per_million(10_000)));
    }

    #[test]
    fn invalid_probabilities_are_refused() {
        for text in [
            "",
            "%",
            "-1",
            "2",
            "101%",
            "1e-3",
            "inf",
            "NaN",
            "1 percent",
            ".5",
            "1%%",
        ] {
            let refused = text.parse::<Probability>().unwrap_err().to_string();
            assert!(refused.contains(&format!("'{text}'")), "{refused}");
        }
    }

    #[test]
    fn it_happens_as_often_as_it_says() {
        let half = Probability::per_million(500_000);
        assert!(half.happens(0) && half.happens((1 << 63) - 1) && !half.happens(1 << 63));
        let sure = Probability::per_million(1_000_000);
        assert!(sure.happens(u64::MAX) && !Probability::ZERO.happens(0));
    }
}
