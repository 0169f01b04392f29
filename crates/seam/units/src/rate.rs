//! Rates, with decimal multiples.

use std::fmt;

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
    /// `messages` in `elapsed`; `None` if no time passed.
    pub fn over(messages: u64, elapsed: Span) -> Option<Self> {
        (elapsed > Span::ZERO).then(|| MessageRate(messages as f64 / elapsed.as_secs_f64()))
    }

    /// Messages per second.
    pub const fn per_second(self) -> f64 {
        self.0
    }
}

impl Throughput {
    /// `bytes` in `elapsed`; `None` if no time passed.
    pub fn over(bytes: Bytes, elapsed: Span) -> Option<Self> {
        (elapsed > Span::ZERO).then(|| Throughput(bytes.get() as f64 / elapsed.as_secs_f64()))
    }

    /// Bytes per second.
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
    fn no_rate_without_time() {
        assert!(MessageRate::over(1, Span::ZERO).is_none());
        assert!(Throughput::over(Bytes::new(1), Span::ZERO).is_none());
    }
}
