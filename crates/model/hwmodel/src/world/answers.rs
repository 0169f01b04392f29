//! The requester's handling of answers, and of answers that do not come: retransmissions and their timer.

use adverb_units::Span;
use adverb_verbs::{AccessFlags, WcStatus};

use crate::ids::QpRef;
use crate::nic::device::{ContextKind, NicSide};
use crate::nic::retry::Expiry;
use crate::trace::StepKind;
use crate::world::fabric::{Event, EventQueue, Fabric};
use crate::world::message::Answer;

impl Fabric {
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
            visible = host.stream_in((first, passed), delay, length);
        }
        if is_fetch && answer != Answer::OutOfSequence {
            // Only now may another READ be sent.
            self.qps[at.index].sq.free_read(passed);
        }
        match answer {
            Answer::Ack => {
                let (status, is_polled) = self.scatter(message, at, seq, events);
                self.end_written(at.index, seq, (status, passed, visible), events);
                if is_polled {
                    events.schedule(visible, Event::Land { message });
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
