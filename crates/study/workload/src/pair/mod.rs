//! Programs of two sides and one connection: `ping` and `blast`.
//!
//! * [`CellSpec`] is a program with its [`Request`];
//! * [`run_active`] and [`run_passive`] are its two roles, functions over a
//!   [`Station`](adverb_verbs::Station): they do no I/O, read no clock and start no thread but
//!   through it, so they run unchanged on real devices and in virtual time.
//!
//! The programs, after MacArthur & Russell, *A Performance Study to Guide RDMA Programming
//! Decisions* (HPCC 2012):
//!
//! * `ping`: one message in flight, back and forth. SEND and WRITE WITH IMM are answered by the same
//!   operation; WRITE targets memory that the other side polls (`ib_write_lat`); in `write-read` the
//!   active side WRITEs and then READs, in `read` it only READs, and the passive side does nothing.
//! * `blast`: up to n messages in flight, each from its own buffer.
//!
//! Over TCP both send and receive on a byte stream (the transport `tcp`).
//!
//! Elapsed time is from just before the first post to just after the last completion.

mod bench;
mod blast;
mod layout;
mod message;
mod part;
mod peer;
mod ping;
mod program;
mod session;
mod spec;
mod stream;
#[cfg(test)]
mod testing;

pub use crate::error::{Fault, Phase, RunError, Side};
pub use peer::{ACTIVE, PASSIVE};
pub use session::{CellResult, run_active, run_passive};
pub use spec::{
    ATOMIC_SIZE, CellSpec, Length, MAX_BLAST_SIZE, MAX_BUFFERS, MAX_PING_SIZE, MAX_QPS,
    MAX_REPETITIONS, Request, SpecError, check_atomics, operations,
};
