//! Instants and durations in integer picoseconds.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

const PS_PER_NS: u64 = 1_000;
const PS_PER_US: u64 = 1_000_000;
const PS_PER_MS: u64 = 1_000_000_000;
const PS_PER_S: u64 = 1_000_000_000_000;

/// An instant: picoseconds since the epoch of the clock that gave it.
///
/// Instants of two clocks (two stations) must not be compared.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(u64);

impl Time {
    /// The clock's epoch.
    pub const ZERO: Time = Time(0);

    /// An instant `ps` picoseconds after the epoch.
    pub const fn from_ps(ps: u64) -> Self {
        Time(ps)
    }

    /// Picoseconds since the epoch.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, rhs: Span) -> Time {
        Time(self.0.saturating_add(rhs.0))
    }
}

impl Sub<Time> for Time {
    type Output = Span;
    fn sub(self, rhs: Time) -> Span {
        self.since(rhs)
    }
}

/// A length of time in picoseconds. Arithmetic saturates.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Span(u64);

impl Span {
    /// No time.
    pub const ZERO: Span = Span(0);
    /// The longest span, 213 days: no timeout in a wait.
    pub const MAX: Span = Span(u64::MAX);

    /// `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Self {
        Span(ps)
    }

    /// `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Span(ns.saturating_mul(PS_PER_NS))
    }

    /// `us` microseconds.
    pub const fn from_us(us: u64) -> Self {
        Span(us.saturating_mul(PS_PER_US))
    }

    /// `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Span(ms.saturating_mul(PS_PER_MS))
    }

    /// `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Span(s.saturating_mul(PS_PER_S))
    }

    /// A span of `s` seconds, rounded to picoseconds; negative and NaN give zero.
    pub fn from_secs_f64(s: f64) -> Self {
        Span((s * PS_PER_S as f64).round() as u64)
    }

    /// A span of `ns` nanoseconds, rounded to picoseconds; negative and NaN give zero.
    pub fn from_ns_f64(ns: f64) -> Self {
        Span((ns * PS_PER_NS as f64).round() as u64)
    }

    /// Whole picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Nanoseconds, with fraction.
    pub fn as_ns_f64(self) -> f64 {
        self.0 as f64 / PS_PER_NS as f64
    }

    /// Whole nanoseconds, rounded down.
    pub const fn as_ns(self) -> u64 {
        self.0 / PS_PER_NS
    }

    /// Seconds, with fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / PS_PER_S as f64
    }

    /// `self - other`, or zero where `other` is longer.
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for Span {
    fn from(d: Duration) -> Span {
        Span(
            u64::try_from(d.as_nanos())
                .unwrap_or(u64::MAX)
                .saturating_mul(PS_PER_NS),
        )
    }
}

impl From<Span> for Duration {
    fn from(s: Span) -> Duration {
        Duration::from_nanos(s.as_ns())
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, rhs: Span) -> Span {
        Span(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, rhs: Span) {
        *self = *self + rhs;
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, rhs: u64) -> Span {
        Span(self.0.saturating_mul(rhs))
    }
}

impl Div<u64> for Span {
    type Output = Span;
    /// # Panics
    /// If `rhs` is zero.
    fn div(self, rhs: u64) -> Span {
        Span(self.0 / rhs)
    }
}

impl Sum for Span {
    fn sum<I: Iterator<Item = Span>>(iter: I) -> Span {
        iter.fold(Span::ZERO, Add::add)
    }
}

impl fmt::Display for Span {
    /// Three significant digits in the largest unit that keeps the number at 1 or above: `1.25 µs`; `0 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            PS_PER_S.. => (PS_PER_S, "s"),
            PS_PER_MS.. => (PS_PER_MS, "ms"),
            PS_PER_US.. => (PS_PER_US, "µs"),
            PS_PER_NS.. => (PS_PER_NS, "ns"),
            1.. => return f.pad(&format!("{} ps", self.0)),
            0 => return f.pad("0 s"),
        };
        let value = crate::rate::three_digits(self.0 as f64 / unit as f64);
        f.pad(&format!("{value} {name}"))
    }
}

/// CPU time used, split as `getrusage` splits it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTime {
    /// In user mode.
    pub user: Span,
    /// In the kernel.
    pub system: Span,
}

impl CpuTime {
    /// What was used since an earlier account of the same role.
    #[must_use]
    pub const fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// The text is not a span of time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid duration '{text}': expected a number and a unit, such as 2s, 500ms, 20us or 100ns"
)]
pub struct ParseSpanError {
    text: String,
}

impl FromStr for Span {
    type Err = ParseSpanError;

    /// Reads `2s`, `1.5ms`, `20us`, `20µs`, `100ns`, `10ps`, and `0`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "0" {
            return Ok(Span::ZERO);
        }
        let refuse = || ParseSpanError {
            text: text.to_owned(),
        };
        let digits = text
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .ok_or_else(refuse)?;
        let (number, unit) = text.split_at(digits);
        let unit = match unit.trim_start() {
            "s" => PS_PER_S,
            "ms" => PS_PER_MS,
            "us" | "µs" => PS_PER_US,
            "ns" => PS_PER_NS,
            "ps" => 1,
            _ => return Err(refuse()),
        };
        let number: f64 = number.parse().map_err(|_| refuse())?;
        let ps = number * unit as f64;
        if ps >= u64::MAX as f64 {
            Err(refuse())
        } else {
            Ok(Span(ps.round() as u64))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_three_digits_in_the_fitting_unit() {
        assert_eq!(Span::ZERO.to_string(), "0 s");
        assert_eq!(Span::from_ps(999).to_string(), "999 ps");
        assert_eq!(Span::from_ns(48).to_string(), "48.0 ns");
        assert_eq!(Span::from_ns(1250).to_string(), "1.25 µs");
        assert_eq!(Span::from_ms(180).to_string(), "180 ms");
        assert_eq!(Span::from_secs(7200).to_string(), "7200 s");
    }

    #[test]
    fn reads_what_people_type() {
        assert_eq!("2s".parse(), Ok(Span::from_secs(2)));
        assert_eq!("1.5ms".parse(), Ok(Span::from_us(1500)));
        assert_eq!("20µs".parse(), Ok(Span::from_us(20)));
        for bad in ["", "2", "s", "2 hours", "-1s", "1e3s", "99999999999s"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_later_instant_before_an_earlier_one_is_no_time() {
        assert_eq!(Time::from_ps(5) - Time::from_ps(9), Span::ZERO);
        assert_eq!(Time::from_ps(9) - Time::from_ps(5), Span::from_ps(4));
    }
}
