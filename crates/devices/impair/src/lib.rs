//! A bad or long link: what an [`Impairment`](adverb_verbs::Impairment) does to packets, as `tc-netem` does it, without
//! root. The UDP port of the user-space NIC and `adverb degen` send through it.
//!
//! It does no I/O. The sender passes each packet to [`FaultInjector::judge`], sends what it passes, and takes the
//! packets that were held back from [`FaultInjector::release`] at [`FaultInjector::next_release`].

#![forbid(unsafe_code)]

mod delay_line;
mod faults;

pub use faults::{Fault, FaultInjector, Route, Verdict};
