//! What can go wrong in a member.

use adverb_units::Span;
use adverb_verbs::{
    ConnectError, CreateError, MemoryAccessError, ModifyQpError, OutOfBandError, PollError,
    PostError, RegisterError, WaitError, WcStatus, WorkCompletion, WrId,
};

use crate::{Cause, RoleError};

/// Why a member could not do its part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// An object could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A queue pair could not be brought to a state.
    #[error(transparent)]
    Modify(#[from] ModifyQpError),
    /// A queue pair could not be connected.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A request was refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A wait failed.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// A poll failed.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// The memory is too small for what the pattern does.
    #[error(transparent)]
    Memory(#[from] MemoryAccessError),
    /// Another member cannot be reached.
    #[error(transparent)]
    OutOfBand(#[from] OutOfBandError),
    /// A request failed.
    #[error("request {wr_id} failed: {status}")]
    Completion {
        /// Which.
        wr_id: WrId,
        /// How.
        status: WcStatus,
    },
    /// An answer did not come: a request or an answer was lost, or the server is gone.
    #[error(
        "{missing} requests without an answer within {patience}: datagrams were lost, or the server is \
         gone"
    )]
    Lost {
        /// Requests without an answer.
        missing: u32,
        /// How long it was waited.
        patience: Span,
    },
    /// An answer is wrong.
    #[error("{0} came: the service is broken")]
    Wrong(&'static str),
    /// There are too few or too many of something.
    #[error("{given} {what}: 1 to {max} are possible")]
    Count {
        /// Of what.
        what: &'static str,
        /// So many.
        given: u32,
        /// At most.
        max: u32,
    },
    /// A record of a length that none can have.
    #[error("a record of {given} B: 8 to {max} B are possible")]
    Record {
        /// Its length.
        given: u32,
        /// Longest.
        max: u32,
    },
    /// Another member said what it should not.
    #[error("{0} was expected of another member, which said something else")]
    Protocol(&'static str),
}

impl PatternError {
    /// The same as the failure of the role `name`.
    pub fn of_role(&self, name: &str) -> RoleError {
        RoleError {
            reason: format!("{name}: {self}"),
            cause: match self {
                PatternError::Count { .. } | PatternError::Record { .. } => Cause::Refused,
                PatternError::OutOfBand(_) => Cause::Peer,
                _ => Cause::Own,
            },
        }
    }
}

/// The failure of a request that failed.
pub fn succeeded(wc: &WorkCompletion) -> Result<(), PatternError> {
    if wc.status.is_success() {
        return Ok(());
    }
    Err(PatternError::Completion {
        wr_id: wc.wr_id,
        status: wc.status,
    })
}
