//! The state of a simulation: machines, queue pairs and messages in flight; and the events that change it.

use std::collections::VecDeque;
use std::rc::Rc;

use adverb_sim::{Condition, Scheduler, Shared};
use adverb_units::Time;

use crate::host::tcp::{End, Piece};
use crate::ids::{ChannelIndex, CqIndex, MachineId, QpIndex, QpRef, SrqIndex, Table};
use crate::machine::Machine;
use crate::nic::completion::{Channel, Cq};
use crate::nic::queue_pair::Qp;
use crate::nic::shared_receive::{PendingEvent, Srq};
use crate::world::message::Messages;

/// The events to come, with the time and the clock of the running role.
pub(crate) type EventQueue = Scheduler<Event>;

/// The simulation, as the objects of programs hold it.
pub(crate) type World = Rc<Shared<Fabric>>;

/// How WQEs reach the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// The CPU writes the whole request: BlueFlame.
    Mmio,
    /// The CPU writes a doorbell, and the NIC reads the requests.
    Fetch {
        /// Bytes of the doorbell.
        bell: u16,
    },
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// The CPU's word of `count` requests is at the NIC.
    Doorbell { qp: QpRef, count: u32, path: Path },
    /// The processing unit takes the queue pair's next request.
    Issue { qp: QpRef },
    /// The processing unit finds that a DC initiator has to turn to another target.
    ChangeTarget { qp: QpRef },
    /// A DC initiator is connected.
    Connected { qp: QpRef },
    /// The queue pair's next request may be read.
    ReadNext { qp: QpRef },
    /// The pause after RNR is over.
    Resume { qp: QpRef },
    /// The peer has not answered.
    Timeout { qp: QpRef, seq: u64 },
    /// A message is at its target's port.
    Arrive { message: u32 },
    /// An atomic operation of a port may begin.
    Lock { machine: MachineId, port: u32 },
    /// A locked read-modify-write ends.
    Atomic { message: u32 },
    /// What a message brought can be seen in the target's memory.
    Deliver { message: u32 },
    /// The data of a READ's answer can be seen.
    Land { message: u32 },
    /// Receives fail, now that those before them have completed.
    FailReceives { qp: QpRef },
    /// A piece of a TCP stream, or an acknowledgement alone, is at the NIC that sends it.
    TcpSend { end: u32, bytes: u64 },
    /// It is at the port of the other end.
    TcpArrive { end: u32, piece: Piece },
    /// The kernel there is done with it.
    TcpTaken { end: u32, piece: Piece },
    /// The NIC forgets translations.
    Forget { machine: MachineId },
    /// A completion raises its event.
    Interrupt { cq: CqIndex },
}

/// The state of a simulation.
#[derive(Default)]
pub(crate) struct Fabric {
    pub(crate) machines: Table<MachineId, Machine>,
    pub(crate) qps: Table<QpIndex, Qp>,
    pub(crate) cqs: Table<CqIndex, Cq>,
    pub(crate) srqs: Table<SrqIndex, Srq>,
    /// Asynchronous events that no program has taken.
    pub(crate) async_events: VecDeque<PendingEvent>,
    pub(crate) channels: Table<ChannelIndex, Channel>,
    pub(crate) messages: Messages,
    /// Ends of TCP connections, the two of each side by side.
    pub(crate) ends: Vec<End>,
    /// Out-of-band messages, by receiving role.
    pub(crate) mail: Vec<Mailbox>,
}

/// Out-of-band messages that a role has not received.
pub(crate) struct Mailbox {
    pub(crate) messages: Vec<OutOfBandMessage>,
    pub(crate) condition: Condition,
    /// The role has ended.
    pub(crate) ended: bool,
}

/// An out-of-band message.
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

    /// The queue pair, if it still lives that life.
    #[inline]
    pub(crate) fn alive(&mut self, qp: QpRef) -> Option<&mut Qp> {
        let found = self.qps.get_mut(qp.index)?;
        (found.life == qp.life).then_some(found)
    }
}
