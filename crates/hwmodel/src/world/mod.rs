//! The world: machines with their NICs, what is under way between them, and what happens.
//!
//! Objects of programs ([`crate::objects`]) are numbers into it. Everything that others could see
//! happens in events, in the order of virtual time; what a CPU does alone only moves its clock.

use adverb_sim::{Agenda, Condition, World};
use adverb_units::Time;

mod admission;
mod atomics;
pub(crate) mod completion;
mod contest;
pub(crate) mod dc;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod message;
pub(crate) mod post;
pub(crate) mod queue_pair;
mod requester;
mod responder;
pub(crate) mod root;
pub(crate) mod send_queue;
pub(crate) mod shared_receive;
pub(crate) mod tcp;
mod translation;
pub(crate) mod wire;

use completion::{Channel, Cq};
use machine::Machine;
use message::Messages;
use queue_pair::Qp;
use shared_receive::{Srq, Told};

/// A queue pair in one of its lives: resetting it begins another, and what was under way for the
/// earlier one finds nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QpRef {
    pub(crate) index: u32,
    pub(crate) life: u32,
}

impl QpRef {
    /// No queue pair at all.
    pub(crate) const NOBODY: QpRef = QpRef {
        index: u32::MAX,
        life: 0,
    };
}

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
    TcpArrive { end: u32, piece: tcp::Piece },
    /// The kernel there is done with it.
    TcpTaken { end: u32, piece: tcp::Piece },
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
    pub(crate) told: std::collections::VecDeque<Told>,
    pub(crate) channels: Vec<Channel>,
    pub(crate) messages: Messages,
    /// Ends of TCP connections, the two of each side by side.
    pub(crate) ends: Vec<tcp::End>,
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
            told: std::collections::VecDeque::new(),
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

impl World for Fabric {
    type Event = Event;

    fn happen(&mut self, event: Event, agenda: &mut Agenda<Event>) {
        match event {
            Event::Doorbell { qp, count, path } => self.doorbell(qp, count, path, agenda),
            Event::Issue { qp } => self.issue_next(qp, agenda),
            Event::ChangeTarget { qp } => self.change_target(qp, agenda),
            Event::Connected { qp } => self.connected(qp, agenda),
            Event::ReadNext { qp } => self.read_next(qp, agenda),
            Event::Resume { qp } => self.resume_queue(qp, agenda),
            Event::Timeout { qp, seq } => self.timeout(qp, seq, agenda),
            Event::Arrive { message } => self.arrive(message, agenda),
            Event::Lock { machine, port } => self.lock_next(machine, port, agenda),
            Event::Atomic { message } => self.atomic(message, agenda),
            Event::Deliver { message } => self.deliver(message, agenda),
            Event::Land { message } => self.land(message, agenda),
            Event::FailReceives { qp } => self.fail_receives(qp, agenda),
            Event::TcpSend { end, bytes } => self.tcp_send(end, bytes, agenda),
            Event::TcpArrive { end, piece } => self.tcp_arrive(end, piece, agenda),
            Event::TcpTaken { end, piece } => self.tcp_taken(end, piece, agenda),
            Event::Forget { machine } => self.forget(machine, agenda),
            Event::Interrupt { cq } => self.interrupt(cq, agenda),
        }
    }
}
