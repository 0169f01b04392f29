//! Why a role failed: who, when, and what.

use std::fmt;

use adverb_results::Transport;
use adverb_units::Span;
use adverb_verbs::{
    ConnectError, CreateError, MemoryAccessError, ModifyQpError, OutOfBandError, PathOptionError,
    PollError, PostError, RegisterError, StreamError, WaitError, WcStatus, WorkCompletion, WrId,
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

/// How far a role had come.
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
    /// Whose error this is.
    pub side: Side,
    /// When.
    pub phase: Phase,
    /// What.
    pub fault: Box<Fault>,
}

/// What went wrong.
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
    /// A request completed with an error.
    #[error("work request {wr_id} completed with: {status}")]
    Completion {
        /// Which request.
        wr_id: WrId,
        /// How it ended.
        status: WcStatus,
    },
    /// A request that nobody answered.
    #[error(
        "work request {wr_id} completed with: {}: no answer from {peer} (retry_cnt {retries}, timeout {timeout}, of which four may pass each time): {remedy}",
        WcStatus::RetryExcErr
    )]
    Unanswered {
        /// Which request.
        wr_id: WrId,
        /// The peer's queue pair.
        peer: String,
        /// How often it was tried again.
        retries: u8,
        /// After which time.
        timeout: Span,
        /// What to look at.
        remedy: &'static str,
    },
    /// A message was lost where nothing is sent again.
    #[error(
        "no message within {patience}: one was lost, and {transport} sends nothing again; measure with --transport rc, or where nothing is lost"
    )]
    LostMessage {
        /// The transport.
        transport: Transport,
        /// How long was waited.
        patience: Span,
    },
    /// A byte is not what was sent.
    #[error("message {message}: byte {offset} is {found:#04x}, {expected:#04x} was sent")]
    Mismatch {
        /// Which message.
        message: u64,
        /// Place in it.
        offset: u64,
        /// What was sent.
        expected: u8,
        /// What arrived.
        found: u8,
    },
    /// A completion does not tell what was sent.
    #[error("message {message}: the completion says {found} as {what}, {expected} was sent")]
    WrongCompletion {
        /// Which message.
        message: u64,
        /// What is wrong.
        what: &'static str,
        /// What was sent.
        expected: u64,
        /// What arrived.
        found: u64,
    },
    /// The other side failed first.
    #[error("the other side failed: {0}")]
    Peer(String),
    /// The other side ended without a word.
    #[error("the other side has ended ({0})")]
    PeerEnded(Box<Fault>),
    /// The other side has ended the run: no error, but the end of a wait for its next message.
    #[error("the other side has ended the run")]
    Stopped,
    /// The other side said what does not belong here.
    #[error("{expected} was expected out of band, got {found}")]
    Protocol {
        /// What belongs here.
        expected: &'static str,
        /// What came.
        found: String,
    },
    /// The other side runs another version of the programs.
    #[error(
        "the other side speaks version {theirs} of the programs, this one {ours}; use the same Adverb on both"
    )]
    Version {
        /// This side's.
        ours: u32,
        /// The other's.
        theirs: u32,
    },
    /// The other side runs another cell.
    #[error("the other side runs another cell: {theirs}, this one {ours}")]
    OtherCell {
        /// This side's.
        ours: String,
        /// The other's.
        theirs: String,
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
    #[error("received {0}: the service is broken")]
    Wrong(&'static str),
    /// There are too few or too many of something.
    #[error("{given} {what}: 1 to {max} are possible")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many.
        given: u32,
        /// At most.
        max: u32,
    },
    /// A record of an invalid length.
    #[error("a record of {given} B: 8 to {max} B are possible")]
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
    /// The same as the failure of the role `name`.
    pub fn of_role(&self, name: &str) -> RoleError {
        RoleError {
            reason: format!("{name}: {self}"),
            cause: self.cause(),
        }
    }

    /// Where it began.
    pub fn cause(&self) -> Cause {
        match self {
            Fault::Refused(_)
            | Fault::PathOption(_)
            | Fault::Count { .. }
            | Fault::Record { .. } => Cause::Refused,
            Fault::Peer(_) | Fault::PeerEnded(_) | Fault::OutOfBand(_) => Cause::Peer,
            _ => Cause::Own,
        }
    }

    /// Whether the other side's failure may be behind it.
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

/// The failure of a request that failed.
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
