//! The responder: how requests access memory and receives, and the answers.

use adverb_units::{Span, Time};
use adverb_verbs::{Gid, Operation, QpType, WcFlags, WcOpcode, WcStatus, WorkCompletion};

use crate::host::memory::Range;
use crate::host::pcie::LINE;
use crate::ids::QpRef;
use crate::machine::stages::receiving_span;
use crate::nic::device::NicSide;
use crate::nic::port::Leaves;
use crate::nic::receive_queue::Received;
use crate::trace::StepKind;
use crate::world::admission::{GRH, Refusal, Task};
use crate::world::fabric::{Event, EventQueue, Fabric};
use crate::world::message::{Answer, Delivery, Direction, Message};
use crate::world::payload::lend;

impl Fabric {
    /// A request arrives at the responder's port.
    pub(super) fn request(&mut self, message: u32, events: &mut EventQueue) {
        let task = self.admit(message);
        let m = self.messages.get(message);
        let (to, operation, length, first) = (m.to, m.operation, m.length, m.first);
        let (from, group) = (m.from, m.group);
        let (number, half) = self.responder_context(from, to);
        let Some(qp) = self.qps.get(to.index) else {
            return self.unanswered(message, events);
        };
        self.translate_task(qp.machine, &task, events);
        if group.is_none() {
            self.count_unreliable(from);
        }
        let qp = &self.qps[to.index];
        let host = &mut self.machines[qp.machine];
        host.nic.counts.received_messages += 1;
        let context = host.context(number, half);
        let scattered = length - qp.rq.inline(operation, length);
        let span = receiving_span(host, operation, scattered) + context;
        let now = events.now();
        let passed = host.receive(now, span);
        host.trace.note(StepKind::ContextMiss, now, now + context);
        host.trace.note(StepKind::Receive, now, passed);
        match task {
            Ok(Task::Deliver(delivery)) => {
                self.take_in(message, delivery, (first, passed), events);
            }
            Ok(Task::Read(range)) => self.read(message, range, passed, events),
            Ok(Task::Atomic(range)) => self.lock(message, range, passed, events),
            Err(Refusal::Silence) => self.dropped(message, events),
            Err(Refusal::OutOfSequence) => self.out_of_sequence(message, passed, events),
            Err(Refusal::NotReady) if !qp.qp_type.is_reliable() => self.dropped(message, events),
            Err(Refusal::NotReady) => {
                host.nic.counts.rnr_naks += 1;
                let exception = host.nic.times.exception;
                host.stall(NicSide::Receive, now, exception);
                self.answer(message, Answer::ReceiverNotReady, passed, events);
            }
            Err(Refusal::Invalid(status, received)) => {
                self.refuse(message, status, received, passed, events);
            }
        }
    }

    /// Counts an unreliable request as completed when it arrives, since it is not answered.
    pub(super) fn count_unreliable(&mut self, from: QpRef) {
        if let Some(qp) = self.qps.get(from.index)
            && !qp.qp_type.is_reliable()
        {
            let machine = qp.machine;
            self.machines[machine].nic.counts.completed_requests += 1;
        }
    }

    /// Writes payload, then the completion, to memory, and answers a reliable requester.
    fn take_in(
        &mut self,
        message: u32,
        delivery: Delivery,
        (first, passed): (Time, Time),
        events: &mut EventQueue,
    ) {
        let m = self.messages.get(message);
        let (to, operation, length) = (m.to, m.operation, m.length);
        let now = events.now();
        let receives = delivery.receive.is_some();
        let place = delivery.place;
        m.delivery = delivery;
        let qp = &self.qps[to.index];
        let (machine, reliable) = (qp.machine, qp.qp_type.is_reliable());
        let inline = qp.rq.inline(operation, length);
        let length = length - inline;
        let host = &mut self.machines[machine];
        let mut visible = passed;
        if length > 0 {
            let begin = first.min(now);
            let rx = host.nic.params.rx_ns;
            host.trace.note(StepKind::ReceivePayload, begin, begin + rx);
            visible = host.stream_in((begin, passed), rx, length);
            host.root.carry(length);
            let wait = place.map_or(Span::ZERO, |place| host.root.write(place, now));
            if wait > Span::ZERO {
                host.pcie.hold_writes(now + wait);
                host.trace.note(StepKind::LineWait, visible, visible + wait);
                visible = visible + wait;
            }
        }
        if receives {
            // Prefetching the receive's WQE.
            host.pcie.traffic.read_lines += 1;
            let bytes = u64::from(host.preset.params.nic.cqe_bytes) + beyond_cqe(inline);
            let written = host.pcie.complete(now, passed - now, bytes);
            visible = written.max(visible);
        }
        if !receives && !self.is_watched(message) {
            // The exact time of delivery cannot be observed.
            return self.write_through(message, passed, events);
        }
        if reliable {
            self.acknowledge(message, passed, events);
        }
        // Messages become visible in order (IBTA vol. 1, 9.5).
        let delivered = self.qps[to.index].rq.deliver(visible);
        events.schedule(delivered, Event::Deliver { message });
    }

    /// Stores payload immediately; reuses the message for the acknowledgement, if there is one.
    fn write_through(&mut self, message: u32, passed: Time, events: &mut EventQueue) {
        let m = self.messages.get(message);
        let (place, to) = (m.delivery.place.take(), m.to.index);
        let (machine, qp_type) = (self.qps[to].machine, self.qps[to].qp_type);
        self.place_data(message, machine, place.as_slice(), 0);
        if qp_type.is_reliable() {
            self.answer(message, Answer::Ack, passed, events);
        } else {
            self.messages.end(message);
        }
    }

    /// Whether a role polls the memory that a message writes.
    fn is_watched(&mut self, message: u32) -> bool {
        let m = self.messages.get(message);
        let (to, place) = (m.to.index, m.delivery.place);
        let machine = self.qps[to].machine;
        place.is_some_and(|place| self.machines[machine].memory.watcher(place).is_some())
    }

    /// Sends an acknowledgement as a message of its own, because the request is still to be delivered.
    fn acknowledge(&mut self, message: u32, at: Time, events: &mut EventQueue) {
        let payload = self.messages.buffer();
        let m = self.messages.get(message);
        let ack = Message {
            direction: Direction::Answer(Answer::Ack),
            length: 0,
            skip: 0,
            payload,
            lent: None,
            delivery: Delivery::default(),
            ..*m
        };
        let ack = self.messages.put(ack);
        self.leave(ack, at, events);
    }

    /// A message's data become visible, and its receive completes.
    pub(super) fn deliver(&mut self, message: u32, events: &mut EventQueue) {
        let m = self.messages.get(message);
        let (to, operation, solicited, imm) = (m.to, m.operation, m.solicited, m.imm());
        let (from, group) = (m.from, m.group);
        let (length, source) = (m.length, m.source);
        let delivery = std::mem::take(&mut m.delivery);
        let Some(qp) = self.alive(to) else {
            if delivery.receive.is_some() {
                self.give_back_shared(to.index, 1);
            }
            return self.messages.end(message);
        };
        let (machine, is_datagram) = (qp.machine, qp.qp_type == QpType::Ud);
        let with_place = delivery.place.is_some();
        if let Some(place) = delivery.place {
            self.place_data(message, machine, &[place], 0);
            if let Some(watcher) = self.machines[machine].memory.watcher(place) {
                events.signal(watcher);
            }
        }
        if let Some(received) = delivery.receive {
            if is_datagram {
                let header = self.routing_header((from, to), group, length);
                self.place(machine, &received.ranges, 0, &header);
            }
            if !with_place {
                let header = received.header as usize;
                self.place_data(message, machine, &received.ranges, header);
            }
            let arrived = WorkCompletion {
                opcode: match operation {
                    Operation::RdmaWriteWithImm(..) => WcOpcode::RecvRdmaWithImm,
                    _ => WcOpcode::Recv,
                },
                byte_len: length as u32 + received.header,
                imm,
                src_qp: is_datagram.then_some(source),
                flags: if is_datagram {
                    WcFlags::GRH
                } else {
                    WcFlags::empty()
                },
                ..WorkCompletion::default()
            };
            let now = events.now();
            let inline = self.qps[to.index].rq.inline(operation, length);
            let received = (&received, inline);
            self.complete_receive(to.index, received, arrived, (now, solicited), events);
        }
        self.messages.end(message);
    }

    /// The global routing header of a datagram (IBTA vol. 1, 8.3).
    fn routing_header(
        &self,
        (from, to): (QpRef, QpRef),
        group: Option<Gid>,
        length: u64,
    ) -> [u8; GRH as usize] {
        let gid = |qp: QpRef| {
            let machine = self.qps[qp.index].machine;
            self.machines[machine].gid().0
        };
        let mut header = [0; GRH as usize];
        header[0] = 6 << 4;
        header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        header[8..24].copy_from_slice(&gid(from));
        header[24..].copy_from_slice(&group.map_or_else(|| gid(to), |group| group.0));
        header
    }

    /// Executes a READ: sends the data back as they arrive from memory.
    pub(super) fn read(
        &mut self,
        message: u32,
        range: Option<Range>,
        at: Time,
        events: &mut EventQueue,
    ) {
        let to = self.messages.get(message).to;
        let turns = self.qps[to.index].turns as usize;
        let host = &mut self.machines[self.qps[to.index].machine];
        let now = events.now();
        // Its place in the transmit side is fixed now; it arrives there when it has passed the receive side.
        let lines = range.map_or(1, |range| (range.length as u64).div_ceil(LINE));
        let sent = host.transmit(now, host.nic.times.read_response);
        host.transmit_more(now, lines.saturating_sub(1));
        let through = at + host.nic.params.tx_ns;
        let passed = Leaves {
            idle: through,
            ready: sent.ready.max(through),
        };
        host.trace.note(StepKind::Transmit, at, passed.ready);
        let (mut leaves, mut gathered) = (passed, passed.ready);
        self.messages.clear(message);
        let mut sent_bytes = 0;
        if let Some(range) = range {
            let latency = host.read_latency(range) + host.root.read(range, now);
            let arrival = host.pcie.read(now, at - now, range.length as u64, latency);
            leaves = passed.with(arrival);
            let segmenting = host.segmenting(range.length as u64, latency);
            gathered = arrival
                .last
                .max(host.segment((turns, now), leaves.ready, segmenting));
            let payload = &mut self.messages.get(message).payload;
            if let Some(lent) = lend(host.index, &host.memory, &[range], payload) {
                sent_bytes = range.length as u64;
                if let Some(lent) = lent {
                    self.messages.lend(message, lent);
                }
            }
        }
        let m = self.messages.get(message);
        m.length = sent_bytes;
        m.direction = Direction::Answer(Answer::Ack);
        m.gathered = gathered;
        self.depart(message, leaves, events);
    }

    pub(super) fn answer(
        &mut self,
        message: u32,
        answer: Answer,
        at: Time,
        events: &mut EventQueue,
    ) {
        let m = self.messages.get(message);
        m.direction = Direction::Answer(answer);
        m.skip = 0;
        if !(answer == Answer::Ack && m.operation.is_atomic()) {
            m.length = 0;
            self.messages.clear(message);
        }
        self.leave(message, at, events);
    }

    /// Sends an answer that needs no data from memory at `at`.
    pub(super) fn leave(&mut self, message: u32, at: Time, events: &mut EventQueue) {
        self.messages.get(message).gathered = at;
        self.depart(message, Leaves::at(at), events);
    }

    /// Drops a message. A reliable requester notices by its retransmission timer.
    pub(super) fn dropped(&mut self, message: u32, events: &mut EventQueue) {
        let to = self.messages.get(message).to;
        if let Some(qp) = self.qps.get(to.index) {
            let machine = qp.machine;
            self.machines[machine].nic.counts.dropped_datagrams += 1;
        }
        self.unanswered(message, events);
    }

    /// Refuses an invalid request. Reliable transports send a NAK and fail, others drop it.
    fn refuse(
        &mut self,
        message: u32,
        status: WcStatus,
        received: Option<Received>,
        at: Time,
        events: &mut EventQueue,
    ) {
        let to = self.messages.get(message).to;
        let qp_type = self.qps[to.index].qp_type;
        if qp_type.is_reliable() {
            self.answer(message, Answer::Nak(status), at, events);
        } else {
            self.dropped(message, events);
        }
        // A receive that is too short or invalid is an error of the receiver.
        let fails = qp_type == QpType::Rc || received.is_some();
        if let Some(received) = received {
            let qp = &mut self.qps[to.index];
            qp.rq.fail(received.wr_id, received.status);
            let qp = qp.reference();
            self.fail_receives(qp, events);
        }
        if fails {
            self.fail(to.index, adverb_verbs::QpState::Err, events);
        }
    }
}

/// Additional size of a completion that carries `inline` bytes of payload: half a line fits into it, more
/// needs another line (mlx5: completions of 64 or 128 B).
fn beyond_cqe(inline: u64) -> u64 {
    if inline <= LINE / 2 { 0 } else { LINE }
}
