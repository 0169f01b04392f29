//! Communication patterns between machines.
//!
//! A [`Pattern`] is a list of members, each a role with links to other members: queue pairs of its
//! own, connected with theirs. [`run`] runs one member over the verbs traits, on any device; the launcher
//! decides whether members are threads, processes or coroutines.
//!
//! Members first exchange addresses over the out-of-band channel, then wait for one another (member
//! 0 counts), then work for a warm-up and a measured time, and end together.

mod dc;
mod member;
mod shape;
mod steady;
mod tenant;
pub mod wiring;

pub use crate::error::Fault as PatternError;
pub use crate::load::{Aim, Dc, Limits, Load, Places, Posting, Refill, Seen, Timing, Transport};
pub use adverb_results::{Completion as Wait, Opcode};
pub use member::{Meter, Schedule, Tally, run};
pub use shape::{Inbound, Landing, Link, Member, Outbound, Part, Pattern, Piece, Symmetric};
