//! The environment of a role.
//!
//! A program has two or more roles (client, server, worker …), each a plain function over its station.
//! On real devices roles are threads or processes, on the model coroutines; a role does not know
//! which. Roles wait only through their station.

use std::fmt;

pub use adverb_units::CpuTime;
use adverb_units::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::completion::WorkCompletion;
use crate::device::Context;
use crate::error::{CreateError, MemoryAccessError, PollError};
use crate::ids::CqId;
use crate::numa::{CpuLoad, LoadTally, MemoryTimes, NumaPlacement, PlacementError};
use crate::stream::{StreamError, Streams};

/// Number of a role within its program, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RoleId(pub u32);

impl fmt::Display for RoleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "role {}", self.0)
    }
}

/// The environment of a role: its device, clock, CPU account, messages to the other roles, and streams.
pub trait Station {
    /// The type of the opened device.
    type Context: Context;
    /// Its byte streams.
    type Streams: Streams;

    /// Returns the opened device.
    fn context(&self) -> &Self::Context;

    /// Returns the time on this station's clock.
    fn now(&self) -> Time;

    /// Returns the duration of a call of [`Station::now`].
    fn clock_cost(&self) -> Span;

    /// Whether the time is virtual, so that no other program can delay this one.
    fn is_virtual(&self) -> bool {
        false
    }

    /// Returns the CPU time that this role (its process or coroutine) has used.
    fn cpu(&self) -> CpuTime;

    /// Polls `cq` without sleeping until there is a completion; returns the number of completions.
    ///
    /// # Errors
    /// Timeout, or the queue failed.
    fn spin(
        &self,
        cq: &<Self::Context as Context>::Cq,
        into: &mut [WorkCompletion],
        timeout: Span,
    ) -> Result<usize, WaitError>;

    /// Polls one byte of registered memory without sleeping until it is `value`.
    ///
    /// # Errors
    /// The byte is not within the region, or timeout.
    fn spin_memory(
        &self,
        mr: &<Self::Context as Context>::Mr,
        offset: u64,
        value: u8,
        timeout: Span,
    ) -> Result<(), WaitError>;

    /// Calls `look` without sleeping until it finds something in registered memory: for programs that
    /// poll many locations. The peer writes to `mr`.
    ///
    /// # Errors
    /// Timeout, or `look` failed.
    fn spin_on<R>(
        &self,
        mr: &<Self::Context as Context>::Mr,
        timeout: Span,
        look: impl FnMut() -> Result<Option<R>, MemoryAccessError>,
    ) -> Result<R, WaitError>;

    /// Sleeps until an event arrives on `channel` and returns its queue (`ibv_get_cq_event`). The caller
    /// acknowledges the event.
    ///
    /// # Errors
    /// Timeout, or the channel failed.
    fn wait_event(
        &self,
        channel: &<Self::Context as Context>::Channel,
        timeout: Span,
    ) -> Result<CqId, WaitError>;

    /// Returns how many system calls the calling thread has made since the first call of this function, which it does
    /// not count itself.
    ///
    /// # Errors
    /// They are not counted here, with the reason.
    fn system_calls(&self) -> Result<u64, NotCounted> {
        Err(NotCounted(
            "this device does not count system calls".to_owned(),
        ))
    }

    /// Returns a number that no other process can predict. On the model, whose runs repeat, it is always the same.
    fn secret(&self) -> u64;

    /// Sleeps.
    fn sleep(&self, span: Span);

    /// Keeps the CPU busy for `span`, as computation of an application would.
    fn compute(&self, span: Span);

    /// Executes a computation that takes `idle` on a core without other work. It takes longer if others use the
    /// core, such as the kernel for arriving packets. On real devices the length is calibrated once per process.
    fn execute(&self, idle: Span) {
        self.compute(idle);
    }

    /// Reports computation of the program other than verbs. A real CPU has already spent the time; the
    /// model advances the clock by the time that the modelled CPU needs.
    fn account(&self, work: Work) {
        let _ = work;
    }

    /// Binds the role's thread, and the memory that it registers from now on, to NUMA nodes. A model has placed its
    /// roles before they run.
    ///
    /// # Errors
    /// There is no such node, or the system refuses.
    fn bind(&self, numa: NumaPlacement) -> Result<(), PlacementError> {
        match numa == NumaPlacement::default() {
            true => Ok(()),
            false => Err(PlacementError(
                "this device places no threads or memory on NUMA nodes".to_owned(),
            )),
        }
    }

    /// Checks that a region is where the role's memory was bound to, and returns the NUMA node of its pages; `None` if
    /// they are on several nodes, or the system does not report it.
    ///
    /// # Errors
    /// Pages are elsewhere.
    fn memory_node(
        &self,
        mr: &<Self::Context as Context>::Mr,
    ) -> Result<Option<u32>, PlacementError> {
        let _ = mr;
        Ok(None)
    }

    /// Calls `body` while threads load this machine's CPUs, and returns what they did. Threads that access a buffer
    /// access `mr`.
    ///
    /// # Errors
    /// The threads cannot be placed or started; `body` is not called.
    fn under_load<R>(
        &self,
        loads: &[CpuLoad],
        mr: &<Self::Context as Context>::Mr,
        body: impl FnOnce() -> R,
    ) -> Result<(R, LoadTally), PlacementError> {
        let _ = mr;
        match loads {
            [] => Ok((body(), LoadTally::default())),
            _ => Err(PlacementError(
                "this device runs no threads that load its CPUs".to_owned(),
            )),
        }
    }

    /// Measures memory and caches of this machine: the accesses of a CPU of one node to memory of one node.
    ///
    /// # Errors
    /// A node does not exist, the system refuses, or the machine is modelled.
    fn memory_times(&self, cpus: u32, memory: u32) -> Result<MemoryTimes, PlacementError> {
        Err(PlacementError(format!(
            "the memory between NUMA nodes {cpus} and {memory} of this machine cannot be measured"
        )))
    }

    /// Sends `message` to role `to`, out of band.
    ///
    /// # Errors
    /// There is no such role, it has ended, or the message is too long.
    fn send(&self, to: RoleId, message: &[u8]) -> Result<(), OutOfBandError>;

    /// Waits for the next message of role `from`, out of band.
    ///
    /// # Errors
    /// There is no such role, it has ended, or timeout.
    fn receive(&self, from: RoleId, timeout: Span) -> Result<Vec<u8>, OutOfBandError>;

    /// Returns the byte streams.
    fn streams(&self) -> &Self::Streams;
}

/// Memory level of the cache lines that a program loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// In the last-level cache: the NIC or another core has just written them.
    Cache,
    /// In memory: they belong to a table that is larger than the cache.
    Memory,
}

/// Computation of a program, for [`Station::account`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// Independent loads of cache lines.
    Load {
        /// Number of lines of 64 B.
        lines: u32,
        /// Where they are.
        from: Level,
    },
    /// An atomic instruction on a word that other cores use, too.
    Atomic {
        /// Identifies the word within the program.
        word: u64,
    },
    /// Decodes loaded requests.
    Decode {
        /// Number of requests.
        requests: u32,
    },
    /// Hashes keys, compares them with keys in loaded lines of a table, and copies the values.
    Lookup {
        /// Number of keys.
        keys: u32,
    },
}

/// Why something is not counted here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{0}")]
pub struct NotCounted(pub String);

/// A wait failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Timeout.
    #[error("no {what} within {timeout}")]
    TimedOut {
        /// The awaited event.
        what: &'static str,
        /// The timeout.
        timeout: Span,
    },
    /// The run is ending.
    #[error("the run was ended")]
    Stopped,
    /// The completion queue failed.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// The memory to poll is outside its region.
    #[error(transparent)]
    Memory(#[from] crate::error::MemoryAccessError),
    /// The channel failed.
    #[error("the completion channel failed: {0}")]
    Channel(std::io::Error),
    /// The device cannot wait in this way.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The stream failed.
    #[error(transparent)]
    Stream(#[from] StreamError),
}

/// An out-of-band message was not sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutOfBandError {
    /// The other role has ended.
    #[error("{0} has ended")]
    PeerGone(RoleId),
    /// Timeout waiting for the other role.
    #[error("no message from {role} within {timeout}")]
    TimedOut {
        /// The other role.
        role: RoleId,
        /// The timeout.
        timeout: Span,
    },
    /// There is no such role.
    #[error("{0} does not exist")]
    NoSuchRole(RoleId),
    /// The message exceeds the channel's maximum.
    #[error("out-of-band message of {given} B exceeds the maximum of {max} B")]
    TooLong {
        /// The given length.
        given: u64,
        /// The maximum.
        max: u64,
    },
    /// The system failed.
    #[error("out-of-band channel: {0}")]
    System(#[from] std::io::Error),
}
