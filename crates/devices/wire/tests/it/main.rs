//! The tests of the crate from outside, in one program, which is linked once.

mod bytes;
mod cm;
mod common;
mod corpus;
mod soft_roce;
mod target;
mod tshark;
