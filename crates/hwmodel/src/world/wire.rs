//! Ports, cables and switches; headers by transport and operation.

use adverb_sim::Agenda;
use adverb_units::{Span, Time};
use adverb_verbs::{LinkLayer, Operation, QpType, Qpn};

use super::message::{Answer, Direction, Message};
use super::queue_pair::{Qp, Target};
use super::responder::receiving_span;
use super::{Event, Fabric, QpRef};
use crate::trace::{Act, Tracer};

/// Headers, in bytes (IBTA vol. 1, chapters 7 to 9; annex A17 for RoCEv2).
pub(super) mod header {
    pub(super) const LRH: u64 = 8;
    pub(super) const BTH: u64 = 12;
    pub(super) const RETH: u64 = 16;
    pub(super) const AETH: u64 = 4;
    pub(super) const DETH: u64 = 8;
    pub(super) const IMMDT: u64 = 4;
    /// Not published; room for an access key of 8 B and the initiator's number and context.
    pub(super) const DC_CONNECT: u64 = 16;
    pub(super) const ATOMICETH: u64 = 28;
    pub(super) const ATOMICACKETH: u64 = 8;
    pub(super) const ICRC: u64 = 4;
    pub(super) const VCRC: u64 = 2;
    /// Preamble, frame, FCS and gap.
    pub(in crate::world) const ETHERNET: u64 = 8 + 14 + 4 + 12;
    /// Largest IP packet of a frame (RFC 894).
    pub(in crate::world) const ETHERNET_MTU: u64 = 1500;
    pub(super) const IPV4_UDP: u64 = 20 + 8;
    /// A datagram's on InfiniBand, all together.
    pub(in crate::world) const DATAGRAM: u64 = LRH + BTH + DETH + ICRC + VCRC;
    /// TCP/IP, MPA and DDP of iWARP (RFC 5040, 5041, 5044), with one marker.
    pub(super) const IWARP: u64 = 20 + 32 + 2 + 14 + 4 + 4;
}

/// What a packet has around its payload, whatever it says.
fn frame(link: LinkLayer) -> u64 {
    use header::{BTH, ETHERNET, ICRC, IPV4_UDP, IWARP, LRH, VCRC};
    match link {
        LinkLayer::Ethernet => ETHERNET + IPV4_UDP + BTH + ICRC,
        LinkLayer::Iwarp => ETHERNET + IWARP,
        _ => LRH + BTH + ICRC + VCRC,
    }
}

/// What a packet carries at most. iWARP has no path MTU of its own: it fills frames of TCP.
fn payload(link: LinkLayer, path_mtu: u64) -> u64 {
    match link {
        LinkLayer::Iwarp => header::ETHERNET_MTU - header::IWARP,
        _ => path_mtu.max(1),
    }
}

/// Extended headers of a message's first packet.
fn extended(message: &Message, qp_type: QpType) -> u64 {
    use header::{AETH, ATOMICACKETH, ATOMICETH, DC_CONNECT, DETH, IMMDT, RETH};
    let datagram = if qp_type == QpType::Ud { DETH } else { 0 };
    datagram
        + match (message.direction, message.operation) {
            (Direction::Request, Operation::Send) => 0,
            (Direction::Request, Operation::SendWithImm(_)) => IMMDT,
            (Direction::Request, Operation::RdmaWrite(_) | Operation::RdmaRead(_)) => RETH,
            (Direction::Request, Operation::RdmaWriteWithImm(..)) => RETH + IMMDT,
            (Direction::Request, _) => ATOMICETH,
            (Direction::Answer(Answer::Ack), operation) if operation.is_atomic() => {
                AETH + ATOMICACKETH
            }
            (Direction::Answer(_) | Direction::Connected, _) => AETH,
            (Direction::Connect | Direction::Disconnect(_), _) => DC_CONNECT,
        }
}

/// Times at the port that a message goes to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Passage {
    /// When it begins to leave.
    begin: Time,
    /// When it has left.
    left: Time,
    /// When its first packet is there.
    first: Time,
    /// When its last packet is there.
    last: Time,
}

impl Passage {
    /// Notes the way of a message of `wire` bytes that began to leave at `begin`; its first packet, of
    /// `head` bytes, had left at `led`.
    #[inline]
    fn note(self, trace: &mut Tracer, (begin, led): (Time, Time), (head, wire): (u64, u64)) {
        if self.first < self.last {
            trace.note(Act::Port(head), begin, led);
            trace.note(Act::Way, led, self.first);
        }
        trace.note(Act::Port(wire), begin, self.left);
        trace.note(Act::Way, self.left, self.last);
    }
}

impl Qp {
    /// When its last request has begun to leave.
    pub(super) fn leaves(&self) -> Time {
        self.departed.begin
    }

    /// The last message that left in a direction.
    fn order(&mut self, direction: Direction) -> &mut Passage {
        match direction {
            Direction::Request | Direction::Connect | Direction::Disconnect(_) => {
                &mut self.departed
            }
            Direction::Answer(_) | Direction::Connected => &mut self.answered,
        }
    }
}

impl Fabric {
    /// The queue pair `number` of a machine.
    pub(super) fn find(&self, machine: u32, number: Qpn) -> Option<u32> {
        let place = number.get().checked_sub(super::queue_pair::FIRST_NUMBER)?;
        let numbers = &self.machines.get(machine as usize)?.numbers;
        numbers.get(place as usize).copied()
    }

    /// Where a request goes: to nobody, if there is none of that number.
    pub(super) fn destination(&self, from: QpRef, target: Option<Target>) -> QpRef {
        let remote = self.qps[from.index as usize].remote;
        let place = match (target, remote) {
            (Some(target), _) => Some((target.machine, target.number)),
            (None, remote) => remote.map(|r| (r.machine, r.number)),
        };
        let found = place.and_then(|(machine, number)| self.find(machine, number));
        found.map_or(QpRef::NOBODY, |index| self.qps[index as usize].reference())
    }

    /// A message, request or answer, leaves its machine, `delay` from now.
    ///
    /// Its place among those that leave by the same port is settled now: what delays messages is
    /// nearly the same for all of a kind.
    pub(super) fn depart(&mut self, message: u32, delay: Span, agenda: &mut Agenda<Event>) {
        let m = self.messages.get(message);
        let (from, to) = match m.direction {
            Direction::Request | Direction::Connect | Direction::Disconnect(_) => (m.from, m.to),
            Direction::Answer(_) | Direction::Connected => (m.to, m.from),
        };
        let (seq, is_request) = (m.seq, m.direction == Direction::Request);
        let passage = self.travel(message, (from, to), agenda.now(), delay);
        let m = self.messages.get(message);
        m.first = passage.first;
        agenda.schedule(passage.last, Event::Arrive { message });
        if is_request {
            self.departed(from, seq, passage.left, agenda);
        }
    }

    fn travel(
        &mut self,
        message: u32,
        (from, to): (QpRef, QpRef),
        now: Time,
        delay: Span,
    ) -> Passage {
        let target = to.index as usize;
        let here = self.qps[from.index as usize].machine;
        let source = self.orderer(message, from);
        let there = self.qps.get(target).map_or(here, |peer| peer.machine);
        let credit = self.credit(message, there, now);
        let qp = &self.qps[source];
        let m = self.messages.get(message);
        let machine = &mut self.machines[here as usize];
        let link = machine.link;
        let mtu = payload(machine.preset.link_layer, qp.mtu);
        let packets = m.length.div_ceil(mtu).max(1);
        let around = frame(machine.preset.link_layer);
        let wire = m.length + packets * around + extended(m, qp.qp_type);
        let head = m.length.min(mtu) + around + extended(m, qp.qp_type);
        let (gathered, qp_port) = (m.gathered, qp.port as usize);
        let whole = link.byte.of(wire);
        let qp = &mut self.qps[source];
        let port = qp_port % machine.nic.ports.len();
        let direction = m.direction;
        let order = qp.order(direction);
        let settled = machine.nic.ports[port].begin(credit, whole);
        let begin = settled + delay;
        // A queue pair's messages keep their order.
        let begin = begin.max(order.left);
        machine.nic.counts.sent_messages += 1;
        // The last packet cannot leave before its data have come.
        let tail = link.byte.of(head);
        let left = (begin + whole).max(gathered + tail);
        machine.trace.note(Act::PortWait, now + delay, begin);
        if there == machine.index {
            (order.begin, order.left) = (begin, left);
            let passage = Passage {
                begin,
                left,
                first: begin + tail,
                last: left,
            };
            passage.note(&mut machine.trace, (begin, begin + tail), (head, wire));
            return passage;
        }
        let late = self.switched(there, port, settled, whole);
        let link = self.machines[there as usize].link;
        let way = link.cable * (link.switches + 1) + link.switch * link.switches + late;
        let passage = Passage {
            begin,
            left,
            first: begin + tail + way,
            last: left + way,
        };
        let order = self.qps[source].order(direction);
        let passage = Passage {
            last: passage.last.max(order.last),
            ..passage
        };
        *order = passage;
        let trace = &mut self.machines[here as usize].trace;
        passage.note(trace, (begin, begin + tail), (head, wire));
        passage
    }

    /// The queue pair by which a message keeps its order and finds its port. What a DC target sends keeps
    /// the order of the initiator that it is for, and leaves by the port that it came by.
    fn orderer(&mut self, message: u32, from: QpRef) -> usize {
        let initiator = self.messages.get(message).from;
        match self.qps[from.index as usize].qp_type {
            QpType::Dct => initiator.index as usize,
            _ => from.index as usize,
        }
    }

    /// When a message may leave for the port of machine `there`: its sender waits for credits while
    /// what is promised to the NIC there is more than its buffer holds.
    fn credit(&mut self, message: u32, there: u32, now: Time) -> Time {
        let m = self.messages.get(message);
        let (to, operation, length) = (m.to.index as usize, m.operation, m.length);
        let direction = m.direction;
        let qp = self.qps.get(to);
        let inline = qp.map_or(0, |qp| qp.inline_recv(operation, length));
        let machine = &mut self.machines[there as usize];
        let span = match direction {
            Direction::Request => receiving_span(machine, operation, length - inline),
            Direction::Answer(_) => machine.nic.times.response,
            _ => super::dc::receiving_span(machine),
        };
        let promised = machine
            .nic
            .promised
            .begin(now, span)
            .max(machine.nic.rx.free());
        now + (promised - now).saturating_sub(machine.link.backlog)
    }

    /// How long a message waits in the last switch, which sends to a port what came for it, one after
    /// another.
    pub(super) fn switched(&mut self, there: u32, port: usize, at: Time, whole: Span) -> Span {
        let machine = &mut self.machines[there as usize];
        if machine.link.switches == 0 {
            return Span::ZERO;
        }
        let ports = machine.nic.inbound.len();
        machine.nic.inbound[port % ports].begin(at, whole) - at
    }

    /// A message is at the port that it goes to.
    pub(super) fn arrive(&mut self, message: u32, agenda: &mut Agenda<Event>) {
        match self.messages.get(message).direction {
            Direction::Request => self.request(message, agenda),
            Direction::Answer(answer) => self.answered(message, answer, agenda),
            Direction::Connect => self.connect_asked(message, agenda),
            Direction::Connected => self.connect_answered(message, agenda),
            Direction::Disconnect(context) => self.disconnect(message, context, agenda),
        }
    }
}
