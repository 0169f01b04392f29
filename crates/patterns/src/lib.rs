//! Communication patterns: which machine talks how to which others.
//!
//! A [`Pattern`] is a list of members, each a role with links to other members: queue pairs of its
//! own, connected with theirs. [`run`] is one member's part, over the verbs seam, so that it runs on
//! any device; who starts the members (as threads, processes or coroutines) decides where.
//!
//! Members first exchange addresses over the out-of-band channel, then wait for one another (member
//! 0 counts), then work for a warm-up and a measured time, and end together.

mod checked;
mod dc;
mod error;
mod load;
mod member;
mod onesided;
mod pattern;
mod polled;
mod random;
mod reap;
mod requester;
mod rpc;
mod samples;
mod tally;
mod tenant;
mod wiring;

pub use checked::Handed;
pub use error::PatternError;
pub use load::{Aim, Dc, Limits, Load, Places, Posting, Refill, Request, Seen, Timing, Transport};
pub use member::{Schedule, Tally, run};
pub use onesided::{Items, OneSided, OneSidedClients, Puts, Remote, run_onesided};
pub use pattern::{Inbound, Landing, Link, Member, Outbound, Part, Pattern, Piece, Symmetric};
pub use reap::Wait;
pub use rpc::{
    Asking, Clients, MAX_BATCH, Pace, Rpc, RpcPart, Service, Serving, StoreLoad, run_rpc,
};
pub use samples::Samples;
pub use tally::ServiceTally;
