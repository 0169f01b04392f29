//! The dynamically connected transport (DC).
//!
//! An initiator is connected to one target at a time. When its next request is for another target, it first
//! waits for outstanding answers. Then it sends a disconnect packet to the old target, which is not answered,
//! and a connect packet to the new one, whose answer it waits for. So a change of targets costs three packets
//! and a round trip between the NICs (Kalia et al., OSDI 2016, section 2.2). A target takes a context for
//! each connected initiator from a pool.

use adverb_verbs::{Operation, QpState, QpType};

use crate::ids::QpRef;
use crate::machine::stages::connecting_span;
use crate::nic::dc::{HeldContext, State};
use crate::nic::device::ContextKind;
use crate::nic::port::Target;
use crate::world::fabric::{Event, EventQueue, Fabric};
use crate::world::message::{Delivery, Direction, Message};

impl Fabric {
    /// Whether a DC initiator is connected to the target of its next request. If it is not, and has
    /// no outstanding requests, it begins to change targets.
    pub(super) fn has_target(&mut self, at: QpRef, events: &mut EventQueue) -> bool {
        let now = events.now();
        let qp = &mut self.qps[at.index];
        if qp.sq.is_issuing() || qp.state != QpState::Rts || !qp.may_issue() {
            return true;
        }
        let (next, state) = (qp.sq.next(), qp.dc.state);
        let wanted = qp.sq.wqe(next).map(|wqe| (wqe.target, wqe.ready));
        let Some((Some(target), ready)) = wanted else {
            return true;
        };
        match state {
            State::Connected(other) if other == target => return true,
            State::Connecting(_) => return false,
            State::Connected(_) | State::Disconnected => {}
        }
        let before = next.checked_sub(1).and_then(|before| qp.sq.wqe(before));
        if before.is_some_and(|wqe| wqe.status.is_none()) {
            return false;
        }
        qp.dc.state = State::Connecting(target);
        let (machine, turns) = (qp.machine, qp.turns as usize);
        let nic = &mut self.machines[machine].nic;
        let begin = nic.units.turns[turns].begin(ready.max(now), nic.params.unit_wqe_ns);
        events.schedule(begin, Event::ChangeTarget { qp: at });
        false
    }

    /// The initiator sends a disconnect packet to the old target, and a connect packet to the new one.
    pub(super) fn change_target(&mut self, at: QpRef, events: &mut EventQueue) {
        let Some(qp) = self.alive(at) else { return };
        let State::Connecting(target) = qp.dc.state else {
            return;
        };
        let (machine, held) = (qp.machine, qp.dc.held.take());
        let host = &mut self.machines[machine];
        let context = host.context(at.index.0, ContextKind::Requester);
        host.nic.tx.serve(events.now(), context);
        if let Some(held) = held {
            let disconnect = Direction::Disconnect(held.context);
            self.send_control(at, held.target, (disconnect, target), events);
        }
        let to = self.destination(at, Some(target));
        self.send_control(at, to, (Direction::Connect, target), events);
    }

    /// Sends a connect or disconnect packet.
    fn send_control(
        &mut self,
        at: QpRef,
        to: QpRef,
        (direction, target): (Direction, Target),
        events: &mut EventQueue,
    ) {
        let now = events.now();
        let payload = self.messages.buffer();
        let qp = &self.qps[at.index];
        let (seq, psn, source) = (qp.sq.next(), qp.sq.psn(), qp.number);
        let host = &mut self.machines[qp.machine];
        let passed = host.transmit(now, host.nic.times.send);
        let message = self.messages.put(Message {
            from: at,
            to,
            seq,
            psn,
            operation: Operation::Send,
            direction,
            length: 0,
            payload,
            lent: None,
            skip: 0,
            lost: None,
            solicited: false,
            gathered: passed.ready,
            first: now,
            delivery: Delivery::default(),
            source,
            qkey: target.qkey,
            group: None,
        });
        self.depart(message, passed, events);
    }

    /// A connect packet arrives at the target.
    pub(super) fn connect_requested(&mut self, message: u32, events: &mut EventQueue) {
        let now = events.now();
        let m = self.messages.get(message);
        let (from, to, key) = (m.from, m.to, m.qkey);
        let Some(qp) = self.qps.get(to.index) else {
            return self.unanswered(message, events);
        };
        let is_target = qp.life == to.life && qp.qp_type == QpType::Dct;
        let accepts = is_target && qp.state.receives() && qp.qkey == key;
        let host = &mut self.machines[qp.machine];
        host.nic.counts.received_messages += 1;
        let creation = host.nic.times.context_creation;
        let passed = host.receive(now, connecting_span(host)) + creation;
        let context = if accepts {
            host.nic.dc_contexts.take()
        } else {
            None
        };
        let Some(context) = context else {
            return self.dropped(message, events);
        };
        host.make_context(context, ContextKind::DcResponder);
        self.release(from);
        let Some(initiator) = self.alive(from) else {
            self.return_context(to, context);
            return self.messages.end(message);
        };
        let target = to;
        initiator.dc.held = Some(HeldContext { target, context });
        let m = self.messages.get(message);
        m.direction = Direction::Connected;
        self.leave(message, passed, events);
    }

    /// The target's answer arrives at the initiator.
    pub(super) fn connect_answered(&mut self, message: u32, events: &mut EventQueue) {
        let now = events.now();
        let at = self.messages.get(message).from;
        self.messages.end(message);
        let Some(machine) = self.alive(at).map(|qp| qp.machine) else {
            return;
        };
        let host = &mut self.machines[machine];
        host.nic.counts.received_messages += 1;
        let span = host.nic.times.response + host.context(at.index.0, ContextKind::Requester);
        let passed = host.receive(now, span);
        events.schedule(passed, Event::Connected { qp: at });
    }

    pub(super) fn connected(&mut self, at: QpRef, events: &mut EventQueue) {
        let Some(qp) = self.alive(at) else { return };
        if let State::Connecting(target) = qp.dc.state {
            qp.dc.state = State::Connected(target);
            qp.retry.restore();
        }
        self.pump(at, events);
    }

    /// A disconnect packet arrives at the target.
    pub(super) fn disconnect(&mut self, message: u32, context: u32, events: &mut EventQueue) {
        let to = self.messages.get(message).to;
        self.messages.end(message);
        let Some(qp) = self.qps.get(to.index) else {
            return;
        };
        let host = &mut self.machines[qp.machine];
        host.nic.counts.received_messages += 1;
        let span = connecting_span(host);
        host.receive(events.now(), span);
        self.return_context(to, context);
    }

    fn return_context(&mut self, target: QpRef, context: u32) {
        if let Some(qp) = self.qps.get(target.index) {
            let nic = &mut self.machines[qp.machine].nic;
            nic.dc_contexts.give(context);
        }
    }

    /// Returns the context that an initiator holds to its pool.
    pub(super) fn release(&mut self, initiator: QpRef) {
        let held = self.alive(initiator).and_then(|qp| qp.dc.held.take());
        if let Some(held) = held {
            self.return_context(held.target, held.context);
        }
    }

    /// Returns the context of the responder: the queue pair's own, or the one that a DC target holds for the
    /// initiator.
    pub(super) fn responder_context(&self, from: QpRef, to: QpRef) -> (u32, ContextKind) {
        let initiator = self.qps.get(from.index);
        match initiator.and_then(|qp| qp.dc.held) {
            Some(held) => (held.context, ContextKind::DcResponder),
            None => match self.qps.get(to.index) {
                Some(qp) if !qp.qp_type.is_reliable() => {
                    (to.index.0, ContextKind::UnreliableResponder)
                }
                _ => (to.index.0, ContextKind::Responder),
            },
        }
    }

    /// Whether `to` is the DC target that `from` is connected to.
    pub(super) fn is_dc_peer(&self, from: QpRef, to: QpRef) -> bool {
        let initiator = self.qps.get(from.index);
        let held = initiator.and_then(|qp| qp.dc.held);
        held.is_some_and(|held| held.target == to)
    }
}
