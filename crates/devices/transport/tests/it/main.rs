//! The tests of the crate from outside, in one program, which is linked once.

mod chapter9;
mod cm;
mod cm_lab;
mod corpus;
mod cut;
mod forged;
mod goodput;
mod harness;
mod lab;
mod modify;
mod random;
mod rc;
mod requests;
mod responses;
mod shared;
mod soft_roce;
mod uc;
mod ud;
mod xrc;
