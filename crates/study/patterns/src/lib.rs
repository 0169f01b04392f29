//! Services by RPC and by one-sided operations: a sequencer and a key-value store.

mod checked;
mod datagram;
mod due;
mod echo;
mod inline;
mod job;
mod loops;
mod nodes;
mod onesided;
mod outcome;
mod parameters;
mod placement;
pub mod rendezvous;
mod rpc;
mod sends;
mod steady;
pub mod store;
mod sync;
mod tally;
mod wan;

pub use adverb_workload::connect::{Connect, ConnectTally, Step, run_connect};
pub use adverb_workload::multicast::{Multicast, MulticastTally, run_multicast};
pub use adverb_workload::pattern::{
    Aim, Dc, Inbound, Landing, Limits, Link, Load, Member, Opcode, Outbound, Part, Pattern,
    PatternError, Piece, Places, Posting, Refill, Schedule, Seen, Symmetric, Tally, Timing,
    Transport, Wait, run,
};
pub use checked::NumberSet;
pub use echo::{Echo, EchoBy, Reply, run_echo};
pub use job::{Job, JobReport, needs_retransmission};
pub use loops::{
    CLIENT_SPIN, LoopKind, LoopNodes, OneSidedLoop, RD_ATOMIC, ServerLoad, SlotLayout, WORKER_THINK,
};
pub use nodes::Nodes;
pub use onesided::{Items, OneSided, OneSidedClients, Puts, Remote, run_onesided};
pub use outcome::{Outcome, OutcomeError, RoleOutcome};
pub use placement::independent;
pub use rpc::{
    Clients, Counter, MAX_BATCH, Pace, RequestBy, Rpc, RpcPart, Service, Serving, StoreLoad,
    run_rpc,
};
pub use sync::{ExtraUpdates, LocalUpdates, SharedWord};
pub use tally::ServiceTally;
pub use wan::{By, Task, Traffic, Wan, WanTally, run_wan};
