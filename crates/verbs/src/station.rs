//! What a role stands on.
//!
//! A study's program is two or more roles (client, server, worker …), each a plain function over
//! its station. On real devices roles are threads or processes, on the model coroutines; a role
//! never knows which. All waiting goes through the station.

use std::fmt;

pub use adverb_units::CpuTime;
use adverb_units::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::completion::WorkCompletion;
use crate::device::Context;
use crate::error::{CreateError, MemoryAccessError, PollError};
use crate::ids::CqId;

/// A role's number within its program, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RoleId(pub u32);

impl fmt::Display for RoleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "role {}", self.0)
    }
}

/// Where a role runs: its device, clock, CPU account and way to the other roles.
pub trait Station {
    /// The device's objects.
    type Context: Context;

    /// The opened device.
    fn context(&self) -> &Self::Context;

    /// The time on this station's clock.
    fn now(&self) -> Time;

    /// What one call of [`Station::now`] costs.
    fn clock_cost(&self) -> Span;

    /// CPU time that this role (its process, or its coroutine) has used so far.
    fn cpu(&self) -> CpuTime;

    /// Polls `cq` without sleeping until it gives at least one completion; returns how many.
    ///
    /// # Errors
    /// Nothing came within `patience`, or the queue failed.
    fn spin(
        &self,
        cq: &<Self::Context as Context>::Cq,
        into: &mut [WorkCompletion],
        patience: Span,
    ) -> Result<usize, WaitError>;

    /// Polls one byte of registered memory without sleeping until it is `value`.
    ///
    /// # Errors
    /// The byte is not within the region, or was another for `patience`.
    fn spin_memory(
        &self,
        mr: &<Self::Context as Context>::Mr,
        offset: u64,
        value: u8,
        patience: Span,
    ) -> Result<(), WaitError>;

    /// Calls `look` without sleeping until it finds something in registered memory, of which `mr` is
    /// what the peer writes: for programs that poll many places at a time.
    ///
    /// # Errors
    /// Nothing was found within `patience`, or `look` failed.
    fn spin_on<R>(
        &self,
        mr: &<Self::Context as Context>::Mr,
        patience: Span,
        look: impl FnMut() -> Result<Option<R>, MemoryAccessError>,
    ) -> Result<R, WaitError>;

    /// Sleeps until an event arrives on `channel`; returns the queue it names
    /// (`ibv_get_cq_event`). The caller acknowledges it.
    ///
    /// # Errors
    /// Nothing came within `patience`, or the channel failed.
    fn wait_event(
        &self,
        channel: &<Self::Context as Context>::Channel,
        patience: Span,
    ) -> Result<CqId, WaitError>;

    /// Sleeps.
    fn sleep(&self, span: Span);

    /// Keeps the CPU busy for `span`, as an application's own work would.
    fn compute(&self, span: Span);

    /// Says what the program has done itself, beside its verbs. A real CPU has taken its time for
    /// it; on the model, time goes on by what that hardware's would take.
    fn account(&self, work: Work) {
        let _ = work;
    }

    /// Sends `message` to role `to`, out of band.
    ///
    /// # Errors
    /// There is no such role, it has ended, or the message is too long.
    fn send(&self, to: RoleId, message: &[u8]) -> Result<(), OutOfBandError>;

    /// Waits for the next message of role `from`, out of band.
    ///
    /// # Errors
    /// There is no such role, it has ended, or it said nothing for `patience`.
    fn receive(&self, from: RoleId, patience: Span) -> Result<Vec<u8>, OutOfBandError>;
}

/// Where the lines that a program loads are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// In the last-level cache: the NIC or another core has just written them.
    Cache,
    /// In memory: they belong to a table that is larger than the cache.
    Memory,
}

/// What a program does itself, for [`Station::account`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// Loads lines, none of which has to be known before another can be asked for.
    Load {
        /// How many, of 64 B.
        lines: u32,
        /// Where they are.
        from: Level,
    },
    /// An atomic instruction on a word that other cores of the machine use, too.
    Atomic {
        /// Tells the program's words apart.
        word: u64,
    },
    /// Looks at requests that have been loaded, and notes whom to answer.
    Decode {
        /// How many.
        requests: u32,
    },
    /// Hashes keys, compares them with those in loaded lines of a table, and copies what they stand for.
    Lookup {
        /// How many.
        keys: u32,
    },
}

/// Why a wait ended without what it waited for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Nothing came.
    #[error("no {what} within {patience}")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// How long.
        patience: Span,
    },
    /// The run is being ended; there is no point in waiting.
    #[error("the run was ended")]
    Stopped,
    /// The completion queue failed.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// The memory that was to be polled is not there.
    #[error(transparent)]
    Memory(#[from] crate::error::MemoryAccessError),
    /// The channel failed.
    #[error("the completion channel failed: {0}")]
    Channel(std::io::Error),
    /// The device cannot wait in this way.
    #[error(transparent)]
    Create(#[from] CreateError),
}

/// Why a message out of band was not sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutOfBandError {
    /// The other role has ended.
    #[error("{0} has ended")]
    PeerGone(RoleId),
    /// The other role said nothing.
    #[error("{role} said nothing within {patience}")]
    TimedOut {
        /// Who.
        role: RoleId,
        /// How long.
        patience: Span,
    },
    /// There is no such role.
    #[error("this program has no {0}")]
    NoSuchRole(RoleId),
    /// The message is longer than the channel takes.
    #[error("a message of {given} B out of band, at most {max} B are taken")]
    TooLong {
        /// Its length.
        given: u64,
        /// Longest.
        max: u64,
    },
    /// The system failed.
    #[error("out-of-band channel: {0}")]
    System(#[from] std::io::Error),
}
