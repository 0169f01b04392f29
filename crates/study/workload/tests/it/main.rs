//! The tests of the crate from outside, in one program, which is linked once.

mod by_the_clock;
mod common;
mod failures;
mod little;
mod programs;
mod random;
mod streams;
