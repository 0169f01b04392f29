//! The tests of the crate from outside, in one program, which is linked once.

mod common;
mod dc;
mod deadlock;
mod invariants;
mod long_path;
mod monotone;
mod payload;
mod random;
mod sockets;
mod studies;
mod times;
mod trace;
