//! Atomic operations at the responder: locks, and a queue per port.
//!
//! Each port executes its operations in the order of arrival. An operation whose bucket is locked blocks
//! those behind it.

use adverb_units::Time;
use adverb_verbs::{Operation, WcStatus};

use crate::host::memory::Range;
use crate::ids::MachineId;
use crate::nic::atomics::WaitingAtomic;
use crate::trace::StepKind;
use crate::world::fabric::{Event, EventQueue, Fabric};
use crate::world::message::Answer;

impl Fabric {
    /// Queues an atomic operation, which passes the receive side at `at`, for the lock of its bucket.
    pub(super) fn lock(&mut self, message: u32, range: Range, at: Time, events: &mut EventQueue) {
        let m = self.messages.get(message);
        let to = m.to.index;
        let word = match m.operation {
            Operation::FetchAdd(there, _) | Operation::CompareSwap(there, _) => there.addr,
            _ => 0,
        };
        m.delivery.place = Some(range);
        let (machine, port) = (self.qps[to].machine, self.qps[to].port);
        let atomics = &mut self.machines[machine].nic.atomics;
        let bucket = word as usize % atomics.buckets.len();
        let port = port % atomics.ports.len() as u32;
        let queue = &mut atomics.ports[port as usize];
        queue.waiting.push_back(WaitingAtomic {
            message,
            bucket,
            range,
            at,
        });
        if !queue.is_scheduled {
            self.lock_first(machine, port, events);
        }
    }

    /// The first operation of a port can begin.
    pub(super) fn lock_next(&mut self, machine: MachineId, port: u32, events: &mut EventQueue) {
        let atomics = &mut self.machines[machine].nic.atomics;
        atomics.ports[port as usize].is_scheduled = false;
        self.lock_first(machine, port, events);
    }

    fn lock_first(&mut self, machine: MachineId, port: u32, events: &mut EventQueue) {
        let now = events.now();
        let host = &mut self.machines[machine];
        let atomics = &mut host.nic.atomics;
        let queue = &mut atomics.ports[port as usize];
        if atomics.in_flight < atomics.slots
            && let Some(first) = queue.waiting.front().copied()
        {
            let free = atomics.buckets[first.bucket].free();
            let begin = first.at.max(free);
            queue.is_scheduled = true;
            // After one began, the next one of the port takes its turn behind the other ports' events of this
            // moment: otherwise one port would always get a contended bucket.
            events.schedule(begin.max(now), Event::Lock { machine, port });
            if begin > now {
                queue.blocked += begin - first.at.max(now);
                return;
            }
            queue.waiting.pop_front();
            let span = host.nic.times.atomic + host.atomic_extra(first.range);
            let wait = host.root.read(first.range, now);
            let atomics = &mut host.nic.atomics;
            let end = atomics.buckets[first.bucket].serve(now, span + wait);
            atomics.in_flight += 1;
            atomics.worked += end - now;
            host.trace.note(StepKind::Atomic, first.at, end);
            host.pcie.traffic.read_lines += 1;
            host.pcie.traffic.write_lines += 1;
            let message = first.message;
            events.schedule(end, Event::Atomic { message });
        }
    }

    /// Frees a slot of `port`, so that operations of the other ports can begin, then its own.
    fn unlock(&mut self, machine: MachineId, port: u32, events: &mut EventQueue) {
        let atomics = &mut self.machines[machine].nic.atomics;
        atomics.in_flight -= 1;
        let ports = atomics.ports.len() as u32;
        for port in (1..=ports).map(|turn| (port + turn) % ports) {
            let queue = &self.machines[machine].nic.atomics.ports[port as usize];
            if !queue.is_scheduled {
                self.lock_first(machine, port, events);
            }
        }
    }

    /// A locked read-modify-write ends.
    pub(super) fn atomic(&mut self, message: u32, events: &mut EventQueue) {
        let m = self.messages.get(message);
        let (to, operation, place) = (m.to, m.operation, m.delivery.place);
        let (machine, port) = (self.qps[to.index].machine, self.qps[to.index].port);
        self.unlock(machine, port, events);
        self.before_change(machine, place.as_slice());
        let m = self.messages.get(message);
        let memory = &mut self.machines[machine].memory;
        let bytes = place.and_then(|place| memory.bytes_mut(place));
        let Some(word) = bytes.and_then(|bytes| bytes.first_chunk_mut::<8>()) else {
            let now = events.now();
            return self.answer(message, Answer::Nak(WcStatus::RemAccessErr), now, events);
        };
        let old = u64::from_ne_bytes(*word);
        match operation {
            Operation::FetchAdd(_, add) => *word = old.wrapping_add(add).to_ne_bytes(),
            Operation::CompareSwap(_, swap) if swap.expected == old => {
                *word = swap.new.to_ne_bytes();
            }
            _ => {}
        }
        m.payload.extend_from_slice(&old.to_ne_bytes());
        m.length = 8;
        let psn = m.psn;
        if self.machines[machine].path.is_some() {
            self.qps[to.index].rq.keep_atomic(psn, old);
        }
        let memory = &self.machines[machine].memory;
        if let Some(watcher) = place.and_then(|place| memory.watcher(place)) {
            events.signal(watcher);
        }
        let now = events.now();
        self.answer(message, Answer::Ack, now, events);
    }
}
