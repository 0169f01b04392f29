//! The world: machines with their NICs, what is under way between them, and what happens.
//!
//! Objects of programs ([`crate::objects`]) are numbers into it. Everything that others could see
//! happens in events, in the order of virtual time; what a CPU does alone only moves its clock.

mod admission;
mod atomics;
mod completion;
mod dc;
pub(crate) mod fabric;
mod fetch;
pub(crate) mod message;
mod modify;
mod post;
mod requester;
mod responder;
mod shared_receive;
mod tcp;
mod translation;
mod wire;

use adverb_sim::{Agenda, World};

use fabric::{Event, Fabric};

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
