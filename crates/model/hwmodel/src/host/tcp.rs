//! Kernel TCP: the state of a connection's two ends, and of listening sockets.

use std::collections::{BTreeMap, VecDeque};

use adverb_sim::Condition;
use adverb_units::{Span, Time};

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
    /// How many of these have arrived in order.
    pub(crate) readable: u64,
    /// Pieces sent.
    pub(crate) sent: u32,
    /// Index of the piece that follows in order.
    pub(crate) expects: u32,
    /// Pieces that have arrived before it: bytes and flag, by index.
    pub(crate) early: BTreeMap<u32, (u32, Flag)>,
    /// Bytes sent that are not acknowledged, selectively or not.
    pub(crate) unacknowledged: u64,
    /// Bytes received that are not acknowledged, and the number of pieces that they arrived in.
    pub(crate) owed: (u32, u32),
    /// How much it may send over a long path.
    pub(crate) congestion: Congestion,
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
            sent: 0,
            expects: 0,
            early: BTreeMap::new(),
            unacknowledged: 0,
            owed: (0, 0),
            congestion: Congestion::default(),
            interrupts: Span::ZERO,
        }
    }
}

/// Congestion control: slow start from the initial window of RFC 6928, and CUBIC (RFC 9438). In segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Congestion {
    window: f64,
    /// Slow start ends at this window.
    threshold: f64,
    /// The window before the last loss.
    most: f64,
    /// The window that Reno would have.
    friendly: f64,
    /// When the last loss was noticed.
    since: Time,
    /// Further losses until then are of the same window.
    recovers: Time,
}

/// What a loss leaves of the window (RFC 9438, 4.6), and the constant of its growth (4.1).
const BETA: f64 = 0.7;
const CUBIC: f64 = 0.4;

impl Default for Congestion {
    fn default() -> Self {
        Congestion {
            window: 10.0,
            threshold: f64::INFINITY,
            most: 0.0,
            friendly: 0.0,
            since: Time::ZERO,
            recovers: Time::ZERO,
        }
    }
}

impl Congestion {
    /// Returns how many bytes may be in flight.
    pub(crate) fn bytes(&self, segment: u64) -> u64 {
        (self.window * segment as f64) as u64
    }

    /// Segments were acknowledged.
    pub(crate) fn acknowledged(&mut self, segments: f64, now: Time, round_trip: Span) {
        if self.window < self.threshold {
            self.window += segments;
            return;
        }
        let origin = (self.most * (1.0 - BETA) / CUBIC).cbrt();
        let since = (now + round_trip).since(self.since).as_ns_f64() / 1e9;
        let target = CUBIC * (since - origin).powi(3) + self.most;
        let target = target.clamp(self.window, 1.5 * self.window);
        self.friendly += 3.0 * (1.0 - BETA) / (1.0 + BETA) * segments / self.window;
        self.window += (target - self.window) / self.window * segments;
        self.window = self.window.max(self.friendly);
    }

    /// A segment was lost.
    pub(crate) fn lost(&mut self, now: Time, round_trip: Span) {
        if now < self.recovers {
            return;
        }
        (self.most, self.since) = (self.window, now);
        self.recovers = now + round_trip;
        self.window = (BETA * self.window).max(2.0);
        (self.threshold, self.friendly) = (self.window, self.window);
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
    /// Its place in the stream; acknowledgements alone have none.
    pub(crate) index: u32,
    pub(crate) bytes: u32,
    /// Bytes of the other direction that it acknowledges.
    pub(crate) acknowledges: u32,
    pub(crate) flag: Flag,
}

impl Piece {
    /// Returns whether it acknowledges, and nothing else.
    pub(crate) fn is_acknowledgement(&self) -> bool {
        self.bytes == 0 && self.flag == Flag::None
    }
}
