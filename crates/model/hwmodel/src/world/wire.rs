//! Ports, cables and switches; packet headers.

use adverb_units::{Span, Time};
use adverb_verbs::{LinkLayer, Operation, QpType, Qpn};

use crate::ids::{MachineId, QpIndex, QpRef, Table};
use crate::machine::Machine;
use crate::machine::stages::{connecting_span, receiving_span};
use crate::nic::port::{Leaves, Target, TransitTimes};
use crate::nic::queue_pair::{FIRST_NUMBER, Qp};
use crate::trace::StepKind;
use crate::world::fabric::{Event, EventQueue, Fabric};
use crate::world::message::{Answer, Direction, Message};

/// Headers, in bytes (IBTA vol. 1, chapters 7 to 9; annex A17 for RoCEv2).
pub(super) mod header {
    pub(super) const LRH: u64 = 8;
    pub(super) const BTH: u64 = 12;
    pub(super) const RETH: u64 = 16;
    pub(super) const AETH: u64 = 4;
    pub(super) const DETH: u64 = 8;
    pub(super) const IMMDT: u64 = 4;
    /// Not published; an estimate for an access key of 8 B and the initiator's number and context.
    pub(super) const DC_CONNECT: u64 = 16;
    pub(super) const ATOMICETH: u64 = 28;
    pub(super) const ATOMICACKETH: u64 = 8;
    pub(super) const ICRC: u64 = 4;
    pub(super) const VCRC: u64 = 2;
    /// Preamble, frame, FCS and gap.
    pub(in crate::world) const ETHERNET: u64 = 8 + 14 + 4 + 12;
    /// Largest IP packet in a frame (RFC 894).
    pub(in crate::world) const ETHERNET_MTU: u64 = 1500;
    pub(super) const IPV4_UDP: u64 = 20 + 8;
    /// All headers of a datagram on InfiniBand.
    pub(in crate::world) const DATAGRAM: u64 = LRH + BTH + DETH + ICRC + VCRC;
    /// TCP/IP, MPA and DDP of iWARP (RFC 5040, 5041, 5044), with one marker.
    pub(super) const IWARP: u64 = 20 + 32 + 2 + 14 + 4 + 4;
}

/// Overhead of every packet.
fn frame(link: LinkLayer) -> u64 {
    use header::{BTH, ETHERNET, ICRC, IPV4_UDP, IWARP, LRH, VCRC};
    match link {
        LinkLayer::Ethernet => ETHERNET + IPV4_UDP + BTH + ICRC,
        LinkLayer::Iwarp => ETHERNET + IWARP,
        _ => LRH + BTH + ICRC + VCRC,
    }
}

/// Largest payload of a packet. iWARP has no path MTU: it fills TCP frames.
pub(super) fn payload(link: LinkLayer, path_mtu: u64) -> u64 {
    match link {
        LinkLayer::Iwarp => header::ETHERNET_MTU - header::IWARP,
        _ => path_mtu.max(1),
    }
}

/// Size of the extended headers of a message's first packet.
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

impl Fabric {
    pub(super) fn find(&self, machine: MachineId, number: Qpn) -> Option<QpIndex> {
        let place = number.get().checked_sub(FIRST_NUMBER)?;
        let numbers = &self.machines.get(machine)?.numbers;
        numbers.get(place as usize).copied()
    }

    /// Returns the destination of a request; [`QpRef::NOBODY`] if the queue pair does not exist, or for a group.
    pub(super) fn destination(&self, from: QpRef, target: Option<Target>) -> QpRef {
        if target.is_some_and(|target| target.group.is_some()) {
            return QpRef::NOBODY;
        }
        let remote = self.qps[from.index].remote;
        let place = match (target, remote) {
            (Some(target), _) => Some((target.machine, target.number)),
            (None, remote) => remote.map(|r| (r.machine, r.number)),
        };
        let found = place.and_then(|(machine, number)| self.find(machine, number));
        found.map_or(QpRef::NOBODY, |index| self.qps[index].reference())
    }

    /// Sends a request or an answer.
    ///
    /// Its place in the port's queue is fixed now, before the message is ready: delays other than by queueing
    /// are nearly the same for all messages, so the order would rarely differ.
    pub(super) fn depart(&mut self, message: u32, leaves: Leaves, events: &mut EventQueue) {
        let m = self.messages.get(message);
        if let Some(group) = m.group {
            return self.depart_to_group((message, group), leaves, events);
        }
        let (seq, is_request) = (m.seq, m.direction == Direction::Request);
        let (from, to) = match m.direction {
            Direction::Request | Direction::Connect | Direction::Disconnect(_) => (m.from, m.to),
            Direction::Answer(_) | Direction::Connected => (m.to, m.from),
        };
        let sender = &self.qps[from.index];
        let (here, is_answered) = (sender.machine, sender.qp_type.is_reliable());
        // The queue pair that determines its order and port: the sender, or for messages of a DC target the initiator that
        // it answers.
        let source = match sender.qp_type {
            QpType::Dct => m.from.index,
            _ => from.index,
        };
        let peer = self.qps.get(to.index);
        let there = peer.map_or(here, |peer| peer.machine);
        let port = self.qps[source].port;
        let credit = credit(m, peer, (&mut self.machines[there], port), events.now());
        let (qp, ends) = (&mut self.qps[source], [here, there]);
        let times = (events.now(), credit, leaves);
        let (mut passage, size) = travel(m, qp, (&mut self.machines, ends), times);
        if self.machines[here].path.is_some() {
            self.cross_path(message, (from.index, there), &size, &mut passage);
        }
        events.schedule(passage.last, Event::Arrive { message });
        if is_request && !is_answered {
            self.departed(from, seq, passage.left, events);
        }
    }

    pub(super) fn arrive(&mut self, message: u32, events: &mut EventQueue) {
        if let Some(lost) = self.messages.get(message).lost.take() {
            return self.arrive_in_part(message, lost, events);
        }
        match self.messages.get(message).direction {
            Direction::Request => self.request(message, events),
            Direction::Answer(answer) => self.answered(message, answer, events),
            Direction::Connect => self.connect_requested(message, events),
            Direction::Connected => self.connect_answered(message, events),
            Direction::Disconnect(context) => self.disconnect(message, context, events),
        }
    }
}

/// Returns when a message to queue pair `to` may leave for a port of machine `there`: its sender waits for credits while more
/// is in flight to the NIC there, or to its switch port, than a receive buffer holds.
#[inline]
pub(super) fn credit(
    m: &Message,
    to: Option<&Qp>,
    (there, port): (&mut Machine, u32),
    now: Time,
) -> Time {
    let span = match m.direction {
        Direction::Request => {
            let inline = to.map_or(0, |qp| qp.rq.inline(m.operation, m.length));
            receiving_span(there, m.operation, m.length - inline)
        }
        Direction::Answer(_) => there.nic.times.response,
        _ => connecting_span(there),
    };
    let nic = &mut there.nic;
    let link = nic.inbound[port as usize].free();
    let promised = nic.promised.begin(now, span).max(nic.rx.free()).max(link);
    now + (promised - now).saturating_sub(there.link.backlog)
}

/// Sends a message that may leave at `credit` on its way from machine `here` to machine `there`; if that is the same, no further
/// than to its port. Queue pair `qp` determines its order and port.
#[inline(always)]
pub(super) fn travel(
    m: &mut Message,
    qp: &mut Qp,
    (machines, [here, there]): (&mut Table<MachineId, Machine>, [MachineId; 2]),
    (now, credit, leaves): (Time, Time, Leaves),
) -> (TransitTimes, Size) {
    let machine = &mut machines[here];
    let port = qp.port as usize;
    let size = Size::of(m, qp, machine.preset.link_layer);
    let whole = machine.link.byte.of(size.wire);
    let order = match m.direction {
        Direction::Request | Direction::Connect | Direction::Disconnect(_) => qp.last_request(),
        Direction::Answer(_) | Direction::Connected => qp.last_answer(),
    };
    let port_turn = machine.nic.ports[port].begin(credit, whole);
    let turn = port_turn + (leaves.idle - now);
    // A queue pair's messages keep their order.
    let begin = turn.max(leaves.ready).max(order.left);
    machine.nic.counts.sent_messages += 1;
    // The last packet cannot leave before its data have arrived.
    let tail = machine.link.byte.of(size.head);
    let left = (begin + whole).max(m.gathered + tail);
    machine.trace.note(StepKind::PortWait, leaves.ready, begin);
    let mut passage = TransitTimes {
        begin,
        left,
        first: begin + tail,
        last: left,
    };
    if there == here {
        (order.begin, order.left) = (begin, left);
    } else {
        let way = switched(&mut machines[there], port, port_turn, whole);
        passage.first = begin + tail + way;
        passage.last = (left + way).max(order.last);
        *order = passage;
    }
    m.first = passage.first;
    let trace = &mut machines[here].trace;
    passage.note(trace, (begin, begin + tail), (size.head, size.wire));
    (passage, size)
}

/// The size of a message on the wire, in bytes.
pub(super) struct Size {
    /// Of all its packets.
    pub(super) wire: u64,
    /// Of the first one.
    pub(super) head: u64,
    pub(super) packets: u64,
}

impl Size {
    #[inline]
    fn of(message: &Message, qp: &Qp, link: LinkLayer) -> Self {
        let length = message.length.saturating_sub(message.skip);
        let mtu = payload(link, qp.mtu);
        let packets = if length <= mtu {
            1
        } else {
            length.div_ceil(mtu)
        };
        let (around, extended) = (frame(link), extended(message, qp.qp_type));
        Size {
            wire: length + packets * around + extended,
            head: length.min(mtu) + around + extended,
            packets,
        }
    }
}

/// The delay of a message that leaves at `at`, with transmission time `whole`, over cables and switches to a
/// port of machine `there`. The last switch sends the messages for a port one after another.
#[inline]
pub(super) fn switched(there: &mut Machine, port: usize, at: Time, whole: Span) -> Span {
    let way = there.preset.params.link.way();
    way + (there.nic.inbound[port].begin(at, whole) - at)
}
