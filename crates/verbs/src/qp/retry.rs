//! When an RC requester sends again what was not acknowledged, and how often.
//!
//! Source: IBTA volume 1, 9.7.6.1.3 (transport timer), 9.9.2.1 (retry counter).

use std::fmt;
use std::str::FromStr;

use adverb_units::Span;
use serde::{Deserialize, Serialize};

/// Local ACK timeout, 5 bits: 4.096 µs × 2^n; 0 is for ever (IBTA vol. 1, 9.7.6.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// Code `n`, 0 to 31.
    pub const fn new(n: u8) -> Option<Self> {
        if n < 32 { Some(AckTimeout(n)) } else { None }
    }

    /// The shortest that is no shorter than `span`; none where all are.
    pub fn at_least(span: Span) -> Option<Self> {
        let mut finite = (1..32).map(AckTimeout);
        finite.find(|timeout| timeout.span().is_some_and(|time| time >= span))
    }

    /// The code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time; none for code 0, which waits for ever.
    pub const fn span(self) -> Option<Span> {
        if self.0 == 0 {
            None
        } else {
            Some(Span::from_ps(4_096_000 << self.0))
        }
    }
}

impl fmt::Display for AckTimeout {
    /// `67.1 ms (4.096 µs × 2^14)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.span() {
            Some(span) => f.pad(&format!("{span} (4.096 µs × 2^{})", self.0)),
            None => f.pad("for ever"),
        }
    }
}

/// The text is no timeout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no timeout: write a time up to 8796 s with its unit, such as 1ms, or n for 4.096 µs × 2^n, 1 to 31"
)]
pub struct NoAckTimeout(String);

impl FromStr for AckTimeout {
    type Err = NoAckTimeout;

    /// Reads a time (`1ms`: the shortest timeout that is no shorter), or, without a unit, the code from 1
    /// on (`8`, as perftest takes it).
    fn from_str(text: &str) -> Result<Self, NoAckTimeout> {
        let timeout = match text.parse::<u8>() {
            Ok(code) => AckTimeout::new(code).filter(|timeout| timeout.0 > 0),
            Err(_) => text.parse::<Span>().ok().and_then(AckTimeout::of_some_time),
        };
        timeout.ok_or_else(|| NoAckTimeout(text.to_owned()))
    }
}

impl AckTimeout {
    fn of_some_time(span: Span) -> Option<Self> {
        (span > Span::ZERO).then(|| Self::at_least(span)).flatten()
    }
}

impl From<AckTimeout> for u8 {
    fn from(timeout: AckTimeout) -> u8 {
        timeout.0
    }
}

impl TryFrom<u8> for AckTimeout {
    type Error = NoAckTimeout;

    fn try_from(code: u8) -> Result<Self, NoAckTimeout> {
        AckTimeout::new(code).ok_or_else(|| NoAckTimeout(code.to_string()))
    }
}

/// A retry counter, 3 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub struct RetryCount(u8);

impl RetryCount {
    /// The highest count; for RNR retries it means without end.
    pub const MAX: RetryCount = RetryCount(7);

    /// `n` retries, 0 to 7.
    pub const fn new(n: u8) -> Option<Self> {
        if n < 8 { Some(RetryCount(n)) } else { None }
    }

    /// How many.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// How many RNR retries: none where they never end (IBTA vol. 1, 9.7.5.2.8).
    pub const fn as_rnr(self) -> Option<u8> {
        if self.0 == 7 { None } else { Some(self.0) }
    }
}

/// A number that is no retry counter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no number of retries: choose 0 to 7")]
pub struct NoRetryCount(String);

impl FromStr for RetryCount {
    type Err = NoRetryCount;

    fn from_str(text: &str) -> Result<Self, NoRetryCount> {
        let count = text.parse().ok().and_then(RetryCount::new);
        count.ok_or_else(|| NoRetryCount(text.to_owned()))
    }
}

impl From<RetryCount> for u8 {
    fn from(count: RetryCount) -> u8 {
        count.0
    }
}

impl TryFrom<u8> for RetryCount {
    type Error = NoRetryCount;

    fn try_from(n: u8) -> Result<Self, NoRetryCount> {
        RetryCount::new(n).ok_or_else(|| NoRetryCount(n.to_string()))
    }
}

/// How an RC requester insists on an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Retransmission {
    /// After which time without one it sends again.
    pub timeout: AckTimeout,
    /// How often it does before the request fails.
    pub retries: RetryCount,
}

impl Default for Retransmission {
    /// After 4.096 µs × 2^14 = 67 ms, 7 times: as perftest.
    fn default() -> Self {
        Retransmission {
            timeout: AckTimeout(14),
            retries: RetryCount::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_the_values_of_the_specification() {
        let span = |n| AckTimeout::new(n).and_then(AckTimeout::span);
        assert_eq!(span(14), Some(Span::from_ps(67_108_864_000)));
        assert_eq!(span(0), None);
        assert_eq!(AckTimeout::new(32), None);
    }

    #[test]
    fn a_time_becomes_the_next_timeout_and_a_number_is_the_code() {
        for (text, code, shown) in [
            ("1ms", 8, "1.05 ms (4.096 µs × 2^8)"),
            ("67ms", 14, "67.1 ms (4.096 µs × 2^14)"),
            ("8.192us", 1, "8.19 µs (4.096 µs × 2^1)"),
            ("8193ns", 2, "16.4 µs (4.096 µs × 2^2)"),
            ("1ps", 1, "8.19 µs (4.096 µs × 2^1)"),
            ("14", 14, "67.1 ms (4.096 µs × 2^14)"),
            ("31", 31, "8796 s (4.096 µs × 2^31)"),
        ] {
            let timeout: AckTimeout = text.parse().unwrap();
            assert_eq!((timeout.code(), &*timeout.to_string()), (code, shown));
        }
    }

    #[test]
    fn what_is_no_timeout_or_count_is_refused_by_name() {
        for text in ["0", "32", "256", "0s", "-1", "1 hour", "9000s", ""] {
            let refused = text.parse::<AckTimeout>().unwrap_err().to_string();
            assert!(refused.starts_with(&format!("'{text}' is no timeout")));
        }
        for text in ["8", "-1", "many", ""] {
            let refused = text.parse::<RetryCount>().unwrap_err().to_string();
            assert!(refused.ends_with("choose 0 to 7"), "{refused}");
        }
        assert_eq!("0".parse(), Ok(RetryCount(0)));
    }
}
