//! Errors, one type per operation. Each contains the failure, the given value and the remedy.

use adverb_units::Bytes;

use crate::access::AccessFlags;
use crate::ids::Gid;
use crate::path::PathOptionError;
use crate::qp::{QpAttrMask, QpState, QpType};

/// A feature that a device does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device {device} has no {feature}")]
pub struct Unsupported {
    /// The missing feature.
    pub feature: &'static str,
    /// The device.
    pub device: String,
}

/// Returns the remedy, as the end of an error, if the process has no file descriptors left.
pub fn open_files_remedy(error: &std::io::Error) -> &'static str {
    // `ErrorKind` has no name for it.
    const EMFILE: i32 = 24;
    match error.raw_os_error() {
        Some(EMFILE) => "; raise the maximum of open files of this process (ulimit -n)",
        _ => "",
    }
}

/// A device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The device, or something that it needs, is missing or not permitted.
    #[error("cannot open device {device}: {reason}; {remedy}")]
    Unavailable {
        /// The device.
        device: String,
        /// The problem.
        reason: String,
        /// The remedy.
        remedy: String,
    },
    /// The operating system refused.
    #[error(
        "cannot open device {device}: {action}: {source}{}",
        open_files_remedy(source)
    )]
    System {
        /// The device.
        device: String,
        /// The failed action.
        action: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// An object (queue pair, completion queue, channel, protection domain) could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// A size is 0 or exceeds the device's limit.
    #[error("{what} {value} is outside this device's range {min}..={max}")]
    OutOfRange {
        /// The attribute.
        what: &'static str,
        /// The given value.
        value: u64,
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// The device has no room for another.
    #[error("no more {what}: this device has room for {limit}; destroy one first")]
    Exhausted {
        /// The kind of object.
        what: &'static str,
        /// The maximum number.
        limit: u64,
    },
    /// The objects belong to different contexts or protection domains.
    #[error("{what} belongs to another context than the queue pair that is to use it")]
    Foreign {
        /// The object.
        what: &'static str,
    },
    /// The device's packets do not carry a field of the address vector.
    #[error(transparent)]
    PathOption(#[from] PathOptionError),
    /// The device cannot do it.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// Memory or another resource of the system is exhausted.
    #[error("{action}: {source}{remedy}")]
    System {
        /// The failed action.
        action: String,
        /// The system's error.
        source: std::io::Error,
        /// The remedy; empty, or begins with `; `.
        remedy: String,
    },
}

/// Memory could not be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The length is 0 or exceeds the device's limit.
    #[error("cannot register {length}: a region has 1 B to {max}")]
    Length {
        /// The given value.
        length: Bytes,
        /// The maximum.
        max: Bytes,
    },
    /// Remote write or atomic access without local write access.
    #[error("access {access:?} is inconsistent: remote write and atomic access need LOCAL_WRITE")]
    Access {
        /// The given value.
        access: AccessFlags,
    },
    /// The protection domain belongs to another context.
    #[error("the protection domain belongs to another context than the region")]
    Foreign,
    /// The device has no room for another region.
    #[error("no more memory regions: this device has room for {limit}; deregister one first")]
    Exhausted {
        /// The maximum number.
        limit: u64,
    },
    /// The program does not have this memory, or must not access it as the region allows (`EFAULT`).
    #[error(
        "cannot register {length} at {addr:#x} with access {access:?}: {source}; register mapped memory that the program may read, and write if the region has LOCAL_WRITE"
    )]
    Fault {
        /// Address of the first byte.
        addr: u64,
        /// The given length.
        length: Bytes,
        /// The given access rights.
        access: AccessFlags,
        /// The system's error.
        source: std::io::Error,
    },
    /// The device cannot do it.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// There is not enough memory.
    #[error("cannot allocate {length} of registered memory in {place}: {source}; {remedy}")]
    Memory {
        /// The requested length.
        length: Bytes,
        /// The kind of memory.
        place: String,
        /// The system's error.
        source: std::io::Error,
        /// The remedy.
        remedy: String,
    },
}

/// A program accessed its own region out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{length} B at offset {offset} are outside the region of {region}")]
pub struct MemoryAccessError {
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
    /// Size of the region.
    pub region: Bytes,
}

/// A queue pair could not be modified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyQpError {
    /// There is no such state transition (IBTA vol. 1, 10.3.1).
    #[error(
        "invalid transition of a queue pair ({qp_type}) from {from} to {to}: from {from} it can change to {legal}"
    )]
    IllegalTransition {
        /// Type of the queue pair.
        qp_type: QpType,
        /// The current state.
        from: QpState,
        /// The requested state.
        to: QpState,
        /// The states that it can change to.
        legal: String,
    },
    /// The transition exists, but needs other attributes.
    #[error("{from} to {to}: {}", mask_words(*missing, *invalid))]
    InvalidAttributeMask {
        /// The current state.
        from: QpState,
        /// The requested state.
        to: QpState,
        /// Required attributes that are missing.
        missing: QpAttrMask,
        /// Given attributes that are not allowed.
        invalid: QpAttrMask,
    },
    /// An attribute's value is outside its range.
    #[error("{attribute} {value} is outside its range {min}..={max}")]
    AttributeRange {
        /// The attribute.
        attribute: &'static str,
        /// The given value.
        value: u64,
        /// The minimum.
        min: u64,
        /// The maximum.
        max: u64,
    },
    /// `CUR_STATE` is not the state of the queue pair.
    #[error("the queue pair is in {actual}, but CUR_STATE is {named}")]
    CurrentState {
        /// The current state.
        actual: QpState,
        /// The state in `CUR_STATE`.
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
        /// The reason.
        reason: String,
    },
    /// The driver refused values that the table of state transitions allows.
    #[error("{from} to {to}: the driver refused it: {reason}{remedy}")]
    Refused {
        /// The current state.
        from: QpState,
        /// The requested state.
        to: QpState,
        /// The driver's error.
        reason: String,
        /// The remedy; empty, or begins with `; `.
        remedy: String,
    },
    /// The peer does not release the queue pair's memory.
    #[error("the queue pair cannot be reset: {reason}")]
    Busy {
        /// Which process holds what.
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

/// A shared receive queue could not be modified.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModifySrqError {
    /// The limit is larger than the queue.
    #[error("the limit {given} is beyond the {max_wr} requests of the shared receive queue")]
    Limit {
        /// The given value.
        given: u32,
        /// Size of the queue.
        max_wr: u32,
    },
    /// The driver refused the limit.
    #[error("the driver refused the limit {given}: {reason}")]
    Refused {
        /// The given value.
        given: u32,
        /// The driver's error.
        reason: String,
    },
}

/// A shared receive queue could not be queried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the driver refused to query the shared receive queue: {0}")]
pub struct QuerySrqError(pub String);

/// A queue pair could not be attached to a multicast group, or detached from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McastError {
    /// The GID is not a multicast GID.
    #[error(
        "invalid multicast group '{gid}': expected ff00::/8 or ::ffff:224.0.0.0/4 \
         (such as ::ffff:239.1.2.3)"
    )]
    NotAGroup {
        /// The given value.
        gid: Gid,
    },
    /// Only UD queue pairs can be in a group.
    #[error("a queue pair ({qp_type}) cannot be in a multicast group: only UD ones can")]
    Service {
        /// Type of the queue pair.
        qp_type: QpType,
    },
    /// The queue pair is not in the group.
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
        /// The failed action.
        action: String,
        /// The system's error.
        source: std::io::Error,
        /// The remedy; empty, or begins with `; `.
        remedy: String,
    },
}

impl McastError {
    /// Checks that a queue pair of this type may be in the group `gid`.
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

/// A request of a list was refused. The requests before it are posted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work request {index} of the list: {cause}")]
pub struct PostError {
    /// Index of the request in the list (`bad_wr`).
    pub index: usize,
    /// The cause.
    pub cause: PostErrorCause,
}

/// The cause of a refused request. Errors that the device finds later are completions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PostErrorCause {
    /// The queue is full (`ENOMEM`).
    #[error("the {queue} queue has {depth} entries and all are in use; reap completions first")]
    QueueFull {
        /// `send` or `receive`.
        queue: &'static str,
        /// Size of the queue.
        depth: u32,
    },
    /// The queue pair cannot take requests in its state (`EINVAL`).
    #[error("the queue pair is in {state}: bring it to {needed} first")]
    State {
        /// The current state.
        state: QpState,
        /// The required state.
        needed: QpState,
    },
    /// Too many SGEs (`EINVAL`).
    #[error("{given} SGEs exceed the queue's maximum of {max}")]
    TooManySges {
        /// The given number.
        given: usize,
        /// The maximum.
        max: u32,
    },
    /// Inline payload beyond `max_inline_data` (`EINVAL`).
    #[error("{given} of inline data exceed max_inline_data {max}")]
    InlineTooLong {
        /// The given size.
        given: Bytes,
        /// The maximum.
        max: Bytes,
    },
    /// Inline data with an operation that has no payload (`EINVAL`).
    #[error("RDMA READ and atomic operations cannot be inline")]
    InlineRead,
    /// A datagram without destination, or a destination on a connected queue pair (`EINVAL`).
    #[error("requests need a destination on UD queue pairs, and must not have one on others")]
    Destination,
    /// The transport does not carry the operation (`EINVAL`).
    #[error("{qp_type} queue pairs do not carry {operation}; use an RC queue pair")]
    Operation {
        /// Type of the queue pair.
        qp_type: QpType,
        /// The operation.
        operation: &'static str,
    },
    /// The message exceeds the maximum size of the port, or of a packet on UD (`EINVAL`).
    #[error("message of {given} exceeds the maximum of {max}")]
    MessageTooLong {
        /// The given size.
        given: Bytes,
        /// The maximum.
        max: Bytes,
    },
    /// A receive posted to a queue pair that has a shared receive queue (`EINVAL`).
    #[error("the queue pair uses a shared receive queue: post receives there")]
    HasSharedReceiveQueue,
    /// The device cannot do it (`EOPNOTSUPP`).
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// Another errno of the driver.
    #[error("the driver refused the request with errno {0}")]
    Errno(i32),
}

/// A completion queue could not be polled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PollError {
    /// More completions arrived than there are entries, and some are lost (IBTA vol. 1, 11.6.3.1).
    #[error(
        "the completion queue of {entries} entries overran; make it as large as all its queues together"
    )]
    Overrun {
        /// Size of the queue.
        entries: u32,
    },
    /// The device failed.
    #[error("the device failed: {0}")]
    Device(String),
}
