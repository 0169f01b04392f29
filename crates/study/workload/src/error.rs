//! Failures of roles: side, phase and fault.

use std::fmt;

use adverb_results::Transport;
use adverb_units::Span;
use adverb_verbs::{
    ConnectError, CreateError, McastError, MemoryAccessError, ModifyQpError, OutOfBandError,
    PathOptionError, PlacementError, PollError, PostError, RegisterError, StreamError, WaitError,
    WcStatus, WorkCompletion, WrId,
};

use crate::{Cause, RoleError};

/// A side of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that starts transfers.
    Active,
    /// The other one.
    Passive,
}

impl Side {
    pub(crate) const fn other(self) -> Side {
        match self {
            Side::Active => Side::Passive,
            Side::Passive => Side::Active,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Side::Active => "active",
            Side::Passive => "passive",
        })
    }
}

/// Progress of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Making its objects.
    SetUp,
    /// Connecting the queue pairs.
    Connect,
    /// Before the first repetition.
    WarmUp,
    /// In a repetition, from 1.
    Repetition(u32),
    /// After the last one.
    End,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Phase::SetUp => f.pad("set-up"),
            Phase::Connect => f.pad("connecting"),
            Phase::WarmUp => f.pad("warm-up"),
            Phase::Repetition(n) => write!(f, "repetition {n}"),
            Phase::End => f.pad("end"),
        }
    }
}

/// Why a role failed.
#[derive(Debug, thiserror::Error)]
#[error("{side} side, {phase}: {fault}")]
pub struct RunError {
    /// The side that failed.
    pub side: Side,
    /// Its phase.
    pub phase: Phase,
    /// The fault.
    pub fault: Box<Fault>,
}

/// The fault of a failed role.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The program cannot run on this device, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The port does not support an option of the path.
    #[error(transparent)]
    PathOption(#[from] PathOptionError),
    /// An object could not be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Memory could not be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The queue pair could not be made ready.
    #[error(transparent)]
    Modify(#[from] ModifyQpError),
    /// The queue pair could not be connected to the peer's.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The queue pair could not join or leave a multicast group.
    #[error(transparent)]
    Multicast(#[from] McastError),
    /// A request was refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// A queue could not be polled.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// A wait ended without what it waited for.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// A stream could not be made.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// A buffer is not where it should be.
    #[error(transparent)]
    Memory(#[from] MemoryAccessError),
    /// The out-of-band channel failed.
    #[error(transparent)]
    OutOfBand(#[from] OutOfBandError),
    /// Threads or memory could not be placed, or a load could not run.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A request completed with an error.
    #[error("work request {wr_id} completed with: {status}")]
    Completion {
        /// The request.
        wr_id: WrId,
        /// Status of the completion.
        status: WcStatus,
    },
    /// A request that nobody answered.
    #[error(
        "work request {wr_id} completed with: {}: no answer from {peer} (retry_cnt {retries}, timeout {timeout}, up to four times as long on some devices): {remedy}",
        WcStatus::RetryExcErr
    )]
    Unanswered {
        /// The request.
        wr_id: WrId,
        /// The peer's queue pair.
        peer: String,
        /// Retransmissions.
        retries: u8,
        /// ACK timeout.
        timeout: Span,
        /// What to check.
        remedy: &'static str,
    },
    /// A message was lost on an unreliable transport.
    #[error(
        "no message within {timeout}: one was lost, and {transport} does not retransmit; measure with --transport rc, or without loss"
    )]
    LostMessage {
        /// The transport.
        transport: Transport,
        /// The timeout.
        timeout: Span,
    },
    /// A received byte differs from the sent one.
    #[error("message {message}: byte {offset} is {found:#04x}, {expected:#04x} was sent")]
    Mismatch {
        /// The message.
        message: u64,
        /// Offset in the message.
        offset: u64,
        /// What was sent.
        expected: u8,
        /// What arrived.
        found: u8,
    },
    /// A completion differs from the sent message.
    #[error("message {message}: the completion has {what} {found}, {expected} was sent")]
    WrongCompletion {
        /// The message.
        message: u64,
        /// The field.
        what: &'static str,
        /// What was sent.
        expected: u64,
        /// What arrived.
        found: u64,
    },
    /// The other side failed first.
    #[error("the other side failed: {0}")]
    Peer(String),
    /// The other side ended without reporting a reason.
    #[error("the other side has ended ({0})")]
    PeerEnded(Box<Fault>),
    /// The other side has ended the run: not an error, but the end of a wait for its next message.
    #[error("the other side has ended the run")]
    Stopped,
    /// The other side sent an unexpected message.
    #[error("expected {expected} out of band, got {found}")]
    Protocol {
        /// The expected message.
        expected: &'static str,
        /// The received message.
        found: String,
    },
    /// The other side runs another version of the programs.
    #[error(
        "the other side runs version {theirs} of the programs, this one {ours}; install the same Adverb on both"
    )]
    Version {
        /// Value of this side.
        ours: u32,
        /// Value of the other side.
        theirs: u32,
    },
    /// The other side runs another cell.
    #[error("the other side runs another cell: {theirs}, this one {ours}")]
    OtherCell {
        /// Value of this side.
        ours: String,
        /// Value of the other side.
        theirs: String,
    },
    /// Timeout waiting for answers: a request or an answer was lost, or the server is gone.
    #[error(
        "{missing} requests without an answer within {timeout}: datagrams were lost, or the server is \
         gone"
    )]
    Lost {
        /// Requests without an answer.
        missing: u32,
        /// The timeout.
        timeout: Span,
    },
    /// An answer is wrong.
    #[error("received {0}: the service is broken")]
    Wrong(&'static str),
    /// A number is out of range.
    #[error("{given} {what}: expected 1 to {max}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// The given number.
        given: u32,
        /// The maximum.
        max: u32,
    },
    /// A record of an invalid length.
    #[error("a record of {given} B: expected 8 to {max} B")]
    Record {
        /// Its length.
        given: u32,
        /// Longest.
        max: u32,
    },
    /// No message of a blast arrived.
    #[error("none of {sent} messages arrived: each was lost on the way or found no receive posted")]
    NothingArrived {
        /// Messages sent.
        sent: u64,
    },
    /// No time passed on the station's clock.
    #[error("no time passed on the station's clock: there is nothing to report")]
    NothingMeasured,
}

impl Fault {
    /// Converts to the failure of the role `name`.
    pub fn of_role(&self, name: &str) -> RoleError {
        RoleError {
            reason: format!("{name}: {self}"),
            cause: self.cause(),
        }
    }

    /// Returns where the failure began.
    pub fn cause(&self) -> Cause {
        match self {
            Fault::Refused(_)
            | Fault::Placement(_)
            | Fault::PathOption(_)
            | Fault::Multicast(McastError::Unsupported(_))
            | Fault::Register(RegisterError::Unsupported(_))
            | Fault::Count { .. }
            | Fault::Record { .. } => Cause::Refused,
            Fault::Peer(_) | Fault::PeerEnded(_) | Fault::OutOfBand(_) => Cause::Peer,
            _ => Cause::Own,
        }
    }

    /// Whether a failure of the other side may be the cause.
    pub(crate) fn may_be_the_others(&self) -> bool {
        match self {
            Fault::Wait(WaitError::TimedOut { .. } | WaitError::Stream(_))
            | Fault::Stream(_)
            | Fault::LostMessage { .. }
            | Fault::Completion { .. }
            | Fault::Unanswered { .. }
            | Fault::Post(_)
            | Fault::OutOfBand(_) => true,
            Fault::Connect(error) => error.may_be_the_peers(),
            _ => false,
        }
    }
}

/// Checks the status of a completion.
///
/// # Errors
/// The completion's status, unless it is a success.
pub fn succeeded(wc: &WorkCompletion) -> Result<(), Fault> {
    if wc.status.is_success() {
        return Ok(());
    }
    Err(Fault::Completion {
        wr_id: wc.wr_id,
        status: wc.status,
    })
}
