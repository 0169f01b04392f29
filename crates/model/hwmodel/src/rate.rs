//! Conversions of rates to times, exact enough to be summed.

use adverb_units::Span;

/// The transmission time of a byte, in femtoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteTime(u64);

impl ByteTime {
    pub(crate) fn of_rate(rate: f64) -> Self {
        ByteTime((1e15 / rate).round() as u64)
    }

    #[inline]
    pub(crate) fn of(self, bytes: u64) -> Span {
        Span::from_ps(bytes.saturating_mul(self.0) / 1_000)
    }
}

/// A span of `ns` nanoseconds, rounded to picoseconds.
pub(crate) fn ns(ns: f64) -> Span {
    Span::from_ps((ns * 1e3).round() as u64)
}

/// The time per operation at `mops` million operations per second.
pub(crate) fn period(mops: f64) -> Span {
    ns(1e3 / mops)
}
