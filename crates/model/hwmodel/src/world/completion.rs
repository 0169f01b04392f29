//! Completion queues, their events, and completion channels.

use adverb_units::Time;
use adverb_verbs::{
    CqId, NotifyOn, PollError, QpState, SendFlags, WcFlags, WcOpcode, WcStatus, WorkCompletion,
};

use crate::host::memory::Ranges;
use crate::host::pcie::LINE;
use crate::ids::{CqIndex, QpIndex, QpRef};
use crate::nic::completion::{Entry, Frees, Polled};
use crate::nic::receive_queue::Received;
use crate::world::fabric::{Event, EventQueue, Fabric};

impl Fabric {
    /// Adds a completion to its queue, where it is visible from `entry.at` on.
    fn complete(&mut self, cq: CqIndex, mut entry: Entry, events: &mut EventQueue) {
        let queue = &mut self.cqs[cq];
        if queue.entries.len() >= queue.capacity as usize {
            queue.overrun = true;
            events.signal(queue.condition);
            return;
        }
        // The NIC writes completions of a queue in order.
        if let Some(last) = queue.entries.back() {
            entry.at = entry.at.max(last.at);
        }
        if let Some(poller) = &mut queue.poller {
            entry.at = poller.take(entry.at);
        }
        let raises = queue.armed.is_some_and(|on| entry.raises(on));
        queue.entries.push_back(entry);
        events.signal_at(queue.condition, entry.at);
        if raises {
            queue.armed = None;
            events.schedule(entry.at, Event::Interrupt { cq });
        }
    }

    /// Completes the ended requests at the head of the send queue.
    pub(crate) fn retire(&mut self, index: QpIndex, events: &mut EventQueue) {
        loop {
            let qp = &mut self.qps[index];
            let Some((wqe, status, next)) = qp.sq.first_ended() else {
                return;
            };
            if let Some(buffer) = wqe.inline.take() {
                self.messages.keep(buffer);
            }
            let is_reported = !status.is_success() || wqe.flags.contains(SendFlags::SIGNALED);
            let entry = is_reported.then(|| Entry {
                at: wqe.completed,
                completion: WorkCompletion {
                    wr_id: wqe.wr_id,
                    status,
                    opcode: wqe.operation.completion_opcode(),
                    byte_len: wqe.length as u32,
                    qp_num: qp.number,
                    ..WorkCompletion::default()
                },
                qp: index,
                life: qp.life,
                frees: Frees::Sends(next),
                inline: 0,
                solicited: false,
            });
            let (cq, qp_type) = (qp.send_cq, qp.qp_type);
            qp.sq.remove_ended();
            if let Some(entry) = entry {
                self.complete(cq, entry, events);
            }
            if !status.is_success() && status != WcStatus::WrFlushErr {
                let state = match qp_type {
                    reliable if reliable.is_reliable() => QpState::Err,
                    _ => QpState::Sqe,
                };
                self.fail(index, state, events);
            }
        }
    }

    /// Completes a receive, at `at`; the completion carries `inline` bytes of its payload.
    pub(crate) fn complete_receive(
        &mut self,
        index: QpIndex,
        (received, inline): (&Received, u64),
        arrived: WorkCompletion,
        (at, solicited): (Time, bool),
        events: &mut EventQueue,
    ) {
        let qp = &self.qps[index];
        let mut flags = arrived.flags;
        if arrived.imm.is_some() {
            flags |= WcFlags::WITH_IMM;
        }
        let entry = Entry {
            at,
            completion: WorkCompletion {
                wr_id: received.wr_id,
                status: received.status,
                qp_num: qp.number,
                flags,
                ..arrived
            },
            qp: index,
            life: qp.life,
            frees: Frees::Receive,
            inline,
            solicited,
        };
        self.complete(qp.recv_cq, entry, events);
    }

    /// Completes failed receives, after those whose messages are being delivered.
    pub(crate) fn fail_receives(&mut self, at: QpRef, events: &mut EventQueue) {
        let Some(qp) = self.alive(at) else { return };
        if qp.rq.delivered() > events.now() {
            events.schedule(qp.rq.delivered(), Event::FailReceives { qp: at });
            return;
        }
        while let Some((wr_id, status)) = self.qps[at.index].rq.take_failed() {
            let received = Received {
                wr_id,
                ranges: Ranges::new(),
                status,
                header: 0,
            };
            let arrived = WorkCompletion {
                opcode: WcOpcode::Recv,
                ..WorkCompletion::default()
            };
            let now = events.clock.now();
            self.complete_receive(at.index, (&received, 0), arrived, (now, false), events);
        }
        self.report_last_wqe(at.index);
    }

    /// Takes the completions that are visible at `now`.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        cq: CqIndex,
        into: &mut [WorkCompletion],
        now: Time,
    ) -> Result<Polled, PollError> {
        let mut polled = Polled::default();
        while polled.completions < into.len() {
            let queue = &mut self.cqs[cq];
            let Some(entry) = queue.entries.front().filter(|entry| entry.at <= now) else {
                break;
            };
            into[polled.completions] = entry.completion;
            polled.completions += 1;
            polled.copied_lines += entry.inline.div_ceil(LINE);
            let (index, frees) = (entry.qp, entry.frees);
            let qp = &mut self.qps[index];
            if qp.life == entry.life {
                match frees {
                    Frees::Sends(before) => qp.sq.retire(before),
                    Frees::Receive => qp.rq.free_one(),
                }
            }
            queue.entries.pop_front();
            if matches!(frees, Frees::Receive) {
                self.give_back_shared(index, 1);
            }
        }
        let queue = &self.cqs[cq];
        if polled.completions == 0 && queue.overrun {
            return Err(PollError::Overrun {
                entries: queue.capacity,
            });
        }
        Ok(polled)
    }

    /// Arms a queue: the next completion raises an event.
    pub(crate) fn arm(&mut self, cq: CqIndex, on: NotifyOn, now: Time, events: &mut EventQueue) {
        let queue = &mut self.cqs[cq];
        // Completions that are not visible yet count as arriving after the queue was armed.
        let mut pending = queue.entries.iter().filter(|entry| entry.at > now);
        match pending.find(|entry| entry.raises(on)) {
            Some(entry) => events.schedule(entry.at, Event::Interrupt { cq }),
            // Arming for solicited completions does not undo arming for any completion.
            _ if queue.armed == Some(NotifyOn::Any) => {}
            _ => queue.armed = Some(on),
        }
    }

    /// Adds a queue's event to its channel.
    pub(crate) fn interrupt(&mut self, cq: CqIndex, events: &mut EventQueue) {
        let Some(channel) = self.cqs[cq].channel else {
            return;
        };
        let channel = &mut self.channels[channel];
        channel.events.push_back(CqId(cq.0));
        events.signal(channel.condition);
    }
}
