//! The server from outside.

mod common;
mod differential;
mod hostile;
mod limits;
mod rdma;
mod tools;
