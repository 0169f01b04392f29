//! Kernel TCP: the state of a connection's ends.

use adverb_sim::Condition;
use adverb_units::Span;

use crate::ids::MachineId;

/// One end of a connection. Ends 2n and 2n + 1 are connected.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) machine: MachineId,
    /// Signaled when data arrive.
    pub(crate) data: Condition,
    /// Signaled when data are acknowledged.
    pub(crate) room: Condition,
    /// Bytes received that the program has not read.
    pub(crate) readable: u64,
    /// Bytes sent that are not acknowledged.
    pub(crate) unacknowledged: u64,
    /// Bytes received that are not acknowledged, and the number of pieces that they arrived in.
    pub(crate) owed: (u64, u32),
    /// CPU time of interrupts for this end that its reader has not accounted for.
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

/// A piece of a stream that the kernel passes to the NIC at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: u64,
    /// Bytes of the other direction that it acknowledges.
    pub(crate) acknowledges: u64,
}
