//! WQE fetch: which WQEs of the send queues the NIC has, and when it reads the others.
//!
//! The send queue in the host's memory has all requests. The NIC keeps copies of those that came last, by
//! MMIO or because it read them. Others are read when their turn comes: one, or the list of one
//! doorbell, of a queue pair at a time, when what was before it leaves. NICs of mlx5 take all that such a
//! read brings: none is known whose queue pairs are slower for being full.
//!
//! A queue pair with `max_rd_atomic` READs in flight gives way to others, and the NIC evicts its WQEs. It
//! reads the next WQE again, and keeps it until there is room. That is known of mlx4 NICs; mlx5 NICs are not
//! slower with many READs.

use adverb_units::{Span, Time};

use crate::host::pcie::LINE;
use crate::ids::QpRef;
use crate::machine::Machine;
use crate::nic::queue_pair::Qp;
use crate::nic::wqe::{Held, Reading};
use crate::preset::Driver;
use crate::trace::Subject;
use crate::world::fabric::{Event, EventQueue, Fabric};

impl Machine {
    /// The CPU has written the next request that the NIC did not know of.
    pub(super) fn written(&mut self, qp: &mut Qp, now: Time) {
        let held = if !qp.sq.is_behind() {
            Held::Written(self.nic.wqes.keep())
        } else if qp.shared_register.is_none() {
            qp.sq.write_blueflame()
        } else {
            Held::InMemory
        };
        let known = qp.sq.known();
        let lines = qp.sq.wqe(known).map(|wqe| wqe.lines);
        let ready = lines.map(|lines| self.pcie.mmio(now, lines * LINE));
        qp.sq.written(ready.unwrap_or(now), held);
    }

    /// The CPU has rung for `count` requests, with `bell` bytes.
    pub(super) fn rung(&mut self, qp: &mut Qp, count: u32, bell: u64, now: Time) {
        let is_behind = qp.sq.is_behind();
        let there = self.pcie.mmio(now, bell);
        let mut rung = qp.sq.rung(count, there);
        // What would be evicted again before its turn is not read.
        let waiting = rung.end - qp.sq.next();
        let is_soon = !qp.qp_type.is_reliable() || waiting <= self.nic.wqes.entries;
        if self.nic.wqes.reads_ahead() && !is_behind && is_soon {
            while !rung.is_empty() {
                rung.start = self.read_list(qp, rung.start, now, there - now);
            }
        }
    }

    /// The sending side stalls for a WQE that was evicted, for the part of the read that concurrent reads do
    /// not hide.
    fn stand_still(&mut self, now: Time) {
        if self.nic.wqes.reads_ahead() {
            self.nic.tx.serve(now, self.nic.times.wqe_miss);
        }
    }

    /// Reads a WQE that was evicted, and with it a whole piece of the send queue.
    fn read_again(&mut self, qp: &mut Qp, seq: u64, now: Time) {
        self.nic.counts.wqe_misses += 1;
        let next = self.read_list(qp, seq, now, Span::ZERO);
        if let Some(wqe) = qp.sq.wqe(seq) {
            wqe.held = Held::Next;
        }
        let used: u64 = (seq..next)
            .filter_map(|seq| Some(qp.sq.wqe(seq)?.lines))
            .sum();
        let unused = (self.nic.wqes.read_bytes / LINE).saturating_sub(used);
        self.pcie.traffic.read_lines += unused;
    }

    /// Reads the request `first` and others of its doorbell, as many as are read at a time, `delay`
    /// from now. NICs of mlx5 use all of the piece that they read, whichever doorbell told of it. Returns the
    /// number of the next one.
    fn read_list(&mut self, qp: &mut Qp, first: u64, now: Time, delay: Span) -> u64 {
        let most = self.nic.wqes.read_bytes;
        let uses_all = self.preset.driver == Driver::Mlx5;
        let doorbell = qp.sq.wqe(first).map(|wqe| wqe.doorbell);
        let (mut seq, mut bytes) = (first, 0);
        while seq < qp.sq.known()
            && let Some(wqe) = qp.sq.wqe(seq)
            && (bytes == 0 || bytes + wqe.lines * LINE <= most)
            && (bytes == 0 || uses_all || Some(wqe.doorbell) == doorbell)
        {
            bytes += wqe.lines * LINE;
            seq += 1;
        }
        let latency = self.dma_latency();
        let wqes = self.pcie.about(Subject::Wqe);
        let last = if most > LINE || bytes <= LINE {
            wqes.read_few(now, delay, bytes, latency)
        } else {
            // Its first line says how long it is.
            let head = wqes.read_few(now, delay, LINE, latency);
            wqes.read_few(now, head - now, bytes - LINE, latency)
        };
        for seq in first..seq {
            if let Some(wqe) = qp.sq.wqe(seq)
                && wqe.held != Held::Buffered
            {
                wqe.ready = last;
                wqe.held = Held::Read(self.nic.wqes.keep());
            }
        }
        seq
    }
}

impl Fabric {
    /// The next WQE of a queue pair waits for room: the NIC evicts what it has of the queue.
    pub(super) fn evict(&mut self, at: QpRef) {
        let qp = &mut self.qps[at.index];
        let machine = &self.machines[qp.machine];
        if !machine.nic.wqes.reads_ahead() || machine.preset.driver == Driver::Mlx5 {
            return;
        }
        qp.sq.evict();
    }

    /// Whether the NIC has the queue pair's next request, or will have it at a time that is known.
    pub(super) fn has_next(&mut self, at: QpRef, events: &mut EventQueue) -> bool {
        let now = events.now();
        let Some(qp) = self.alive(at) else {
            return false;
        };
        let (next, leaves, machine) = (qp.sq.next(), qp.sq.leaves(), qp.machine);
        let qp_type = qp.qp_type;
        let Some(wqe) = qp.sq.wqe(next) else {
            return false;
        };
        let (held, ready) = (wqe.held, wqe.ready);
        if self.machines[machine].nic.wqes.has(held, qp_type) {
            return true;
        }
        let turn = leaves.max(ready);
        let qp = &mut self.qps[at.index];
        if turn > now {
            let before = qp.sq.set_reading(Reading::Settled);
            if before == Reading::No {
                self.machines[machine].stand_still(now);
            }
            if before != Reading::Settled {
                events.schedule(turn, Event::ReadNext { qp: at });
            }
            return false;
        }
        let (qp, machine) = (&mut self.qps[at.index], &mut self.machines[machine]);
        if qp.sq.set_reading(Reading::No) == Reading::No {
            machine.stand_still(now);
        }
        if machine.nic.wqes.reads_ahead() {
            machine.read_again(qp, next, now);
        } else {
            machine.read_list(qp, next, now, Span::ZERO);
        }
        true
    }

    /// The next request may be read.
    pub(super) fn read_next(&mut self, at: QpRef, events: &mut EventQueue) {
        let Some(qp) = self.alive(at) else { return };
        qp.sq.set_reading(Reading::Due);
        self.pump(at, events);
        if let Some(qp) = self.alive(at) {
            qp.sq.forget_due();
        }
    }
}
