//! Retransmission parameters of an RC requester.
//!
//! Source: IBTA volume 1, 9.7.6.1.3 (transport timer), 9.9.2.1 (retry counter).

use std::fmt;
use std::str::FromStr;

use adverb_units::Span;
use serde::{Deserialize, Serialize};

/// Local ACK timeout, 5 bits: 4.096 µs × 2^n; 0 is infinite (IBTA vol. 1, 9.7.6.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// Returns the timeout with code `n`, 0 to 31.
    pub const fn new(n: u8) -> Option<Self> {
        if n < 32 { Some(AckTimeout(n)) } else { None }
    }

    /// Returns the shortest timeout of at least `span`; `None` if all are shorter.
    pub fn at_least(span: Span) -> Option<Self> {
        let mut finite = (1..32).map(AckTimeout);
        finite.find(|timeout| timeout.span().is_some_and(|time| time >= span))
    }

    /// Returns the code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the time; `None` for code 0, which is infinite.
    pub const fn span(self) -> Option<Span> {
        if self.0 == 0 {
            None
        } else {
            Some(Span::from_ps(4_096_000 << self.0))
        }
    }
}

impl fmt::Display for RetryCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for AckTimeout {
    /// `67.1 ms (4.096 µs × 2^14)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.span() {
            Some(span) => f.pad(&format!("{span} (4.096 µs × 2^{})", self.0)),
            None => f.pad("infinite"),
        }
    }
}

/// The text or code is not an ACK timeout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid timeout '{0}': expected a time up to 8796 s with its unit, such as 1ms, or n for 4.096 µs × 2^n, 1 to 31"
)]
pub struct ParseAckTimeoutError(String);

impl FromStr for AckTimeout {
    type Err = ParseAckTimeoutError;

    /// Parses a time (`1ms`: the shortest timeout of at least that), or without a unit the code, from 1 on
    /// (`8`, as in perftest).
    fn from_str(text: &str) -> Result<Self, ParseAckTimeoutError> {
        let timeout = match text.parse::<u8>() {
            Ok(code) => AckTimeout::new(code).filter(|timeout| timeout.0 > 0),
            Err(_) => text.parse::<Span>().ok().and_then(AckTimeout::of_some_time),
        };
        timeout.ok_or_else(|| ParseAckTimeoutError(text.to_owned()))
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
    type Error = ParseAckTimeoutError;

    fn try_from(code: u8) -> Result<Self, ParseAckTimeoutError> {
        AckTimeout::new(code).ok_or_else(|| ParseAckTimeoutError(code.to_string()))
    }
}

/// A retry counter, 3 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
pub struct RetryCount(u8);

impl RetryCount {
    /// The highest count; for RNR retries it means infinite.
    pub const MAX: RetryCount = RetryCount(7);

    /// Returns a count of `n` retries, 0 to 7.
    pub const fn new(n: u8) -> Option<Self> {
        if n < 8 { Some(RetryCount(n)) } else { None }
    }

    /// Returns the count.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the number of RNR retries; `None` if infinite (IBTA vol. 1, 9.7.5.2.8).
    pub const fn as_rnr(self) -> Option<u8> {
        if self.0 == 7 { None } else { Some(self.0) }
    }
}

/// The text or number is not a retry count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid retry count '{0}': expected 0 to 7")]
pub struct ParseRetryCountError(String);

impl FromStr for RetryCount {
    type Err = ParseRetryCountError;

    fn from_str(text: &str) -> Result<Self, ParseRetryCountError> {
        let count = text.parse().ok().and_then(RetryCount::new);
        count.ok_or_else(|| ParseRetryCountError(text.to_owned()))
    }
}

impl From<RetryCount> for u8 {
    fn from(count: RetryCount) -> u8 {
        count.0
    }
}

impl TryFrom<u8> for RetryCount {
    type Error = ParseRetryCountError;

    fn try_from(n: u8) -> Result<Self, ParseRetryCountError> {
        RetryCount::new(n).ok_or_else(|| ParseRetryCountError(n.to_string()))
    }
}

/// Retransmission parameters of an RC requester (`timeout`, `retry_cnt` and `rnr_retry` of `ibv_qp_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RetryParams {
    /// Time without an acknowledgement before it retransmits.
    pub timeout: AckTimeout,
    /// Retransmissions after a timeout or a sequence error NAK before the request fails.
    pub retry_cnt: RetryCount,
    /// Retries after an RNR NAK before the request fails; 7 is infinite.
    pub rnr_retry: RetryCount,
}

impl Default for RetryParams {
    /// A timeout of 4.096 µs × 2^14 = 67 ms and 7 retransmissions, as in perftest, and infinite RNR retries.
    fn default() -> Self {
        RetryParams {
            timeout: AckTimeout(14),
            retry_cnt: RetryCount::MAX,
            rnr_retry: RetryCount::MAX,
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
    fn invalid_timeouts_and_counts_are_refused_by_name() {
        for text in ["0", "32", "256", "0s", "-1", "1 hour", "9000s", ""] {
            let refused = text.parse::<AckTimeout>().unwrap_err().to_string();
            assert!(refused.starts_with(&format!("invalid timeout '{text}': ")));
        }
        for text in ["8", "-1", "many", ""] {
            let refused = text.parse::<RetryCount>().unwrap_err().to_string();
            assert!(refused.ends_with("expected 0 to 7"), "{refused}");
        }
        assert_eq!("0".parse(), Ok(RetryCount(0)));
    }
}
