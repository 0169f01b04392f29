//! The state of a simulation: machines, queue pairs and messages in flight; and the events that change it.

use std::collections::VecDeque;
use std::rc::Rc;

use adverb_sim::{Condition, Shared};
use adverb_units::Time;

use crate::host::tcp::{End, Piece};
use crate::ids::QpRef;
use crate::machine::Machine;
use crate::nic::completion::{Channel, Cq};
use crate::nic::queue_pair::Qp;
use crate::nic::shared_receive::{Srq, Told};
use crate::world::message::Messages;

/// The simulation, as the objects of programs hold it.
pub(crate) type World = Rc<Shared<Fabric>>;

/// How requests come to the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// The CPU writes the whole request: BlueFlame.
    Mmio,
    /// The CPU rings, with so many bytes, and the NIC reads the requests.
    Fetch {
        /// Bytes of the doorbell.
        bell: u16,
    },
}

/// What happens.
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
    Lock { machine: u32, port: u32 },
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
    Forget { machine: u32 },
    /// A completion raises its event.
    Interrupt { cq: u32 },
}

/// All there is.
pub(crate) struct Fabric {
    pub(crate) machines: Vec<Machine>,
    pub(crate) qps: Vec<Qp>,
    pub(crate) cqs: Vec<Cq>,
    pub(crate) srqs: Vec<Srq>,
    /// Asynchronous events that no program has taken.
    pub(crate) told: VecDeque<Told>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) messages: Messages,
    /// Ends of TCP connections, the two of each side by side.
    pub(crate) ends: Vec<End>,
    /// Messages out of band, by role: who sent what, and when it is there.
    pub(crate) mail: Vec<Mailbox>,
}

/// What a role was sent out of band.
pub(crate) struct Mailbox {
    pub(crate) letters: Vec<Letter>,
    pub(crate) condition: Condition,
    /// The role has ended.
    pub(crate) ended: bool,
}

/// A message out of band.
pub(crate) struct Letter {
    pub(crate) from: u32,
    pub(crate) at: Time,
    pub(crate) text: Vec<u8>,
}

impl Fabric {
    pub(crate) fn new(machines: Vec<Machine>) -> Self {
        Fabric {
            machines,
            qps: Vec::new(),
            cqs: Vec::new(),
            srqs: Vec::new(),
            told: VecDeque::new(),
            channels: Vec::new(),
            messages: Messages::default(),
            ends: Vec::new(),
            mail: Vec::new(),
        }
    }

    /// The queue pair, if it still lives that life.
    #[inline]
    pub(crate) fn alive(&mut self, qp: QpRef) -> Option<&mut Qp> {
        let found = self.qps.get_mut(qp.index as usize)?;
        (found.life == qp.life).then_some(found)
    }
}
