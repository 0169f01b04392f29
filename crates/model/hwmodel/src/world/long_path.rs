//! Messages that cross a long or bad path, and what RC does about lost packets.
//!
//! The rules are those of the `transport` crate (IBTA vol. 1, 9.7): the responder answers the first request behind a gap
//! with a NAK (PSN sequence error), and the requester resends from the lost packet on (go-back-N); if nothing follows a
//! lost request, or its acknowledgement is lost, the retransmission timer expires. An acknowledgement also acknowledges all earlier
//! SENDs and WRITEs. The responder acknowledges a repeated request again, and executes a repeated READ again.

use adverb_units::Time;
use adverb_verbs::{LinkLayer, Operation, Psn};

use crate::ids::{MachineId, QpIndex, QpRef};
use crate::nic::long_path::Packets;
use crate::nic::port::TransitTimes;
use crate::world::fabric::{Event, EventQueue, Fabric};
use crate::world::message::{Answer, Direction, Lost};
use crate::world::wire::Size;

/// The order of PSNs: half of them are before a number, the other half after it (IBTA vol. 1, 9.7.1).
fn is_before(psn: Psn, other: Psn) -> bool {
    psn != other && other.distance_from(psn) < 1 << 23
}

impl Fabric {
    /// Sends a message over the path behind its machine's port, if there is one.
    pub(super) fn cross_path(
        &mut self,
        message: u32,
        (source, there): (QpIndex, MachineId),
        size: &Size,
        passage: &mut TransitTimes,
    ) {
        self.messages.get(message).lost = None;
        let here = self.qps[source].machine;
        let host = &mut self.machines[here];
        let link = host.preset.link_layer;
        let Some(path) = host.path.as_mut().filter(|_| here != there) else {
            return;
        };
        let mut packets = Packets {
            first: passage.first,
            last: passage.last,
            count: size.packets,
            head: size.head,
            wire: size.wire,
        };
        if link == LinkLayer::Iwarp {
            // The adapter's TCP resends only the lost packets, and passes the message on when all have arrived.
            let (rounds, resent) = path.resent(size.packets);
            packets.wire += resent * size.wire / size.packets;
            (passage.first, passage.last) = path.cross_intact(packets, rounds);
            let m = self.messages.get(message);
            let is_request = m.direction == Direction::Request;
            let crossed = &mut self.qps[source].crossed[usize::from(is_request)];
            passage.last = passage.last.max(*crossed);
            *crossed = passage.last;
        } else {
            let crossing = path.cross(packets);
            (passage.first, passage.last) = (crossing.first, crossing.last);
            self.messages.get(message).lost = crossing.lost.map(|first| Lost {
                first,
                packets: size.packets,
            });
        }
        self.messages.get(message).first = passage.first;
    }

    /// Whether the machine of a queue pair sends over a long path.
    pub(super) fn is_on_path(&self, at: QpRef) -> bool {
        let machine = self.qps.get(at.index).map(|qp| qp.machine);
        machine.is_some_and(|machine| self.machines[machine].path.is_some())
    }

    /// A message arrives without some of its packets.
    pub(super) fn arrive_in_part(&mut self, message: u32, lost: Lost, events: &mut EventQueue) {
        let m = self.messages.get(message);
        let (from, to, seq, psn) = (m.from, m.to, m.seq, m.psn);
        let skip = m.skip;
        let is_revealed = lost.first + 1 < lost.packets;
        match m.direction {
            Direction::Request => {
                let reliable = |qp: &mut crate::nic::queue_pair::Qp| qp.qp_type.is_reliable();
                if !self.alive(to).is_some_and(reliable) {
                    return self.dropped(message, events);
                }
                let expects = self.qps[to.index].rq.expects(psn);
                if expects {
                    if lost.first > 0 {
                        self.qps[to.index].rq.close_gap();
                    }
                    self.arrived_before(from, seq, (skip, lost.first));
                }
                match expects && !is_revealed {
                    true => self.unanswered(message, events),
                    false => self.out_of_sequence(message, events.now(), events),
                }
            }
            Direction::Answer(Answer::Ack) if m.operation.writes_local_memory() => {
                self.arrived_before(from, seq, (skip, lost.first));
                if !is_revealed {
                    return self.unanswered(message, events);
                }
                self.messages.end(message);
                if self.answer_earlier(from, seq, events)
                    && self.alive(from).is_some_and(|qp| qp.sq.awaits(seq))
                {
                    self.go_back(from, (seq, seq), events);
                }
            }
            _ => self.unanswered(message, events),
        }
    }

    /// `packets` of a request, after the `skip` bytes that had arrived before, or of the response to a READ, have arrived in order: they are not sent again.
    fn arrived_before(&mut self, at: QpRef, seq: u64, (skip, packets): (u64, u64)) {
        if let Some(qp) = self.alive(at) {
            let mtu = qp.mtu;
            if let Some(wqe) = qp.sq.wqe(seq) {
                wqe.arrived = wqe.arrived.max(skip + packets * mtu);
            }
        }
    }

    /// A request that is not the expected one arrives at a reliable queue pair: a repeated one, or one behind a gap.
    pub(super) fn out_of_sequence(&mut self, message: u32, at: Time, events: &mut EventQueue) {
        let m = self.messages.get(message);
        let (to, psn) = (m.to, m.psn);
        if !self.is_on_path(to) {
            return self.dropped(message, events);
        }
        let expected = self.qps[to.index].rq.expected();
        if is_before(psn, expected) {
            return self.repeated(message, at, events);
        }
        // One NAK for a gap (IBTA vol. 1, 9.7.5.2.8).
        if !self.qps[to.index].rq.reveal_gap() {
            return self.unanswered(message, events);
        }
        let m = self.messages.get(message);
        // Unless both ends began with different PSNs.
        let Some(seq) = m.seq.checked_sub(psn.distance_from(expected).into()) else {
            return self.unanswered(message, events);
        };
        m.seq = seq;
        self.answer(message, Answer::OutOfSequence, at, events);
    }

    /// A request arrives that was executed before.
    fn repeated(&mut self, message: u32, at: Time, events: &mut EventQueue) {
        let m = self.messages.get(message);
        let (to, psn, operation) = (m.to, m.psn, m.operation);
        match operation {
            Operation::RdmaRead(_) => match self.range_again(message) {
                Some(range) => self.read(message, range, at, events),
                None => self.unanswered(message, events),
            },
            _ if operation.is_atomic() => match self.qps[to.index].rq.atomic_result(psn) {
                Some(old) => {
                    let m = self.messages.get(message);
                    m.payload.clear();
                    m.payload.extend_from_slice(&old.to_ne_bytes());
                    m.length = 8;
                    self.answer(message, Answer::Ack, at, events);
                }
                None => self.unanswered(message, events),
            },
            _ => self.answer(message, Answer::Ack, at, events),
        }
    }

    /// An answer to WQE `seq` also answers earlier requests, unless they await data; if one does, all from there on are
    /// resent. Returns false then.
    pub(super) fn answer_earlier(&mut self, at: QpRef, seq: u64, events: &mut EventQueue) -> bool {
        while let Some(qp) = self.alive(at) {
            let first = qp.sq.first_unanswered();
            let Some(wqe) = qp.sq.wqe(first).filter(|_| first < seq) else {
                return true;
            };
            if wqe.operation.writes_local_memory() {
                self.go_back(at, (first, seq), events);
                return false;
            }
            let ended = (adverb_verbs::WcStatus::Success, events.now());
            self.end_request(at.index, first, ended, events);
        }
        false
    }

    /// Resends WQE `missing` and all later ones at once, unless that is done: the response to WQE `shown_by` has arrived
    /// without its response.
    fn go_back(&mut self, at: QpRef, (missing, shown_by): (u64, u64), events: &mut EventQueue) {
        if let Some(qp) = self.alive(at)
            && qp.retry.is_due(missing, shown_by)
        {
            qp.retry.answered(events.now());
            self.resend_from(at, missing);
            self.pump(at, events);
        }
    }

    /// Starts the retransmission timer of a request that leaves over a long path, unless it runs. Over iWARP no request is
    /// lost, and TCP alone resends.
    pub(super) fn time_request(&mut self, at: QpRef, seq: u64, events: &mut EventQueue) {
        let now = events.now();
        let Some(machine) = self.qps.get(at.index).map(|qp| qp.machine) else {
            return;
        };
        let host = &self.machines[machine];
        if host.path.is_some()
            && host.preset.link_layer != LinkLayer::Iwarp
            && let Some(qp) = self.alive(at)
            && qp.qp_type.is_reliable()
            && let Some(due) = qp.retry.start_timer(now)
        {
            events.schedule(due, Event::Timeout { qp: at, seq });
        }
    }
}
