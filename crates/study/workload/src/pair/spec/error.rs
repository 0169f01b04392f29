//! Errors of cells that cannot run, with possible alternatives.

use adverb_results::{Opcode, Program, Signaling, Transport, Word};
use adverb_units::Bytes;
use adverb_verbs::PathOptionError;

use super::limits::{MAX_BUFFERS, MAX_REPETITIONS, operations};
use crate::error::{Fault, Side};

/// Why a cell cannot run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// An operation that the program does not have.
    #[error("{program} has no operation {op}: choose from {}", list(operations(*program)))]
    Operation {
        /// The program.
        program: Program,
        /// The given value.
        op: Opcode,
    },
    /// The size is out of range.
    #[error("size {size} is outside the range of {program} {op}, {least} to {max}")]
    Size {
        /// The program.
        program: Program,
        /// Its operation.
        op: Opcode,
        /// The given value.
        size: Bytes,
        /// The minimum.
        least: Bytes,
        /// The maximum.
        max: Bytes,
    },
    /// More inline data than the device takes.
    #[error("{size} inline: this device takes at most {max}; choose a smaller size or no inline")]
    Inline {
        /// The given value.
        size: Bytes,
        /// The maximum.
        max: Bytes,
    },
    /// READs and atomics have no payload to carry.
    #[error("{what} cannot be inline: its request carries no payload; leave inline out")]
    NoPayload {
        /// The operation.
        what: &'static str,
    },
    /// No buffer, or too many.
    #[error("{buffers} buffers are outside the range of blast, 1 to {MAX_BUFFERS}")]
    Buffers {
        /// The given value.
        buffers: u32,
    },
    /// The transport does not support the operation or option.
    #[error("{program} {op} has no transport {transport}: {why}")]
    Transport {
        /// The program.
        program: Program,
        /// Its operation.
        op: Opcode,
        /// The given value.
        transport: Transport,
        /// The cause, and what to choose instead.
        why: &'static str,
    },
    /// What a byte stream lacks.
    #[error("tcp has no {what}; {instead}")]
    Stream {
        /// What was asked.
        what: String,
        /// What to do.
        instead: &'static str,
    },
    /// A message does not fit a packet.
    #[error(
        "size {size} exceeds the path MTU {mtu}, and a datagram is one packet; choose a smaller --size, or --transport rc or uc"
    )]
    Datagram {
        /// The given value.
        size: Bytes,
        /// The maximum.
        mtu: Bytes,
    },
    /// Atomics have one size.
    #[error("size {size}: {op} is an operation on 8 B; leave --size out")]
    AtomicSize {
        /// The operation.
        op: Opcode,
        /// The given value.
        size: Bytes,
    },
    /// The device has no atomics.
    #[error("this device has no atomic operations, which {op} needs; choose write or read")]
    NoAtomics {
        /// The operation.
        op: Opcode,
    },
    /// No queue pair, or too many.
    #[error("{qps} queue pairs are outside the range of blast on this device, 1 to {max}")]
    QueuePairs {
        /// The given value.
        qps: u32,
        /// The device's maximum, or [`MAX_QPS`](super::MAX_QPS).
        max: u32,
    },
    /// `ping` has one message in flight.
    #[error("ping has one message in flight: {what} is for blast")]
    OneInFlight {
        /// The given value.
        what: String,
    },
    /// Nothing would ever free a buffer.
    #[error(
        "signal every={every} with {buffers} buffers would stall: without a completion within \
         {buffers} messages no buffer is ever free; choose 1 to {buffers}"
    )]
    Stall {
        /// The given value.
        every: u32,
        /// Buffers.
        buffers: u32,
    },
    /// The program does not have this signaling.
    #[error("{program} {op} has no signaling {signal}: choose from {choices}")]
    Signaling {
        /// The program.
        program: Program,
        /// Its operation.
        op: Opcode,
        /// The given value.
        signal: Signaling,
        /// The possible values.
        choices: &'static str,
    },
    /// Memory does not raise events.
    #[error(
        "ping write has no completion events: an RDMA WRITE raises none at its target, which \
         therefore polls its memory; choose poll, or write-imm"
    )]
    PolledMemoryHasNoEvents,
    /// Nothing to measure.
    #[error("{what} 0: at least {least} is needed to measure anything")]
    Nothing {
        /// The parameter.
        what: &'static str,
        /// The minimum.
        least: &'static str,
    },
    /// Too many repetitions.
    #[error("{repetitions} repetitions: at most {MAX_REPETITIONS}")]
    Repetitions {
        /// The given value.
        repetitions: u32,
    },
    /// The port does not support an option of the path.
    #[error(transparent)]
    PathOption(#[from] PathOptionError),
    /// The device's queues are too short.
    #[error(
        "{what} needs {needed} requests outstanding, this device takes {max}; fewer buffers or queue pairs help"
    )]
    Queue {
        /// The queue.
        what: &'static str,
        /// The required number.
        needed: u32,
        /// The maximum.
        max: u32,
    },
    /// The device's regions are too small.
    #[error(
        "the buffers of the {side} side need {needed}, a region of this device has at most {max}; fewer or smaller buffers help"
    )]
    Memory {
        /// The side.
        side: Side,
        /// The required memory.
        needed: Bytes,
        /// The maximum.
        max: Bytes,
    },
}

impl From<SpecError> for Fault {
    fn from(error: SpecError) -> Self {
        Fault::Refused(error.to_string())
    }
}

fn list(operations: &[Opcode]) -> String {
    let words: Vec<_> = operations.iter().map(|op| op.word()).collect();
    words.join(", ")
}
