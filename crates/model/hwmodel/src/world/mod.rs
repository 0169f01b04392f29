//! The events of a simulation: how each changes machines, queue pairs and messages in flight.
//!
//! The verbs objects of programs ([`crate::objects`]) are indices into the [`Fabric`]. Everything that other
//! agents can observe happens in events, in the order of virtual time. Work of a single CPU only advances its
//! role's clock.

mod admission;
mod answers;
mod atomics;
mod completion;
mod dc;
pub(crate) mod fabric;
mod fetch;
mod long_path;
pub(crate) mod message;
mod modify;
mod multicast;
mod payload;
mod post;
mod requester;
mod responder;
mod shared_receive;
mod tcp;
mod translation;
mod wire;

use adverb_sim::World;

use fabric::{Event, EventQueue, Fabric};

impl World for Fabric {
    type Event = Event;

    #[inline(always)]
    fn handle(&mut self, event: Event, events: &mut EventQueue) {
        match event {
            Event::Doorbell { qp, count, path } => self.doorbell(qp, count, path, events),
            Event::Issue { qp } => self.issue_next(qp, events),
            Event::Prefetch { qp } => self.prefetch(qp, events),
            Event::Unit { machine } => self.unit_free(machine, events),
            Event::ChangeTarget { qp } => self.change_target(qp, events),
            Event::Connected { qp } => self.connected(qp, events),
            Event::ReadNext { qp } => self.read_next(qp, events),
            Event::Fetch { machine } => self.fetch_free(machine, events),
            Event::Resume { qp } => self.resume_queue(qp, events),
            Event::Timeout { qp, seq } => self.timeout(qp, seq, events),
            Event::Arrive { message } => self.arrive(message, events),
            Event::Lock { machine, port } => self.lock_next(machine, port, events),
            Event::Atomic { message } => self.atomic(message, events),
            Event::Deliver { message } => self.deliver(message, events),
            Event::Land { message } => self.land(message, events),
            Event::FailReceives { qp } => self.fail_receives(qp, events),
            Event::TcpSend { end, bytes, flag } => self.tcp_send(end, (bytes, flag), events),
            Event::TcpArrive { end, piece } => self.tcp_arrive(end, piece, events),
            Event::TcpTaken { end, piece } => self.tcp_taken(end, piece, events),
            Event::FlushTranslations { machine } => self.flush_translations(machine, events),
            Event::Interrupt { cq } => self.interrupt(cq, events),
        }
    }
}
