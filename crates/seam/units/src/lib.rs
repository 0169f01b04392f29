//! Quantities as types.
//!
//! * [`Time`] and [`Span`]: integer picoseconds, so that one clock type serves real time and the
//!   model's virtual time (64 B at 400 Gb/s last 1.28 ns; 2^64 ps are 213 days).
//! * [`Bytes`]: sizes, written and read with binary multiples (`1K` = 1024 B), as perftest does.
//! * [`MessageRate`], [`Throughput`], [`BitRate`]: rates, written with decimal multiples (`1 GB/s` = 10^9 B/s).
//!
//! This is the only place in Adverb that knows 1000 from 1024.

mod bytes;
mod rate;
mod sweep;
mod time;

pub use bytes::{Bytes, ParseBytesError};
pub use rate::{BitRate, MessageRate, ParseBitRateError, Throughput, three_digits};
pub use sweep::{Doubling, ParseSweepError, Sweep};
pub use time::{CpuTime, ParseSpanError, Span, Time};
