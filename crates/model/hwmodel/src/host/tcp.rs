//! Kernel TCP: the two ends of a connection, and the pieces of a stream between them.

use adverb_sim::Condition;
use adverb_units::Span;

use crate::ids::MachineId;

/// One end of a connection; ends 2n and 2n + 1 belong together.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) machine: MachineId,
    /// Signaled when something came.
    pub(crate) data: Condition,
    /// Signaled when something was acknowledged.
    pub(crate) room: Condition,
    /// Bytes that have come and were not read.
    pub(crate) readable: u64,
    /// Bytes that were sent and not acknowledged.
    pub(crate) unacknowledged: u64,
    /// Bytes that have come and were not yet acknowledged, and the number of their pieces.
    pub(crate) owed: (u64, u32),
    /// CPU time that interrupts for it took, which its reader has not accounted for.
    pub(crate) interrupts: Span,
}

impl End {
    pub(crate) fn new(machine: MachineId, [data, room]: [Condition; 2]) -> Self {
        End {
            machine,
            data,
            room,
            readable: 0,
            unacknowledged: 0,
            owed: (0, 0),
            interrupts: Span::ZERO,
        }
    }
}

/// What goes over a connection at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Bytes of the stream.
    pub(crate) bytes: u64,
    /// Bytes of the other direction that it acknowledges.
    pub(crate) acknowledges: u64,
}
