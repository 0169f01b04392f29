//! A store of values by key that clients read with one-sided READs, after RDMA-Memcached (Jose et al., ICPP 2011).
//!
//! A PUT names memory of the client, and the server READs the value from there. A GET is answered with the place of the
//! value in the server's region, and the client READs it. The server thus moves no value of a GET.
//!
//! - [`cache`] has the items and gives out memory; it knows no protocol and no verbs.
//! - [`session`] is the server's end of a connection, [`client`] the other one; `session` says which buffer belongs to
//!   whom at which time, and why no READ returns bytes of another value.
//! - [`attach`] connects the two while the server is running.
//! - [`Store`] is a program of a server and its clients.

pub mod attach;
pub mod cache;
pub mod client;
pub mod message;
mod program;
pub mod session;

pub use program::{MAX_VALUE, Store, run_store};
