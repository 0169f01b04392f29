//! The tests of the crate from outside, in one program, which is linked once.

mod common;
mod echo;
mod host;
mod lost;
mod model;
mod onesided;
mod rpc;
mod soft;
mod store;
mod wan;
