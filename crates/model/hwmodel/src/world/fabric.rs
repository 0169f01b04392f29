//! The state of a simulation: machines, queue pairs and messages in flight; and its events.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use adverb_sim::{Condition, Scheduler, Shared};
use adverb_units::Time;
use adverb_verbs::Gid;

use crate::host::tcp::{End, Flag, Listener, Piece};
use crate::ids::{ChannelIndex, CqIndex, MachineId, QpIndex, QpRef, SrqIndex, Table};
use crate::machine::Machine;
use crate::nic::completion::{Channel, Cq};
use crate::nic::queue_pair::Qp;
use crate::nic::shared_receive::{PendingEvent, Srq};
use crate::utilization::Measured;
use crate::world::message::Messages;

/// The future events, with the time and the clock of the running role.
pub(crate) type EventQueue = Scheduler<Event>;

/// The simulation, as verbs objects refer to it.
pub(crate) type SharedFabric = Rc<Shared<Fabric>>;

/// How a doorbell passes WQEs to the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// The CPU writes the whole WQE: BlueFlame.
    Mmio,
    /// The CPU writes a doorbell, and the NIC reads the WQEs.
    Fetch {
        /// Bytes of the doorbell.
        bell: u16,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A doorbell for `count` requests arrives at the NIC.
    Doorbell { qp: QpRef, count: u32, path: Path },
    /// The NIC can process the queue pair's next request.
    Issue { qp: QpRef },
    /// The NIC can read the next block of WQEs that a doorbell has announced.
    Prefetch { qp: QpRef },
    /// A processing unit is free.
    Unit { machine: MachineId },
    /// The processing unit finds that a DC initiator must connect to another target.
    ChangeTarget { qp: QpRef },
    /// A DC initiator is connected.
    Connected { qp: QpRef },
    /// The queue pair's next WQE may be read.
    ReadNext { qp: QpRef },
    /// The NIC can read another evicted WQE.
    Fetch { machine: MachineId },
    /// The pause after an RNR NAK ends.
    Resume { qp: QpRef },
    /// The retransmission timer fires.
    Timeout { qp: QpRef, seq: u64 },
    /// A message arrives at its destination's port.
    Arrive { message: u32 },
    /// An atomic operation of a port can begin.
    Lock { machine: MachineId, port: u32 },
    /// A locked read-modify-write ends.
    Atomic { message: u32 },
    /// A message's data are visible in the responder's memory.
    Deliver { message: u32 },
    /// The data of a READ response are visible in the requester's memory.
    Land { message: u32 },
    /// Receives fail, now that earlier ones have completed.
    FailReceives { qp: QpRef },
    /// A piece of a TCP stream, or only an acknowledgement, is at the sending NIC.
    TcpSend { end: u32, bytes: u32, flag: Flag },
    /// A piece arrives at the port of the other end.
    TcpArrive { end: u32, piece: Piece },
    /// The receiving kernel has processed a piece.
    TcpTaken { end: u32, piece: Piece },
    /// The NIC evicts its translations.
    FlushTranslations { machine: MachineId },
    /// A completion raises its event.
    Interrupt { cq: CqIndex },
}

#[derive(Default)]
pub(crate) struct Fabric {
    pub(crate) machines: Table<MachineId, Machine>,
    pub(crate) qps: Table<QpIndex, Qp>,
    /// Queue pairs that are attached to a multicast group.
    pub(crate) groups: HashMap<Gid, Vec<QpIndex>>,
    pub(crate) cqs: Table<CqIndex, Cq>,
    pub(crate) srqs: Table<SrqIndex, Srq>,
    /// Asynchronous events that no program has polled.
    pub(crate) async_events: VecDeque<PendingEvent>,
    pub(crate) channels: Table<ChannelIndex, Channel>,
    pub(crate) messages: Messages,
    /// Ends of TCP connections; the two of a connection are adjacent.
    pub(crate) ends: Vec<End>,
    pub(crate) listeners: Vec<Listener>,
    /// The measured time, for utilizations.
    pub(crate) measured: Measured,
    /// Out-of-band messages, by receiving role.
    pub(crate) mail: Vec<Mailbox>,
}

/// Out-of-band messages that a role has not received.
pub(crate) struct Mailbox {
    pub(crate) messages: Vec<OutOfBandMessage>,
    pub(crate) condition: Condition,
    /// The sender that the role waits for, or waited for last. If the sender ends, the wait fails.
    pub(crate) awaits: Option<u32>,
    pub(crate) ended: bool,
}

pub(crate) struct OutOfBandMessage {
    pub(crate) from: u32,
    pub(crate) at: Time,
    pub(crate) text: Vec<u8>,
}

impl Fabric {
    pub(crate) fn new(machines: Vec<Machine>) -> Self {
        Fabric {
            machines: Table::new(machines),
            ..Fabric::default()
        }
    }

    /// Returns the queue pair, if it is still in that life.
    #[inline]
    pub(crate) fn alive(&mut self, qp: QpRef) -> Option<&mut Qp> {
        let found = self.qps.get_mut(qp.index)?;
        (found.life == qp.life).then_some(found)
    }
}
