//! Two hosts: what the client (`--peer`) and the server (`adverb serve`) have in common.
//!
//! ```text
//!   client                                        server
//!   parent ═══════════ one TCP connection ═══════ parent
//!      ║ stdin                                stdin ║
//!    active role                          passive role
//! ```
//!
//! Each parent owns its end of the connection, and relays what its role says out of band. So a role
//! may die at any moment, in the middle of a message: the connection does not notice, and carries the
//! news. See [`protocol`] for what is said on it.

mod address;
mod connection;
mod machine;
mod peer;
mod protocol;
mod relay;
mod text;

pub(crate) use address::HostPort;
pub(crate) use connection::{Connection, Frame, More, PATIENCE, Trouble};
pub(crate) use machine::Identity;
pub(crate) use peer::Peer;
pub(crate) use protocol::{
    CellNumber, CellOrder, Greeting, Limits, MAX_GREETING, SideEnded, ToClient, ToServer, Visit,
    Welcome,
};
pub(crate) use relay::Relay;
pub(crate) use text::printable;
