//! What a role gets on a real machine.
//!
//! * [`HostStation`]: the [`Station`](adverb_verbs::Station) of a real device: `CLOCK_MONOTONIC`,
//!   `getrusage`, busy polling, and [`Link`]s to the other roles;
//! * [`Link`]: messages out of band, as frames over a Unix socket or TCP;
//! * [`pin`], [`usable_cores`], [`die_with_parent`]: the process and its cores;
//! * [`Machine`], [`now_rfc3339`]: facts for a record's provenance.
//!
//! This is an edge of Adverb: sockets, clocks and sleeping are at home here, RDMA is not.

mod clock;
mod link;
mod machine;
mod process;
mod station;

pub use link::{Link, MAX_MESSAGE, Stream};
pub use machine::{Machine, now_rfc3339};
pub use process::{die_with_parent, pin, usable_cores};
pub use station::HostStation;
