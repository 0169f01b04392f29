//! The requester: from the doorbell to the departure of a request, and its end.

use adverb_units::{Span, Time};
use adverb_verbs::{AccessFlags, QpType, SendFlags, WcStatus};

use crate::host::pcie::LINE;
use crate::ids::{MachineId, QpIndex, QpRef};
use crate::machine::stages::sending_span;
use crate::nic::device::{ContextKind, NicSide};
use crate::trace::StepKind;
use crate::world::fabric::{Event, EventQueue, Fabric, Path};
use crate::world::message::{Delivery, Direction, Lent, Message};
use crate::world::payload::lend;

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
        let Some(qp) = self.alive(at) else {
            return false;
        };
        if qp.qp_type == QpType::Dci && !self.has_target(at, events) {
            return false;
        }
        let qp = &self.qps[at.index];
        // The WQE is read even if it then has to wait for answers.
        if qp.sq.is_issuing() || !qp.may_issue() || !self.has_next(at, events) {
            return false;
        }
        let sq = &mut self.qps[at.index].sq;
        let Some(ready) = sq.takes_at(now) else {
            return false;
        };
        sq.begin_turn();
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
        let turns = qp.turns as usize;
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
            let segmenting = host.segmenting(gathered, latency);
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

    /// A request ends; the NIC knows at `at`.
    pub(super) fn end_request(
        &mut self,
        index: QpIndex,
        seq: u64,
        (status, at): (WcStatus, Time),
        events: &mut EventQueue,
    ) {
        self.end_written(index, seq, (status, at, at), events);
    }

    /// As [`Fabric::end_request`], for one whose data are visible at `written`: its completion follows them.
    pub(super) fn end_written(
        &mut self,
        index: QpIndex,
        seq: u64,
        (status, at, written): (WcStatus, Time, Time),
        events: &mut EventQueue,
    ) {
        let qp = &mut self.qps[index];
        let machine = &mut self.machines[qp.machine];
        let is_reliable = qp.qp_type.is_reliable();
        let Some(wqe) = qp.sq.wqe(seq) else { return };
        wqe.status = Some(status);
        wqe.completed = at;
        if is_reliable {
            machine.nic.counts.completed_requests += 1;
        }
        if !status.is_success() || wqe.flags.contains(SendFlags::SIGNALED) {
            let bytes = u64::from(machine.preset.params.nic.cqe_bytes);
            let now = events.now();
            wqe.completed = machine.pcie.complete(now, at - now, bytes).max(written);
        }
        self.retire(index, events);
    }
}
