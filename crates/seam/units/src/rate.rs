//! Rates, with decimal multiples.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Bytes, Span};

/// Messages per second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageRate(f64);

/// Bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Throughput(f64);

impl MessageRate {
    /// Returns the rate of `messages` in `elapsed`; `None` if no time passed.
    pub fn over(messages: u64, elapsed: Span) -> Option<Self> {
        (elapsed > Span::ZERO).then(|| MessageRate(messages as f64 / elapsed.as_secs_f64()))
    }

    /// Returns the number of messages per second.
    pub const fn per_second(self) -> f64 {
        self.0
    }
}

impl Throughput {
    /// Returns the rate of `bytes` in `elapsed`; `None` if no time passed.
    pub fn over(bytes: Bytes, elapsed: Span) -> Option<Self> {
        (elapsed > Span::ZERO).then(|| Throughput(bytes.get() as f64 / elapsed.as_secs_f64()))
    }

    /// Returns the number of bytes per second.
    pub const fn bytes_per_second(self) -> f64 {
        self.0
    }

    /// Returns half of it: one of two equal directions.
    pub const fn halved(self) -> Self {
        Throughput(self.0 / 2.0)
    }

    /// Returns it in bits per second, as `78.4 Gbit/s`.
    pub fn in_bits(self) -> String {
        decimal(self.0 * 8.0, "bit/s")
    }
}

/// The bit rate of a link, not 0. In JSON a number of bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BitRate(NonZeroU64);

impl BitRate {
    /// Returns `n` Gbit/s.
    ///
    /// # Panics
    /// `n` is 0, or more than fits.
    pub const fn gbit(n: u64) -> Self {
        let bits = NonZeroU64::new(n * 1_000_000_000);
        BitRate(bits.expect("a rate is not 0"))
    }

    /// Returns it in bits per second.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Returns how long a link of this rate needs for `bytes`.
    pub const fn time_of(self, bytes: Bytes) -> Span {
        let ps = bytes.get() as u128 * 8 * 1_000_000_000_000 / self.get() as u128;
        Span::from_ps(if ps > u64::MAX as u128 {
            u64::MAX
        } else {
            ps as u64
        })
    }
}

impl fmt::Display for BitRate {
    /// `10.0 Gbit/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&decimal(self.get() as f64, "bit/s"))
    }
}

/// The text is not a bit rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid rate '{text}': expected a number and a unit, such as 10Gbit/s, 2.5Gbit or 100Mbit"
)]
pub struct ParseBitRateError {
    text: String,
}

impl FromStr for BitRate {
    type Err = ParseBitRateError;

    /// Reads `10Gbit/s`, `2.5Gbit`, `100mbit`, `64kbit`, as `tc` does.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let unit_at = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
            let (number, unit) = text.split_at(unit_at);
            let unit = unit.trim_start().to_ascii_lowercase();
            let prefix = unit
                .strip_suffix("/s")
                .unwrap_or(&unit)
                .strip_suffix("bit")?;
            let scale = match prefix {
                "" => 1.0,
                "k" => 1e3,
                "m" => 1e6,
                "g" => 1e9,
                "t" => 1e12,
                _ => return None,
            };
            let number: f64 = number.parse().ok()?;
            NonZeroU64::new((number * scale).round() as u64).map(BitRate)
        };
        parse().ok_or_else(|| ParseBitRateError {
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for MessageRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&decimal(self.0, "/s"))
    }
}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&decimal(self.0, "B/s"))
    }
}

fn decimal(value: f64, unit: &str) -> String {
    let (scale, prefix) = match value {
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{} {prefix}{unit}", three_digits(value / scale))
}

/// Formats a value with three significant digits, without exponent: `1.23`, `12.3`, `123`.
pub fn three_digits(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_decimal_multiples() {
        let rate = MessageRate::over(12_300_000, Span::from_secs(1)).unwrap();
        assert_eq!(rate.to_string(), "12.3 M/s");
        let throughput = Throughput::over(Bytes::new(9_800_000_000), Span::from_secs(1)).unwrap();
        assert_eq!(throughput.to_string(), "9.80 GB/s");
        assert_eq!(throughput.in_bits(), "78.4 Gbit/s");
        assert_eq!(
            MessageRate::over(7, Span::from_secs(1))
                .unwrap()
                .to_string(),
            "7.00 /s"
        );
    }

    #[test]
    fn reads_bit_rates_as_tc_does() {
        let rate = |text: &str| text.parse::<BitRate>();
        assert_eq!(rate("10Gbit/s").unwrap().get(), 10_000_000_000);
        assert_eq!(rate("2.5gbit").unwrap().to_string(), "2.50 Gbit/s");
        assert_eq!(rate("100 Mbit"), rate("100000kbit/s"));
        for bad in ["", "10", "Gbit", "10GB/s", "0Gbit", "-1Gbit", "0.1bit"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
        let span = rate("10Gbit").unwrap().time_of(Bytes::new(1250));
        assert_eq!(span, Span::from_us(1));
        let longest = rate("1bit").unwrap().time_of(Bytes::new(u64::MAX));
        assert_eq!(longest, Span::MAX);
    }

    #[test]
    fn no_rate_without_time() {
        assert!(MessageRate::over(1, Span::ZERO).is_none());
        assert!(Throughput::over(Bytes::new(1), Span::ZERO).is_none());
    }
}
