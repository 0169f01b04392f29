//! Programs over the verbs seam.
//!
//! A [`Program`] is a set of typed parameters, a list of [`Role`]s, and what each role does over its
//! [`Station`](adverb_verbs::Station). A launcher starts the roles as threads, as processes, on several
//! hosts or as coroutines in virtual time; the program does not depend on it.

pub mod attend;
pub mod connect;
mod engine;
pub mod error;
mod limit;
mod load;
pub mod multicast;
pub mod pair;
pub mod pattern;
pub mod payload;
mod polled;
mod program;
pub mod reap;
mod sample;
pub mod streams;
pub mod wiring;

pub use adverb_verbs::random;
pub use program::{Cause, HardwareChanges, Program, Role, RoleError, RoleLoad};
pub use sample::Ticker;
