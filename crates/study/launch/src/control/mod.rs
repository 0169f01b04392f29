//! Several hosts: what the caller (`--peer`, or rank 0) and the agents (`adverb serve`, or the other ranks)
//! have in common.
//!
//! ```text
//!               caller ═════════ one TCP connection ═════════ agent
//!              ║      ║                                      ║     ║
//!           role 0  role 2   sockets within a host        role 1  role 3
//! ```
//!
//! The caller is the hub of a star: messages between roles of two agents pass through it. A role may die at
//! any moment, even in the middle of a message; the connections survive that and report it. See [`protocol`]
//! for the messages.

mod address;
mod connection;
mod identity;
mod peer;
mod protocol;
mod ranks;

pub use address::{HostPort, PeerAddress};
pub use peer::Peer;
pub use protocol::Welcome;
pub use ranks::Ranks;

pub(crate) use connection::{
    Connection, ConnectionError, Frame, TIMEOUT, ToAgentLink, wait, wait_until,
};
pub(crate) use identity::Identity;
pub(crate) use protocol::{
    Greeting, Limits, MAX_GREETING, RankName, RunNumber, RunOrder, ToAgent, ToCaller, Visit,
};
pub(crate) use ranks::ConnectedRank;
