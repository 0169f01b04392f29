//! Buffers, queues and memory of each side of a cell.

use adverb_results::{Opcode, Program, Transport};
use adverb_units::{Bytes, Span};

use crate::error::Side;
use crate::pair::spec::{CellSpec, POLLED_SEND_DEPTH};
use crate::wiring::GRH;

/// Buffers begin on their own cache lines.
const CACHE_LINE: u64 = 64;
/// First buffer for received messages.
pub(crate) const IN: u32 = 1;
/// Receives that a side of `ping` keeps posted: one for the message in flight, one ahead.
pub(crate) const PING_RECEIVES: u32 = 2;
/// The receiver of a `blast` keeps as many receives posted on all queue pairs as fit into this many bytes …
const RECEIVE_WINDOW: u64 = 256 << 10;
/// … but at most this many, and at least twice the maximum number of messages in flight.
const MAX_RECEIVES: u64 = 512;
/// A message on an unreliable transport counts as lost after this time, measured while the receiver runs.
const UNTIL_LOST: Span = Span::from_secs(5);
/// Slowest supported device, in bytes per second, for timeouts.
const SLOWEST: u64 = 10_000_000;

/// Buffers and queues of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Payload of a message.
    size: u64,
    /// Distance of buffers.
    stride: u64,
    /// Buffers.
    pub(crate) slots: u32,
    /// First buffer for the other side's messages or READs. If both sides send, the buffers before it are for
    /// this side's messages.
    pub(crate) inbox: u32,
    /// Send requests outstanding on each queue pair.
    pub(crate) send_depth: u32,
    /// Receive requests kept posted on each queue pair.
    pub(crate) receives: u32,
}

impl Layout {
    pub(crate) fn of(spec: &CellSpec, side: Side) -> Self {
        let (slots, send_depth, receives) = match spec.program {
            Program::Ping => ping(spec.params.op, side),
            Program::Blast => blast(spec, side),
        };
        let (mut inbox, mut receives) = (0, receives);
        let (mut slots, mut send_depth) = (slots, send_depth);
        if spec.params.traffic.bidirectional && spec.program == Program::Blast {
            let other = blast(spec, side.other());
            inbox = spec.params.in_flight();
            slots = slots.saturating_add(other.0);
            send_depth = send_depth.max(other.1);
            receives = receives.max(other.2);
        }
        let size = spec.params.size.get();
        Layout {
            size,
            // Messages without payload have buffers, too, which nothing touches.
            stride: (size + header(spec)).max(1).next_multiple_of(CACHE_LINE),
            slots,
            inbox,
            send_depth,
            receives,
        }
    }

    /// Returns the size of a queue pair's send completion queue, which is also used for receives if both sides
    /// send.
    pub(crate) fn completions(&self) -> u32 {
        match self.inbox {
            0 => self.send_depth,
            _ => self.send_depth + self.receives,
        }
    }

    /// Length of the region that holds all buffers.
    pub(crate) fn memory(&self) -> Bytes {
        Bytes::new(self.stride * u64::from(self.slots))
    }

    /// First byte of buffer `slot`.
    pub(crate) fn offset(&self, slot: u32) -> u64 {
        self.stride * u64::from(slot)
    }

    /// Last byte of buffer `slot`'s message.
    pub(crate) fn last_byte(&self, slot: u32) -> u64 {
        self.offset(slot) + self.size - 1
    }
}

/// Returns the size of the header before the payload of a received message.
pub(crate) fn header(spec: &CellSpec) -> u64 {
    match spec.params.traffic.transport {
        Transport::Ud => GRH.into(),
        Transport::Rc | Transport::Uc | Transport::Tcp => 0,
    }
}

impl CellSpec {
    /// Length of the memory that a side registers.
    pub fn side_memory(&self, side: Side) -> Bytes {
        Layout::of(self, side).memory()
    }
}

/// Returns the layout of a ping. If both sides send, buffer 0 is sent and the others receive. A client with
/// one-sided operations writes from 0 and reads into 1; its server has one buffer.
fn ping(op: Opcode, side: Side) -> (u32, u32, u32) {
    match (op, side) {
        _ if op.consumes_receive() => (1 + PING_RECEIVES, 2, PING_RECEIVES),
        (Opcode::Write, _) => (2, POLLED_SEND_DEPTH, 0),
        (_, Side::Active) => (2, 4, 0),
        (_, Side::Passive) => (1, 1, 0),
    }
}

fn blast(spec: &CellSpec, side: Side) -> (u32, u32, u32) {
    let (buffers, qps) = (spec.params.buffers, spec.params.traffic.qps);
    let (slots, send_depth, receives) = match (spec.params.op, side) {
        (_, Side::Active) => (buffers, buffers, 0),
        (Opcode::Send | Opcode::SendImm, Side::Passive) => (receives(spec), 1, receives(spec)),
        (Opcode::WriteImm, Side::Passive) => (targets(spec), 1, receives(spec)),
        (_, Side::Passive) => (buffers, 1, 0),
    };
    (slots.saturating_mul(qps), send_depth, receives)
}

/// Returns the number of receives that the receiver of a `blast` keeps posted on each queue pair.
///
/// A message without a posted receive costs the sender an RNR timeout of at least 10 µs, the time of hundreds
/// of short messages, so many are posted as long as they fit into the cache.
fn receives(spec: &CellSpec) -> u32 {
    let in_window = (RECEIVE_WINDOW / spec.params.size.get().max(1)).min(MAX_RECEIVES);
    let in_window = in_window / u64::from(spec.params.traffic.qps.max(1));
    (in_window as u32).max(2 * spec.params.buffers)
}

/// Returns the number of target buffers for the WRITEs WITH IMM of a `blast` on one queue pair.
///
/// When payload is checked, a buffer must not be overwritten before the receiver has reposted its
/// receive: one for each receive, and one more, because a device may place the payload of one
/// message before it finds that no receive is posted for it (IBTA vol. 1, 9.7.5.2.8: only the last
/// packet consumes the receive).
pub(crate) fn targets(spec: &CellSpec) -> u32 {
    match spec.params.op {
        Opcode::WriteImm if spec.params.verify => receives(spec) + 1,
        _ => spec.params.buffers,
    }
}

/// Returns the timeout of a wait: 30 s more than all buffers take on the slowest device. On a busy machine
/// the other side may not run for seconds; if it ends, this side is notified at once.
pub(crate) fn timeout(spec: &CellSpec) -> Span {
    let p = &spec.params;
    if !p.traffic.transport.is_reliable() && spec.program == Program::Ping {
        return UNTIL_LOST;
    }
    let bytes = p.size.get().saturating_mul(u64::from(p.in_flight()));
    Span::from_secs(30) + Span::from_us(bytes / (SLOWEST / 1_000_000))
}
