//! The requester: from the doorbell to the departure of a request, and the handling of answers.

use adverb_units::{Span, Time};
use adverb_verbs::{AccessFlags, SendFlags, WcStatus};

use crate::host::pcie::LINE;
use crate::ids::{MachineId, QpIndex, QpRef};
use crate::machine::stages::sending_span;
use crate::nic::device::{ContextKind, NicSide};
use crate::nic::retry::Expiry;
use crate::trace::{StepKind, Subject};
use crate::world::fabric::{Event, EventQueue, Fabric, Path};
use crate::world::message::{Answer, Delivery, Direction, Lent, Message};
use crate::world::payload::lend;
use crate::world::wire::payload as payload_of;

impl Fabric {
    pub(super) fn doorbell(&mut self, at: QpRef, count: u32, path: Path, events: &mut EventQueue) {
        let now = events.now();
        let Some(qp) = self.alive(at) else { return };
        let machine = qp.machine;
        let machine = &mut self.machines[machine];
        let qp = &mut self.qps[at.index];
        match path {
            Path::Mmio => machine.written(qp, now),
            Path::Fetch { bell } => {
                if let Some(next) = machine.rung(qp, count, bell.into(), now) {
                    events.schedule(next, Event::Prefetch { qp: at });
                }
            }
        }
        self.pump(at, events);
    }

    /// Passes the next WQE of a queue pair to a processing unit, which takes it once it is free.
    pub(super) fn pump(&mut self, at: QpRef, events: &mut EventQueue) {
        if self.line_up(at, events) {
            self.serve_unit(at, events);
        }
    }

    /// Queues a queue pair for a processing unit if the NIC has its next WQE. Returns whether it did; if the NIC can
    /// process the WQE only later, it does so then.
    fn line_up(&mut self, at: QpRef, events: &mut EventQueue) -> bool {
        let now = events.now();
        if !self.has_target(at, events) {
            return false;
        }
        let Some(ready) = self.next_ready(at, events) else {
            return false;
        };
        self.qps[at.index].sq.begin_turn();
        if ready > now {
            events.schedule(ready, Event::Issue { qp: at });
            return false;
        }
        self.queue_up(at, events)
    }

    /// Queues a queue pair for a processing unit; if the NIC first has to load its context, or to process the request before,
    /// when it has. Returns whether it is queued.
    fn queue_up(&mut self, at: QpRef, events: &mut EventQueue) -> bool {
        let now = events.now();
        let qp = &mut self.qps[at.index];
        let host = &mut self.machines[qp.machine];
        if qp.sq.begin_fetches() {
            let loaded = host.load_context(at.index.0, now);
            if loaded > now {
                events.schedule(loaded, Event::Issue { qp: at });
                return false;
            }
        }
        let units = &mut host.nic.units;
        let turn = units.turns[qp.turns as usize].free();
        if turn > now {
            events.schedule(turn, Event::Issue { qp: at });
            return false;
        }
        units.waiting.push_back((at, now));
        true
    }

    /// Returns when the NIC can process the next WQE; `None` if none may be sent.
    fn next_ready(&mut self, at: QpRef, events: &mut EventQueue) -> Option<Time> {
        let now = events.now();
        let qp = self.alive(at)?;
        if qp.sq.is_issuing() || !qp.may_issue() {
            return None;
        }
        // The WQE is read even if it then has to wait for answers.
        if !self.has_next(at, events) {
            return None;
        }
        let qp = &mut self.qps[at.index];
        if qp.sq.must_wait() {
            return None;
        }
        let next = qp.sq.next();
        let ready = qp.sq.wqe(next)?.ready.max(now);
        Some(qp.sq.takes_at(ready))
    }

    /// The NIC can process the next WQE of a queue pair.
    pub(super) fn issue_next(&mut self, at: QpRef, events: &mut EventQueue) {
        if self.alive(at).is_some() && self.queue_up(at, events) {
            self.serve_unit(at, events);
        }
    }

    /// A processing unit is free.
    pub(super) fn unit_free(&mut self, machine: MachineId, events: &mut EventQueue) {
        self.machines[machine].nic.units.is_scheduled = false;
        self.serve(machine, events);
    }

    fn serve_unit(&mut self, at: QpRef, events: &mut EventQueue) {
        self.serve(self.qps[at.index].machine, events);
    }

    /// The processing units take a WQE of each queue pair that waits in turn, until all units are busy.
    fn serve(&mut self, machine: MachineId, events: &mut EventQueue) {
        let now = events.now();
        loop {
            let units = &mut self.machines[machine].nic.units;
            if units.is_scheduled || units.waiting.is_empty() {
                return;
            }
            let free = units.next_free();
            if free > now {
                units.is_scheduled = true;
                return events.schedule(free, Event::Unit { machine });
            }
            let Some((at, since)) = units.waiting.pop_front() else {
                return;
            };
            if let Some(qp) = self.alive(at) {
                qp.sq.end_turn();
                self.take_turn(at, since, events);
                if !self.line_up(at, events)
                    && let Some(qp) = self.alive(at)
                {
                    qp.sq.end_fetches();
                }
            }
        }
    }

    fn take_turn(&mut self, at: QpRef, since: Time, events: &mut EventQueue) {
        let now = events.now();
        let Some(qp) = self.alive(at) else { return };
        if !qp.may_issue() {
            return;
        }
        let seq = qp.sq.issue();
        let (machine, turns, port) = (qp.machine, qp.turns, qp.port as usize);
        let host = &mut self.machines[machine];
        let nic = &mut host.nic;
        let span = nic.params.unit_wqe_ns;
        nic.units.turns[turns as usize].begin(now, span);
        let before = [nic.tx.free(), nic.ports[port].free()];
        host.trace.note(StepKind::UnitWait, since, now);
        host.trace.note(StepKind::Unit, now, now + span);
        if let Some(wqe) = self.qps[at.index].sq.wqe(seq) {
            let is_needed = wqe.operation.writes_local_memory();
            wqe.location = nic.wqes.sent(wqe.location, is_needed);
        }
        self.issue(at, seq, events);
        let nic = &mut self.machines[machine].nic;
        let after = [nic.tx.free(), nic.ports[port].free()];
        nic.units.hold((turns, now), port, before, after);
    }

    fn issue(&mut self, at: QpRef, seq: u64, events: &mut EventQueue) {
        let now = events.now();
        let index = at.index;
        let (machine, pd) = (self.qps[index].machine, self.qps[index].pd);
        let (payload, lent) = match self.gather(at, seq, (pd, machine), now) {
            Ok(data) => data,
            Err(status) => {
                self.end_request(at.index, seq, (status, now), events);
                return;
            }
        };
        let qp = &mut self.qps[index];
        let (sq_psn, number, qkey) = (qp.sq.psn(), qp.number, qp.qkey);
        let (turns, mtu) = (qp.turns as usize, qp.mtu);
        let Some(wqe) = qp.sq.wqe(seq) else { return };
        let operation = wqe.operation;
        let is_inline = wqe.inline.is_some();
        let length = lent.map_or(payload.len(), |lent| lent.range.length) as u64;
        let gathered = if is_inline { 0 } else { length };
        let (lines, skip) = (wqe.lines, wqe.arrived);
        let solicited = wqe.flags.contains(SendFlags::SOLICITED);
        let target = wqe.target;
        let host = &mut self.machines[machine];
        // For a READ or an atomic operation, it was loaded before.
        let context = if operation.writes_local_memory() {
            Span::ZERO
        } else {
            host.context(at.index.0, ContextKind::Requester)
        };
        host.trace.note(StepKind::ContextMiss, now, now + context);
        let span = sending_span(host, operation, lines) + context;
        let passed = host.transmit(now, span);
        host.trace.note(StepKind::Transmit, now, passed.ready);
        host.transmit_more(now, gathered.div_ceil(LINE));
        let (mut leaves, mut gathered_at) = (passed, passed.ready);
        if gathered > 0 {
            let latency = host.dma_latency() + host.root.cross(gathered, now);
            let arrival = host.pcie.read(now, Span::ZERO, gathered, latency);
            leaves = passed.with(arrival);
            let packet = payload_of(host.preset.link_layer, mtu);
            let segmenting = host.segmenting((gathered, packet), latency);
            let last = host.segment((turns, now), leaves.ready, segmenting);
            gathered_at = arrival.last.max(last);
            self.qps[index].sq.gather(arrival.last);
        }
        if operation.writes_local_memory() {
            self.qps[index].sq.begin_read();
        }
        let to = self.destination(at, target);
        let message = self.messages.put(Message {
            from: at,
            to,
            seq,
            psn: sq_psn.advance(seq as u32),
            operation,
            direction: Direction::Request,
            length,
            payload,
            lent,
            skip,
            lost: None,
            solicited,
            gathered: gathered_at,
            first: now,
            delivery: Delivery::default(),
            source: number,
            // A key with the highest bit set means the sender's own (IBTA vol. 1, 3.5.3).
            qkey: target
                .map(|target| target.qkey)
                .filter(|key| key >> 31 == 0)
                .unwrap_or(qkey),
            group: target.and_then(|target| target.group),
        });
        self.depart(message, leaves, events);
        self.time_request(at, seq, events);
    }

    /// Returns the data of a request; fails if its memory may not be accessed.
    fn gather(
        &mut self,
        at: QpRef,
        seq: u64,
        (pd, machine): (u32, MachineId),
        now: Time,
    ) -> Result<(Vec<u8>, Option<Lent>), WcStatus> {
        let mut payload = self.messages.buffer();
        let wqe = self.qps[at.index].sq.wqe(seq);
        let wqe = wqe.ok_or(WcStatus::WrFlushErr)?;
        if let Some(inline) = &wqe.inline {
            payload.extend_from_slice(inline);
            return Ok((payload, None));
        }
        if wqe.operation.is_atomic() && wqe.length < 8 {
            return Err(WcStatus::LocLenErr);
        }
        let host = &mut self.machines[machine];
        let is_fetch = wqe.operation.writes_local_memory();
        let access = if is_fetch {
            AccessFlags::LOCAL_WRITE
        } else {
            AccessFlags::empty()
        };
        let ranges = host.memory.ranges(&wqe.sg_list, pd, access);
        let ranges = ranges.ok_or(WcStatus::LocProtErr)?;
        host.translate(&ranges, NicSide::Transmit, now);
        let data = if is_fetch { &[] } else { &ranges[..] };
        let lent = lend(machine, &host.memory, data, &mut payload);
        Ok((payload, lent.ok_or(WcStatus::LocProtErr)?))
    }

    /// A request has left. This ends it if it is not answered.
    pub(super) fn departed(&mut self, at: QpRef, seq: u64, left: Time, events: &mut EventQueue) {
        let Some(qp) = self.alive(at) else { return };
        if !qp.qp_type.is_reliable() {
            self.end_request(at.index, seq, (WcStatus::Success, left), events);
        }
    }

    /// A request ends; the NIC knows at `at`. Returns when its completion is visible.
    pub(super) fn end_request(
        &mut self,
        index: QpIndex,
        seq: u64,
        (status, at): (WcStatus, Time),
        events: &mut EventQueue,
    ) -> Time {
        let qp = &mut self.qps[index];
        let machine = &mut self.machines[qp.machine];
        let is_reliable = qp.qp_type.is_reliable();
        let Some(wqe) = qp.sq.wqe(seq) else {
            return at;
        };
        wqe.status = Some(status);
        wqe.completed = at;
        if is_reliable {
            machine.nic.counts.completed_requests += 1;
        }
        if !status.is_success() || wqe.flags.contains(SendFlags::SIGNALED) {
            let bytes = u64::from(machine.preset.params.nic.cqe_bytes);
            let now = events.now();
            let cqe = machine.pcie.about(Subject::Cqe);
            wqe.completed = cqe.write(now, at - now, bytes);
        }
        let completed = wqe.completed;
        self.retire(index, events);
        completed
    }

    pub(super) fn answered(&mut self, message: u32, answer: Answer, events: &mut EventQueue) {
        let m = self.messages.get(message);
        let (at, seq, operation) = (m.from, m.seq, m.operation);
        let (length, first) = (m.length, m.first);
        let Some(qp) = self.alive(at) else {
            return self.messages.end(message);
        };
        let machine = qp.machine;
        // Behind a bad path, an answer may be the first one to several requests.
        if self.machines[machine].path.is_some()
            && answer != Answer::ReceiverNotReady
            && !self.answer_earlier(at, seq, events)
        {
            return self.messages.end(message);
        }
        let Some(qp) = self.alive(at) else {
            return self.messages.end(message);
        };
        if !qp.sq.awaits(seq) {
            return self.messages.end(message);
        }
        match answer {
            Answer::ReceiverNotReady => qp.retry.not_ready(events.now()),
            _ => qp.retry.answered(events.now()),
        }
        let is_fetch = operation.writes_local_memory();
        let mtu = qp.mtu;
        let wqe = qp.sq.wqe(seq).map(|wqe| (wqe.location, wqe.lines));
        if is_fetch && answer != Answer::OutOfSequence {
            qp.sq.end_read();
        }
        let host = &mut self.machines[machine];
        let context = host.context(at.index.0, ContextKind::Requester);
        let now = events.now();
        host.trace.note(StepKind::ContextMiss, now, now + context);
        let span = host.nic.times.response + context;
        let passed = host.receive(events.now(), span);
        host.trace.note(StepKind::Receive, events.now(), passed);
        let passed = match wqe {
            Some(wqe) if is_fetch => passed.max(host.wqe_for_answer(wqe, now)),
            _ => passed,
        };
        let mut visible = passed;
        if length > 0 {
            // The data are visible before the completion, which is written after them.
            let (first, delay) = (first.min(now), passed - now);
            visible = host.stream_in((first, passed), delay, (length, mtu));
        }
        if is_fetch && answer != Answer::OutOfSequence {
            // Only now may another READ be sent.
            self.qps[at.index].sq.free_read(passed);
        }
        match answer {
            Answer::Ack => {
                let (status, is_polled) = self.scatter(message, at, seq, events);
                let completed = self.end_request(at.index, seq, (status, passed), events);
                if is_polled {
                    // Writes over PCIe are in order: the completion does not pass the data.
                    events.schedule(visible.min(completed), Event::Land { message });
                }
                return self.pump(at, events);
            }
            Answer::Nak(status) => {
                self.end_request(at.index, seq, (status, passed), events);
            }
            Answer::ReceiverNotReady => self.not_ready(at, seq, events),
            Answer::OutOfSequence => self.resend_from(at, seq),
        }
        self.messages.end(message);
        self.pump(at, events);
    }

    /// Stores the data of an answer in the requester's memory, and ends the message; or returns true: a program polls
    /// the memory, so that the exact time matters, and [`Fabric::land`] stores them. All others access it after the
    /// completion.
    fn scatter(
        &mut self,
        message: u32,
        at: QpRef,
        seq: u64,
        events: &EventQueue,
    ) -> (WcStatus, bool) {
        let m = self.messages.get(message);
        if m.payload.is_empty() && m.lent.is_none() {
            self.messages.end(message);
            return (WcStatus::Success, false);
        }
        let qp = &mut self.qps[at.index];
        let (machine, pd) = (qp.machine, qp.pd);
        let memory = &self.machines[machine].memory;
        let ranges = qp
            .sq
            .wqe(seq)
            .and_then(|wqe| memory.ranges(&wqe.sg_list, pd, AccessFlags::LOCAL_WRITE));
        let Some(ranges) = ranges else {
            self.messages.end(message);
            return (WcStatus::LocProtErr, false);
        };
        let host = &mut self.machines[machine];
        host.translate(&ranges, NicSide::Receive, events.now());
        let memory = &host.memory;
        if let [range] = ranges[..]
            && memory.watcher(range).is_some()
        {
            self.messages.get(message).delivery.place = Some(range);
            return (WcStatus::Success, true);
        }
        self.place_data(message, machine, &ranges, 0);
        self.messages.end(message);
        (WcStatus::Success, false)
    }

    /// The data of an answer become visible to a program that polls the memory.
    pub(super) fn land(&mut self, message: u32, events: &mut EventQueue) {
        let m = self.messages.get(message);
        let (at, place) = (m.from, m.delivery.place);
        if let (Some(qp), Some(place)) = (self.alive(at), place) {
            let machine = qp.machine;
            self.place_data(message, machine, &[place], 0);
            let memory = &self.machines[machine].memory;
            if let Some(watcher) = memory.watcher(place) {
                events.signal(watcher);
            }
        }
        self.messages.end(message);
    }

    /// The peer has no receive: resends from this request on after a pause.
    fn not_ready(&mut self, at: QpRef, seq: u64, events: &mut EventQueue) {
        let timer = self.peer_timer(at);
        let now = events.now();
        let host = &mut self.machines[self.qps[at.index].machine];
        host.stall(NicSide::Receive, now, host.nic.times.exception);
        if !self.qps[at.index].retry.pause() {
            let failed = (WcStatus::RnrRetryExcErr, now);
            self.end_request(at.index, seq, failed, events);
            return;
        }
        events.schedule(now + timer, Event::Resume { qp: at });
        self.resend_from(at, seq);
    }

    /// Resends WQE `seq` and all later ones (go-back-N).
    pub(super) fn resend_from(&mut self, at: QpRef, seq: u64) {
        let qp = &mut self.qps[at.index];
        qp.sq.resend_from(seq);
        let nic = &mut self.machines[qp.machine].nic;
        nic.counts.retransmissions += 1;
    }

    fn peer_timer(&self, at: QpRef) -> Span {
        let remote = self.qps[at.index].remote;
        let peer = remote.and_then(|r| self.find(r.machine, r.number));
        peer.map_or(Span::ZERO, |peer| self.qps[peer].rq.rnr_timer())
    }

    pub(super) fn resume_queue(&mut self, at: QpRef, events: &mut EventQueue) {
        if let Some(qp) = self.alive(at) {
            qp.retry.resume();
            self.pump(at, events);
        }
    }

    /// A request will not be answered: starts the retransmission timer.
    pub(super) fn unanswered(&mut self, message: u32, events: &mut EventQueue) {
        let m = self.messages.get(message);
        let (at, seq) = (m.from, m.seq);
        self.messages.end(message);
        let now = events.now();
        let Some(qp) = self.alive(at) else { return };
        if qp.qp_type.is_reliable()
            && let Some(due) = qp.retry.start_timer(now)
        {
            events.schedule(due, Event::Timeout { qp: at, seq });
        }
    }

    /// The retransmission timer fires. Each answer restarts it, even an RNR NAK.
    pub(super) fn timeout(&mut self, at: QpRef, seq: u64, events: &mut EventQueue) {
        let now = events.now();
        let Some(qp) = self.alive(at) else { return };
        qp.retry.timer_fired();
        let first = qp.sq.first_unanswered();
        if !qp.sq.is_unfinished(seq) {
            // Later requests may be in flight, for which the timer runs on.
            if qp.sq.awaits(first) {
                self.time_request(at, first, events);
            }
            return;
        }
        match qp.retry.expire(now) {
            Expiry::Later(due) => events.schedule(due, Event::Timeout { qp: at, seq }),
            Expiry::Exhausted => {
                let failed = (WcStatus::RetryExcErr, now);
                self.end_request(at.index, first, failed, events);
            }
            Expiry::Resend => {
                qp.dc.give_up_connecting();
                self.resend_from(at, first);
                self.pump(at, events);
            }
        }
    }
}
