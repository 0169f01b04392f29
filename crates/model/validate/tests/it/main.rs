//! The tests of the crate from outside, in one program, which is linked once.

mod common;
mod output;
mod reading;
mod refusals;
mod running;
mod scores;
mod shipped;
