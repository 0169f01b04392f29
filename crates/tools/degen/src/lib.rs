//! `degen`: a path between two network namespaces through a router in user space, which delays, drops and limits packets
//! as the UDP port of the user-space NIC does ([`adverb_impair`]).
//!
//! ```text
//!  namespace near                    this process                    namespace far
//!  10.77.0.1 degen0 ──► TUN ──► FaultInjector near → far ──► TUN ──► degen0 10.77.0.2
//!                   ◄── TUN ◄── FaultInjector far → near ◄── TUN ◄──
//! ```
//! Any IP traffic passes, the kernel's TCP included. Each packet is held by its own arrival time. [`Path`] makes the
//! namespaces and interfaces, [`Router`] passes packets until it is stopped. The path ends with the process.

mod namespace;
mod path;
mod router;
mod system_calls;

pub use path::{Ends, Path, PathError};
pub use router::{DirectionCounts, Router};
