//! Messages at the NIC's port: their destination, and when they leave and arrive.

use adverb_units::Time;
use adverb_verbs::{Gid, Qpn};

use crate::host::pcie::Arrival;
use crate::ids::MachineId;
use crate::trace::{StepKind, Tracer};

/// The destination of a datagram, or of a request of a DC initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) machine: MachineId,
    pub(crate) number: Qpn,
    pub(crate) qkey: u32,
    /// A multicast group instead of a queue pair; `machine` is then the sender's.
    pub(crate) group: Option<Gid>,
}

/// The other end of a connected queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) machine: MachineId,
    pub(crate) number: Qpn,
}

/// When a message leaves its port and arrives at the other one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TransitTimes {
    /// When it begins to leave.
    pub(crate) begin: Time,
    /// When it has left.
    pub(crate) left: Time,
    /// When its first packet arrives.
    pub(crate) first: Time,
    /// When its last packet arrives.
    pub(crate) last: Time,
}

impl TransitTimes {
    /// Records the transit of a message of `wire` bytes that began to leave at `begin`. Its first packet, of
    /// `head` bytes, had left at `led`.
    #[inline]
    pub(crate) fn note(
        self,
        trace: &mut Tracer,
        (begin, led): (Time, Time),
        (head, wire): (u64, u64),
    ) {
        if self.first < self.last {
            trace.note(StepKind::Port(head), begin, led);
            trace.note(StepKind::Way, led, self.first);
        }
        trace.note(StepKind::Port(wire), begin, self.left);
        trace.note(StepKind::Way, self.left, self.last);
    }
}

/// When a message can leave its machine, except for waiting for the port.
///
/// A message that waits for another one on the way to the port is also behind it in the port's queue. Both
/// times are kept, so that the wait is counted once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaves {
    /// Without waiting for other messages.
    pub(crate) idle: Time,
    /// With waiting for other messages.
    pub(crate) ready: Time,
}

impl Leaves {
    /// It waits for no other message.
    pub(crate) fn at(ready: Time) -> Self {
        Leaves { idle: ready, ready }
    }

    /// Delays it until its data have arrived from memory.
    pub(crate) fn with(self, data: Arrival) -> Self {
        Leaves {
            idle: self.idle.max(data.idle),
            ready: self.ready.max(data.first),
        }
    }
}
