//! WQE fetch: which WQEs the NIC has cached, and when it reads the others.
//!
//! The send queue in the host's memory contains all WQEs. The NIC caches a WQE that it got by MMIO or has read,
//! until it needs the entry for another one. It needs a WQE when the request is generated; for a READ or an atomic
//! operation it needs the WQE again when the answer is processed (Kalia et al., ATC 2016), so it caches the WQE until then,
//! wherever the WQE was before. It reads an evicted WQE when its processing unit has taken the one before it (a NIC that does
//! not prefetch: when that one has left): one WQE, or the list of one doorbell, per queue pair, and `nic.wqe_fetches` of them at
//! a time, in turn. Such a read is a whole block of `nic.wqe_read_bytes`. mlx5 NICs use everything that it
//! returns: no measurement shows them slower with full send queues.

use adverb_units::{Span, Time};

use crate::host::pcie::LINE;
use crate::ids::{MachineId, QpRef};
use crate::machine::Machine;
use crate::nic::queue_pair::Qp;
use crate::nic::wqe::WqeLocation;
use crate::preset::Driver;
use crate::trace::Subject;
use crate::world::fabric::{Event, EventQueue, Fabric};

impl Machine {
    /// A doorbell with the next WQE arrives.
    pub(super) fn written(&mut self, qp: &mut Qp, now: Time) {
        let location = if !qp.sq.is_behind() {
            WqeLocation::Written(self.nic.wqes.keep())
        } else if qp.shared_register.is_none() {
            qp.sq.write_blueflame()
        } else {
            WqeLocation::InMemory
        };
        let known = qp.sq.known();
        let lines = qp.sq.wqe(known).map(|wqe| wqe.lines);
        let ready = lines.map(|lines| self.pcie.mmio(now, lines * LINE));
        qp.sq.written(ready.unwrap_or(now), location);
    }

    /// A doorbell of `bell` bytes for `count` requests arrives. Returns when the NIC reads the next block of announced WQEs,
    /// if that has to be scheduled.
    pub(super) fn rung(&mut self, qp: &mut Qp, count: u32, bell: u64, now: Time) -> Option<Time> {
        let is_behind = qp.sq.is_behind();
        let there = self.pcie.doorbell(now, bell);
        let rung = qp.sq.rung(count, there);
        // WQEs that would be evicted before they are sent are not read.
        let waiting = rung.end - qp.sq.next();
        let is_soon = !qp.qp_type.is_reliable() || waiting <= self.nic.wqes.entries;
        if self.nic.params.wqe_prefetches == 0 || is_behind || !is_soon {
            return None;
        }
        let begin = qp.sq.prefetch(rung, there)?;
        if begin > there {
            return Some(begin);
        }
        self.prefetch(qp, now, there - now)
    }

    /// Reads announced WQEs, `delay` from now, by as many read requests as the queue pair may have outstanding. Returns when
    /// it may send the next one, if there are further WQEs.
    fn prefetch(&mut self, qp: &mut Qp, now: Time, delay: Span) -> Option<Time> {
        let most = self.preset.params.pcie.max_read_request_bytes.get().into();
        loop {
            let first = qp.sq.next_prefetch()?;
            let next = self.read_list(qp, (first, most), now, delay);
            let last = qp.sq.wqe(first).map_or(now, |wqe| wqe.ready);
            let turn = qp.sq.prefetched_until(next, now + delay, last)?;
            if turn > now + delay {
                return Some(turn);
            }
        }
    }

    /// Reads a WQE that was evicted, with a whole block of the send queue.
    fn read_again(&mut self, qp: &mut Qp, seq: u64, now: Time) {
        self.nic.counts.wqe_misses += 1;
        let most = self.nic.wqes.read_bytes;
        let next = self.read_list(qp, (seq, most), now, Span::ZERO);
        let used: u64 = (seq..next)
            .filter_map(|seq| Some(qp.sq.wqe(seq)?.lines))
            .sum();
        // The rest of the block follows, and needs bandwidth although the NIC does not use it.
        let unused = most.saturating_sub(used * LINE);
        let mut read = now;
        if unused > 0 {
            let latency = self.dma_latency();
            let wqes = self.pcie.about(Subject::Wqe);
            read = wqes.read(now, Span::ZERO, unused, latency).last;
        }
        if let Some(wqe) = qp.sq.wqe(seq) {
            self.nic.wqes.release(wqe.location);
            wqe.location = WqeLocation::Next;
            self.nic.fetches.occupy(wqe.ready.max(read));
        }
    }

    /// Returns when the NIC has the WQE of `lines` lines of a READ or an atomic operation that is answered at `now`: it reads
    /// it again if it has evicted it, without the WQEs behind it, which it does not need now.
    pub(super) fn wqe_for_answer(
        &mut self,
        (location, lines): (WqeLocation, u64),
        now: Time,
    ) -> Time {
        if self.nic.wqes.has(location) {
            self.nic.wqes.release(location);
            return now;
        }
        self.nic.counts.wqe_misses += 1;
        let begin = self.nic.fetches.admit(now);
        let latency = self.dma_latency();
        let wqes = self.pcie.about(Subject::Wqe);
        let read = wqes.read_few(now, begin - now, lines * LINE, latency);
        self.nic.fetches.occupy(read);
        read
    }

    /// Reads WQE `first` and the WQEs of the same doorbell, or that are read in advance, in a block of `most` bytes, `delay`
    /// from now. mlx5 NICs use all WQEs of the block that they read, of any doorbell. Returns the number of the next WQE.
    fn read_list(&mut self, qp: &mut Qp, (first, most): (u64, u64), now: Time, delay: Span) -> u64 {
        let uses_all = self.preset.driver == Driver::Mlx5;
        let doorbell = qp.sq.wqe(first).map(|wqe| wqe.doorbell);
        let (mut seq, mut bytes) = (first, 0);
        while seq < qp.sq.known()
            && let Some(wqe) = qp.sq.wqe(seq)
            && (bytes == 0
                || bytes + wqe.lines * LINE <= most
                    && (uses_all
                        || Some(wqe.doorbell) == doorbell
                        || wqe.location == WqeLocation::Announced))
        {
            bytes += wqe.lines * LINE;
            seq += 1;
        }
        let latency = self.dma_latency();
        let wqes = self.pcie.about(Subject::Wqe);
        let last = if most > LINE || bytes <= LINE {
            wqes.read_few(now, delay, bytes, latency)
        } else {
            // Its first line contains its length.
            let head = wqes.read_few(now, delay, LINE, latency);
            wqes.read_few(now, head - now, bytes - LINE, latency)
        };
        for seq in first..seq {
            if let Some(wqe) = qp.sq.wqe(seq)
                && wqe.location != WqeLocation::Buffered
            {
                wqe.ready = last;
                self.nic.wqes.release(wqe.location);
                wqe.location = WqeLocation::Read(self.nic.wqes.keep());
            }
        }
        seq
    }
}

impl Fabric {
    /// Whether the NIC has the queue pair's next WQE, or its read has been issued. If not, schedules the read.
    pub(super) fn has_next(&mut self, at: QpRef, events: &mut EventQueue) -> bool {
        let now = events.now();
        let qp = &mut self.qps[at.index];
        let (next, leaves, machine) = (qp.sq.next(), qp.sq.leaves(), qp.machine);
        let qp_type = qp.qp_type;
        let Some(wqe) = qp.sq.wqe(next) else {
            return false;
        };
        let (location, ready) = (wqe.location, wqe.ready);
        if location == WqeLocation::Announced {
            return false;
        }
        // Requests of unreliable transports end when they are sent, independently of the peer. The NIC keeps their WQEs
        // until then: it withholds PCIe credits, and the CPU waits.
        let is_kept = !qp_type.is_reliable() && location != WqeLocation::InMemory;
        if is_kept || self.machines[machine].nic.wqes.has(location) {
            return true;
        }
        let prefetches = self.machines[machine].nic.params.wqe_prefetches > 0;
        let turn = if prefetches { ready } else { leaves.max(ready) };
        let qp = &mut self.qps[at.index];
        if turn > now {
            if !qp.sq.set_reading(true) {
                events.schedule(turn, Event::ReadNext { qp: at });
            }
            return false;
        }
        let (qp, host) = (&mut self.qps[at.index], &mut self.machines[machine]);
        if !prefetches {
            let most = host.nic.wqes.read_bytes;
            host.read_list(qp, (next, most), now, Span::ZERO);
        } else if host.nic.fetches.admit(now) <= now {
            host.read_again(qp, next, now);
        } else {
            if !qp.sq.set_reading(true) {
                host.nic.unread.push_back(at);
                self.schedule_fetch(machine, events);
            }
            return false;
        }
        true
    }

    /// The NIC can read the next block of WQEs that doorbells have announced.
    pub(super) fn prefetch(&mut self, at: QpRef, events: &mut EventQueue) {
        let Some(machine) = self.alive(at).map(|qp| qp.machine) else {
            return;
        };
        let (qp, host) = (&mut self.qps[at.index], &mut self.machines[machine]);
        if let Some(next) = host.prefetch(qp, events.now(), Span::ZERO) {
            events.schedule(next, Event::Prefetch { qp: at });
        }
        self.pump(at, events);
    }

    /// Schedules the next read of an evicted WQE, if a queue pair waits for one.
    fn schedule_fetch(&mut self, machine: MachineId, events: &mut EventQueue) {
        let nic = &mut self.machines[machine].nic;
        if !nic.unread.is_empty() && !nic.is_fetch_scheduled {
            nic.is_fetch_scheduled = true;
            let at = nic.fetches.admit(events.now());
            events.schedule(at, Event::Fetch { machine });
        }
    }

    /// Reads of evicted WQEs have ended: queue pairs that wait for one take their place, in turn.
    pub(super) fn fetch_free(&mut self, machine: MachineId, events: &mut EventQueue) {
        let now = events.now();
        self.machines[machine].nic.is_fetch_scheduled = false;
        loop {
            let nic = &mut self.machines[machine].nic;
            if nic.fetches.admit(now) > now {
                break;
            }
            let Some(at) = nic.unread.pop_front() else {
                break;
            };
            self.read_next(at, events);
        }
        self.schedule_fetch(machine, events);
    }

    /// The next WQE of a queue pair may be read.
    pub(super) fn read_next(&mut self, at: QpRef, events: &mut EventQueue) {
        let Some(qp) = self.alive(at) else { return };
        qp.sq.set_reading(false);
        self.pump(at, events);
    }
}
