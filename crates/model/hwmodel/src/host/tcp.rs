//! Kernel TCP: the state of a connection's two ends, and of listening sockets.

use std::collections::VecDeque;

use adverb_sim::Condition;
use adverb_units::Span;

use crate::ids::MachineId;

/// One end of a connection. Ends 2n (active) and 2n + 1 (passive) are connected.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) machine: MachineId,
    /// Signaled when data, or the end of the stream, arrive.
    pub(crate) data: Condition,
    /// Signaled when data are acknowledged or read, and when the connection is established.
    pub(crate) room: Condition,
    pub(crate) state: EndState,
    /// Bytes that the peer has sent and the program has not read.
    pub(crate) unread: VecDeque<u8>,
    /// How many of these have arrived.
    pub(crate) readable: u64,
    /// Bytes sent that are not acknowledged.
    pub(crate) unacknowledged: u64,
    /// Bytes received that are not acknowledged, and the number of pieces that they arrived in.
    pub(crate) owed: (u32, u32),
    /// CPU time of interrupts for this end that its reader has not accounted for.
    pub(crate) interrupts: Span,
}

/// State of a connection, as one of its ends knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndState {
    /// It has not heard from its peer.
    Connecting,
    /// The peer has asked this listener for a connection, and not acknowledged the answer.
    Asked {
        listener: u32,
    },
    Established,
    /// The peer has sent its last byte.
    Ended,
}

impl End {
    pub(crate) fn new(machine: MachineId, [data, room]: [Condition; 2], state: EndState) -> Self {
        End {
            machine,
            data,
            room,
            state,
            unread: VecDeque::new(),
            readable: 0,
            unacknowledged: 0,
            owed: (0, 0),
            interrupts: Span::ZERO,
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) machine: MachineId,
    /// Passive ends of connections that the program has not accepted; `None` after it was closed.
    pub(crate) connected: Option<VecDeque<u32>>,
    /// Signaled when there is one.
    pub(crate) condition: Condition,
}

/// What a piece signals in addition to its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    None,
    /// Opens the connection.
    Syn,
    /// No bytes follow.
    Fin,
}

/// A piece of a stream that the kernel passes to the NIC at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: u32,
    /// Bytes of the other direction that it acknowledges.
    pub(crate) acknowledges: u32,
    pub(crate) flag: Flag,
}
