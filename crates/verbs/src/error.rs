//! Errors, by operation. Each says what was wrong, with what value, and what to do.

use adverb_units::Bytes;

use crate::access::AccessFlags;
use crate::ids::Gid;
use crate::path::PathOptionError;
use crate::qp::{QpAttrMask, QpState, QpType};

/// A feature that a device does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device {device} has no {feature}")]
pub struct Unsupported {
    /// What was asked for.
    pub feature: &'static str,
    /// Of which device.
    pub device: String,
}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The device or something it needs is not there or not permitted.
    #[error("cannot open device {device}: {reason}; {remedy}")]
    Unavailable {
        /// Which device.
        device: String,
        /// What is wrong.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// The operating system refused.
    #[error("cannot open device {device}: {action}: {source}")]
    System {
        /// Which device.
        device: String,
        /// What was tried.
        action: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why an object (queue pair, completion queue, channel, protection domain) could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// A size is zero or beyond the device's limit.
    #[error("{what} {value} is outside this device's range {min}..={max}")]
    OutOfRange {
        /// Which attribute.
        what: &'static str,
        /// What was asked.
        value: u64,
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// The device has no room for another.
    #[error("no more {what}: this device has room for {limit}; destroy one first")]
    Exhausted {
        /// Which kind of object.
        what: &'static str,
        /// How many there can be.
        limit: u64,
    },
    /// The objects belong to different contexts or protection domains.
    #[error("{what} belongs to another context than the queue pair that is to use it")]
    Foreign {
        /// Which object.
        what: &'static str,
    },
    /// The device's packets do not carry a field of the address vector.
    #[error(transparent)]
    PathOption(#[from] PathOptionError),
    /// The device cannot do it.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// Memory or another resource of the system is missing.
    #[error("{action}: {source}{remedy}")]
    System {
        /// What was tried.
        action: String,
        /// What the system said.
        source: std::io::Error,
        /// What to do; empty, or begins with `; `.
        remedy: String,
    },
}

/// Why memory could not be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The length is zero or beyond the device's limit.
    #[error("cannot register {length}: a region has 1 B to {max}")]
    Length {
        /// What was asked.
        length: Bytes,
        /// Longest.
        max: Bytes,
    },
    /// Remote write or atomic access without local write access.
    #[error("access {access:?} is inconsistent: remote write and atomic access need LOCAL_WRITE")]
    Access {
        /// What was asked.
        access: AccessFlags,
    },
    /// The protection domain belongs to another context.
    #[error("the protection domain belongs to another context than the region")]
    Foreign,
    /// The device has no room for another region.
    #[error("no more memory regions: this device has room for {limit}; deregister one first")]
    Exhausted {
        /// How many there can be.
        limit: u64,
    },
    /// There is not enough memory.
    #[error("cannot allocate {length} of registered memory in {place}: {source}; {remedy}")]
    Memory {
        /// How much was asked.
        length: Bytes,
        /// Where it was to be.
        place: String,
        /// What the system said.
        source: std::io::Error,
        /// What to do.
        remedy: String,
    },
}

/// Why a program's access to its own region was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{length} B at offset {offset} lie outside the region of {region}")]
pub struct MemoryAccessError {
    /// First byte.
    pub offset: u64,
    /// How many.
    pub length: u64,
    /// Size of the region.
    pub region: Bytes,
}

/// Why a queue pair could not be modified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyQpError {
    /// No such edge in the transition table (IBTA vol. 1, 10.3.1).
    #[error(
        "a queue pair ({qp_type}) cannot go from {from} to {to}; from {from} it can go to {legal}"
    )]
    IllegalTransition {
        /// Kind of queue pair.
        qp_type: QpType,
        /// Where it is.
        from: QpState,
        /// Where it was to go.
        to: QpState,
        /// Where it can go.
        legal: String,
    },
    /// The edge exists, but needs other attributes.
    #[error("{from} to {to}: {}", mask_words(*missing, *invalid))]
    InvalidAttributeMask {
        /// Where it is.
        from: QpState,
        /// Where it was to go.
        to: QpState,
        /// Required, not given.
        missing: QpAttrMask,
        /// Given, not allowed.
        invalid: QpAttrMask,
    },
    /// An attribute's value is outside its range.
    #[error("{attribute} {value} is outside its range {min}..={max}")]
    AttributeRange {
        /// Which attribute.
        attribute: &'static str,
        /// What was given.
        value: u64,
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// The state that the caller named is not the state that the queue pair is in.
    #[error("the queue pair is in {actual}, not in {named} as CUR_STATE says")]
    CurrentState {
        /// Where it is.
        actual: QpState,
        /// Where the caller says it is.
        named: QpState,
    },
    /// The device's packets do not carry a field of the address vector.
    #[error(transparent)]
    PathOption(#[from] PathOptionError),
    /// The peer cannot be reached over this device's ports.
    #[error("peer {peer} cannot be reached: {reason}")]
    Unreachable {
        /// Its address.
        peer: String,
        /// Why.
        reason: String,
    },
    /// The driver refused values that the table of transitions allows.
    #[error("{from} to {to}: the driver refused it: {reason}{remedy}")]
    Refused {
        /// Where it is.
        from: QpState,
        /// Where it was to go.
        to: QpState,
        /// What the driver said.
        reason: String,
        /// What to do; empty, or begins with `; `.
        remedy: String,
    },
    /// The peer holds the queue pair's memory and does not let go.
    #[error("the queue pair cannot be reset: {reason}")]
    Busy {
        /// Who holds what.
        reason: String,
    },
}

fn mask_words(missing: QpAttrMask, invalid: QpAttrMask) -> String {
    let words = |verb: &str, mask: QpAttrMask| {
        let names: Vec<_> = mask.iter_names().map(|(name, _)| name).collect();
        (!names.is_empty()).then(|| format!("{verb} {}", names.join(", ")))
    };
    [words("missing", missing), words("not allowed", invalid)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("; ")
}

/// Why a shared receive queue could not be modified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifySrqError {
    /// The limit is larger than the queue.
    #[error("the limit {given} is beyond the {max_wr} requests of the shared receive queue")]
    Limit {
        /// What was given.
        given: u32,
        /// The queue's size.
        max_wr: u32,
    },
    /// The driver refused it.
    #[error("the driver refused the limit {given}: {reason}")]
    Refused {
        /// What was given.
        given: u32,
        /// What the driver said.
        reason: String,
    },
}

/// A shared receive queue could not be queried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the driver refused to query the shared receive queue: {0}")]
pub struct QuerySrqError(pub String);

/// Why a queue pair could not be attached to a multicast group, or detached from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McastError {
    /// The GID is not that of a group.
    #[error(
        "{gid} is no multicast group: groups are ff00::/8 and ::ffff:224.0.0.0/4 \
         (such as ::ffff:239.1.2.3)"
    )]
    NotAGroup {
        /// What was given.
        gid: Gid,
    },
    /// Groups are for datagrams.
    #[error("a queue pair ({qp_type}) cannot be in a multicast group: only UD ones can")]
    Service {
        /// Kind of queue pair.
        qp_type: QpType,
    },
    /// It is not in the group that it is to be detached from.
    #[error("the queue pair is not attached to the group {gid}")]
    NotAttached {
        /// The group.
        gid: Gid,
    },
    /// The device cannot do it.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The operating system or the driver refused.
    #[error("{action}: {source}{remedy}")]
    System {
        /// What was tried.
        action: String,
        /// What the system said.
        source: std::io::Error,
        /// What to do; empty, or begins with `; `.
        remedy: String,
    },
}

impl McastError {
    /// Whether a queue pair of this kind may be in the group `gid`.
    ///
    /// # Errors
    /// [`McastError::NotAGroup`], [`McastError::Service`].
    pub fn check(qp_type: QpType, gid: Gid) -> Result<(), Self> {
        if qp_type != QpType::Ud {
            return Err(McastError::Service { qp_type });
        }
        if !gid.is_multicast() {
            return Err(McastError::NotAGroup { gid });
        }
        Ok(())
    }
}

/// Which request of a list was refused, and why. Those before it are posted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work request {index} of the list: {cause}")]
pub struct PostError {
    /// Its place in the list (`bad_wr`).
    pub index: usize,
    /// Why.
    pub cause: PostErrorCause,
}

/// Why a request was refused at once. Faults that the device finds later are completions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostErrorCause {
    /// The queue is full (`ENOMEM`).
    #[error("the {queue} queue has {depth} entries and all are in use; reap completions first")]
    QueueFull {
        /// `send` or `receive`.
        queue: &'static str,
        /// Its size.
        depth: u32,
    },
    /// The queue pair cannot take requests in its state (`EINVAL`).
    #[error("the queue pair is in {state}: bring it to {needed} first")]
    State {
        /// Where it is.
        state: QpState,
        /// Where it would have to be.
        needed: QpState,
    },
    /// Too many pieces (`EINVAL`).
    #[error("{given} SGEs exceed the queue's maximum of {max}")]
    TooManySges {
        /// How many were given.
        given: usize,
        /// Most.
        max: u32,
    },
    /// Inline payload longer than the queue pair takes (`EINVAL`).
    #[error("{given} of inline data exceed max_inline_data {max}")]
    InlineTooLong {
        /// How much was given.
        given: Bytes,
        /// Most.
        max: Bytes,
    },
    /// Inline data makes no sense for an operation that writes local memory (`EINVAL`).
    #[error("RDMA READ and atomic operations cannot be inline")]
    InlineRead,
    /// A datagram without destination, or a destination on a connected queue pair (`EINVAL`).
    #[error("a request has a destination on UD queue pairs, and only there")]
    Destination,
    /// The transport does not carry the operation (`EINVAL`).
    #[error("{qp_type} queue pairs do not carry {operation}; use an RC queue pair")]
    Operation {
        /// Type of the queue pair.
        qp_type: QpType,
        /// What was asked for.
        operation: &'static str,
    },
    /// The message is longer than the port carries, or than a packet on UD (`EINVAL`).
    #[error("message of {given} exceeds the maximum of {max}")]
    MessageTooLong {
        /// How much was given.
        given: Bytes,
        /// Most.
        max: Bytes,
    },
    /// A receive request to a queue pair that has a shared receive queue (`EINVAL`).
    #[error("the queue pair takes its receives from a shared receive queue: post them there")]
    HasSharedReceiveQueue,
    /// The device cannot do it (`EOPNOTSUPP`).
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A driver's refusal that this version does not name.
    #[error("the driver refused it with errno {0}")]
    Errno(i32),
}

/// Why a completion queue could not be polled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PollError {
    /// More completions arrived than it has entries: some are lost (IBTA vol. 1, 11.6.3.1).
    #[error(
        "the completion queue of {entries} entries overran; make it as large as all its queues together"
    )]
    Overrun {
        /// Its size.
        entries: u32,
    },
    /// The device failed.
    #[error("the device failed: {0}")]
    Device(String),
}
