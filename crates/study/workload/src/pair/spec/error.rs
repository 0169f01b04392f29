//! Why a cell cannot run, with what would be possible instead.

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
        /// What was asked.
        op: Opcode,
    },
    /// Too short, or too long.
    #[error("size {size} is outside the range of {program} {op}, {least} to {max}")]
    Size {
        /// The program.
        program: Program,
        /// Its operation.
        op: Opcode,
        /// What was asked.
        size: Bytes,
        /// Shortest.
        least: Bytes,
        /// Longest.
        max: Bytes,
    },
    /// More inline data than the device takes.
    #[error("{size} inline: this device takes at most {max}; choose a smaller size or no inline")]
    Inline {
        /// What was asked.
        size: Bytes,
        /// Most.
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
        /// What was asked.
        buffers: u32,
    },
    /// What a transport lacks, or would not measure.
    #[error("{program} {op} has no transport {transport}: {why}")]
    Transport {
        /// The program.
        program: Program,
        /// Its operation.
        op: Opcode,
        /// What was asked.
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
        /// What was asked.
        size: Bytes,
        /// Most.
        mtu: Bytes,
    },
    /// Atomics have one size.
    #[error("size {size}: {op} is an operation on 8 B; leave --size out")]
    AtomicSize {
        /// The operation.
        op: Opcode,
        /// What was asked.
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
        /// What was asked.
        qps: u32,
        /// Most that the device has, or [`MAX_QPS`](super::MAX_QPS).
        max: u32,
    },
    /// `ping` has one message in flight.
    #[error("ping has one message in flight: {what} is for blast")]
    OneInFlight {
        /// What was asked.
        what: String,
    },
    /// Nothing would ever free a buffer.
    #[error(
        "signal every={every} with {buffers} buffers would stall: without a completion within \
         {buffers} messages no buffer is ever free; choose 1 to {buffers}"
    )]
    Stall {
        /// What was asked.
        every: u32,
        /// Buffers.
        buffers: u32,
    },
    /// A way of signaling that the program does not have.
    #[error("{program} {op} has no signaling {signal}: choose from {choices}")]
    Signaling {
        /// The program.
        program: Program,
        /// Its operation.
        op: Opcode,
        /// What was asked.
        signal: Signaling,
        /// What it has.
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
        /// Which parameter.
        what: &'static str,
        /// Smallest.
        least: &'static str,
    },
    /// More repetitions than make sense.
    #[error("{repetitions} repetitions: at most {MAX_REPETITIONS}")]
    Repetitions {
        /// What was asked.
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
        /// Which queue.
        what: &'static str,
        /// How many are needed.
        needed: u32,
        /// Most.
        max: u32,
    },
    /// The device's regions are too small.
    #[error(
        "the buffers of the {side} side need {needed}, a region of this device has at most {max}; fewer or smaller buffers help"
    )]
    Memory {
        /// Whose buffers.
        side: Side,
        /// How much is needed.
        needed: Bytes,
        /// Most.
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
