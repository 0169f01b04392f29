//! The tests of the crate from outside, in one program, which is linked once.

mod claims;
mod common;
mod guidelines;
mod plan;
mod published;
mod report;
