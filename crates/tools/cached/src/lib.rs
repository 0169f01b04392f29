//! A server of the memcached protocol over TCP, text and meta commands, for the items of a store
//! ([`adverb_patterns::store`]).
//!
//! - [`Conversation`] is the protocol, without I/O: bytes in, bytes out.
//! - [`Shared`] is what all connections share: the items, under a lock, and the memory of their values, which may be a
//!   memory region that RDMA clients READ.
//! - [`Server`] moves the bytes: a thread accepts, some serve, each its connections by epoll.

mod classic;
mod connection;
mod conversation;
mod incoming;
mod meta;
mod rdma;
mod retrieval;
mod server;
mod shared;
mod stats;

pub use conversation::{Conversation, Pause};
pub use rdma::Rdma;
pub use server::{Server, StartError, Stop};
pub use shared::Shared;
