//! The NIC's port: what leaves by it, and where that goes.

use adverb_units::Time;
use adverb_verbs::Qpn;

use crate::host::pcie::Arrival;
use crate::ids::MachineId;
use crate::trace::{Act, Tracer};

/// Where a datagram, or a request of a DC initiator, goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) machine: MachineId,
    pub(crate) number: Qpn,
    pub(crate) qkey: u32,
}

/// The other end of a connected queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) machine: MachineId,
    pub(crate) number: Qpn,
}

/// Times at the port that a message goes to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passage {
    /// When it begins to leave.
    pub(crate) begin: Time,
    /// When it has left.
    pub(crate) left: Time,
    /// When its first packet is there.
    pub(crate) first: Time,
    /// When its last packet is there.
    pub(crate) last: Time,
}

impl Passage {
    /// Notes the way of a message of `wire` bytes that began to leave at `begin`; its first packet, of
    /// `head` bytes, had left at `led`.
    #[inline]
    pub(crate) fn note(
        self,
        trace: &mut Tracer,
        (begin, led): (Time, Time),
        (head, wire): (u64, u64),
    ) {
        if self.first < self.last {
            trace.note(Act::Port(head), begin, led);
            trace.note(Act::Way, led, self.first);
        }
        trace.note(Act::Port(wire), begin, self.left);
        trace.note(Act::Way, self.left, self.last);
    }
}

/// When a message can leave its machine, apart from waiting for the port.
///
/// Waiting for others on the way to the port is waiting in the port's line as well: it counts once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaves {
    /// Had it waited for nobody.
    pub(crate) idle: Time,
    /// As it is.
    pub(crate) ready: Time,
}

impl Leaves {
    /// It waits for nobody.
    pub(crate) fn at(ready: Time) -> Self {
        Leaves { idle: ready, ready }
    }

    /// Not before data of memory have come, too.
    pub(crate) fn with(self, data: Arrival) -> Self {
        Leaves {
            idle: self.idle.max(data.idle),
            ready: self.ready.max(data.first),
        }
    }
}
