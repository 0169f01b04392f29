//! The events of a simulation: what each does to machines, queue pairs and messages in flight.
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

use adverb_sim::{Scheduler, World};

use fabric::{Event, Fabric};

impl World for Fabric {
    type Event = Event;

    fn handle(&mut self, event: Event, scheduler: &mut Scheduler<Event>) {
        match event {
            Event::Doorbell { qp, count, path } => self.doorbell(qp, count, path, scheduler),
            Event::Issue { qp } => self.issue_next(qp, scheduler),
            Event::ChangeTarget { qp } => self.change_target(qp, scheduler),
            Event::Connected { qp } => self.connected(qp, scheduler),
            Event::ReadNext { qp } => self.read_next(qp, scheduler),
            Event::Resume { qp } => self.resume_queue(qp, scheduler),
            Event::Timeout { qp, seq } => self.timeout(qp, seq, scheduler),
            Event::Arrive { message } => self.arrive(message, scheduler),
            Event::Lock { machine, port } => self.lock_next(machine, port, scheduler),
            Event::Atomic { message } => self.atomic(message, scheduler),
            Event::Deliver { message } => self.deliver(message, scheduler),
            Event::Land { message } => self.land(message, scheduler),
            Event::FailReceives { qp } => self.fail_receives(qp, scheduler),
            Event::TcpSend { end, bytes } => self.tcp_send(end, bytes, scheduler),
            Event::TcpArrive { end, piece } => self.tcp_arrive(end, piece, scheduler),
            Event::TcpTaken { end, piece } => self.tcp_taken(end, piece, scheduler),
            Event::Forget { machine } => self.forget(machine, scheduler),
            Event::Interrupt { cq } => self.interrupt(cq, scheduler),
        }
    }
}
