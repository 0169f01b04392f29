//! What can go wrong in a member.

use adverb_verbs::{
    CreateError, MemoryAccessError, ModifyQpError, OutOfBandError, PollError, PostError,
    RegisterError, WaitError, WcStatus, WrId,
};

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
    /// A queue pair could not be connected.
    #[error(transparent)]
    Modify(#[from] ModifyQpError),
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
    /// Another member said what it should not.
    #[error("{0} was expected of another member, which said something else")]
    Protocol(&'static str),
}
