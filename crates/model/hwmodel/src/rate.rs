//! How long bytes take, exactly enough to add up.

use adverb_units::Span;

/// The time of a byte, in femtoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteTime(u64);

impl ByteTime {
    /// At `rate` bytes per second.
    pub(crate) fn of_rate(rate: f64) -> Self {
        ByteTime((1e15 / rate).round() as u64)
    }

    /// Of `bytes`.
    #[inline]
    pub(crate) fn of(self, bytes: u64) -> Span {
        Span::from_ps(bytes.saturating_mul(self.0) / 1_000)
    }
}

/// A span of `ns` nanoseconds, to the picosecond.
pub(crate) fn ns(ns: f64) -> Span {
    Span::from_ps((ns * 1e3).round() as u64)
}

/// The time between operations of which there are `mops` million a second.
pub(crate) fn period(mops: f64) -> Span {
    ns(1e3 / mops)
}
