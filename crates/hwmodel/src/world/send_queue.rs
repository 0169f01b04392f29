//! Which requests of the send queues the NIC has, and how it comes by the others.
//!
//! The send queue in the host's memory has all requests. The NIC keeps copies of those that came last, by
//! MMIO or because it read them. Others are read when their turn comes: one, or the list of one
//! doorbell, of a queue pair at a time, when what was before it leaves. NICs of mlx5 take all that such a
//! read brings: none is known whose queue pairs are slower for being full.
//!
//! A queue pair whose READs under way are as many as it may have gives way to others, and the NIC lets go
//! what it has of its queue. It reads again what is next, and keeps that until there is room. That is
//! known of NICs of mlx4; those of mlx5 are not slower with many READs.

use adverb_sim::Agenda;
use adverb_units::{Span, Time};
use adverb_verbs::QpType;

use super::machine::Machine;
use super::queue_pair::{Held, Qp};
use super::{Event, Fabric, QpRef};
use crate::params;
use crate::pcie::LINE;
use crate::preset::Driver;
use crate::trace::Subject;

/// How many requests had come to the NIC when a request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

/// The NIC's memory for requests: so many, those that came last.
#[derive(Debug)]
pub(crate) struct Wqes {
    entries: u64,
    came: u64,
    /// Bytes of a send queue that are read at a time.
    read_bytes: u64,
}

impl Wqes {
    pub(crate) fn new(n: &params::Nic) -> Self {
        Wqes {
            entries: n.wqe_entries.into(),
            came: 0,
            read_bytes: n.wqe_read_bytes.into(),
        }
    }

    fn keep(&mut self) -> Stamp {
        self.came += 1;
        Stamp(self.came)
    }

    /// Whether a request is still there.
    ///
    /// Requests of unreliable transports end when they leave, whatever the peer does: none of them is
    /// let go before, rather the NIC lets the CPU wait for credits of PCIe.
    fn has(&self, held: Held, qp_type: QpType) -> bool {
        match held {
            Held::Written(stamp) | Held::Read(stamp) => {
                !qp_type.is_reliable() || self.came - stamp.0 < self.entries
            }
            Held::Buffered | Held::Next => true,
            Held::InMemory => false,
        }
    }

    /// Whether it reads requests at the doorbell, before their turn.
    fn reads_ahead(&self) -> bool {
        self.read_bytes > LINE
    }
}

/// How far the NIC is with reading a queue pair's next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// It is not about to.
    No,
    /// It is settled when, and the sending side stands still for it.
    Settled,
    /// It is time.
    Due,
}

/// The two buffers of a BlueFlame register, to which the driver writes in turn (`bf_offset` of providers/mlx4
/// and `bf->offset` of providers/mlx5 in rdma-core): the requests in them, by number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlueFlame {
    buffers: [Option<u64>; 2],
    turn: usize,
}

impl BlueFlame {
    /// The CPU writes request `seq`, while the NIC has taken up those before `next`. It stays there until its
    /// turn comes, unless one that was there before does.
    fn write(&mut self, seq: u64, next: u64) -> Held {
        let buffer = &mut self.buffers[self.turn];
        self.turn ^= 1;
        if buffer.is_some_and(|seq| seq >= next) {
            return Held::InMemory;
        }
        *buffer = Some(seq);
        Held::Buffered
    }
}

impl Qp {
    /// Whether the NIC has not yet read all that it knows of.
    fn is_behind(&mut self) -> bool {
        let last = self.unread.checked_sub(1);
        let last = last.and_then(|seq| self.wqe(seq));
        last.is_some_and(|wqe| wqe.held == Held::InMemory)
    }
}

impl Machine {
    /// The CPU has written the next request that the NIC did not know of.
    pub(super) fn written(&mut self, qp: &mut Qp, now: Time) {
        let held = if !qp.is_behind() {
            Held::Written(self.nic.wqes.keep())
        } else if qp.shared_register.is_none() {
            qp.blueflame.write(qp.known, qp.next)
        } else {
            Held::InMemory
        };
        let (known, doorbell) = (qp.known, qp.doorbells);
        qp.doorbells += 1;
        if let Some(wqe) = qp.wqe(known) {
            wqe.ready = self.pcie.mmio(now, wqe.lines * LINE);
            (wqe.doorbell, wqe.held) = (doorbell, held);
            qp.known += 1;
            if held == Held::InMemory {
                qp.unread = qp.known;
            }
        }
    }

    /// The CPU has rung for `count` requests, with `bell` bytes.
    pub(super) fn rung(&mut self, qp: &mut Qp, count: u32, bell: u64, now: Time) {
        let is_behind = qp.is_behind();
        let there = self.pcie.mmio(now, bell);
        let (first, doorbell) = (qp.known, qp.doorbells);
        qp.doorbells += 1;
        qp.known = (first + u64::from(count)).min(qp.posted());
        qp.unread = qp.known;
        for seq in first..qp.known {
            if let Some(wqe) = qp.wqe(seq) {
                (wqe.doorbell, wqe.ready) = (doorbell, there);
            }
        }
        // What would be let go again before its turn is not read.
        let is_soon = !qp.qp_type.is_reliable() || qp.known - qp.next <= self.nic.wqes.entries;
        if self.nic.wqes.reads_ahead() && !is_behind && is_soon {
            let mut seq = first;
            while seq < qp.known {
                seq = self.read_list(qp, seq, now, there - now);
            }
        }
    }

    /// For a request that the NIC has let go its sending side stands still, for as long as its few reads of
    /// this kind do not hide.
    fn stand_still(&mut self, now: Time) {
        if self.nic.wqes.reads_ahead() {
            self.nic.tx.serve(now, self.nic.times.wqe_miss);
        }
    }

    /// Reads a request that the NIC has let go, and with it a whole piece of the send queue.
    fn read_again(&mut self, qp: &mut Qp, seq: u64, now: Time) {
        self.nic.counts.wqe_misses += 1;
        let next = self.read_list(qp, seq, now, Span::ZERO);
        if let Some(wqe) = qp.wqe(seq) {
            wqe.held = Held::Next;
        }
        let used: u64 = (seq..next).filter_map(|seq| Some(qp.wqe(seq)?.lines)).sum();
        let beside = (self.nic.wqes.read_bytes / LINE).saturating_sub(used);
        self.pcie.traffic.read_lines += beside;
    }

    /// Reads the request `first` and others of its doorbell, as many as are read at a time, `delay`
    /// from now. NICs of mlx5 use all of the piece that they read, whichever doorbell told of it. Returns the
    /// number of the next one.
    fn read_list(&mut self, qp: &mut Qp, first: u64, now: Time, delay: Span) -> u64 {
        let most = self.nic.wqes.read_bytes;
        let uses_all = self.preset.driver == Driver::Mlx5;
        let doorbell = qp.wqe(first).map(|wqe| wqe.doorbell);
        let (mut seq, mut bytes) = (first, 0);
        while seq < qp.known
            && let Some(wqe) = qp.wqe(seq)
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
            if let Some(wqe) = qp.wqe(seq)
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
    /// The next request of a queue pair waits for room: the NIC lets go what it has of the queue.
    pub(super) fn let_go(&mut self, at: QpRef) {
        let qp = &mut self.qps[at.index as usize];
        let machine = &self.machines[qp.machine as usize];
        if !machine.nic.wqes.reads_ahead() || machine.preset.driver == Driver::Mlx5 {
            return;
        }
        for seq in qp.next..qp.known {
            match qp.wqe(seq) {
                Some(wqe) if matches!(wqe.held, Held::Written(_) | Held::Read(_)) => {
                    wqe.held = Held::InMemory;
                    qp.unread = qp.unread.max(seq + 1);
                }
                _ => return,
            }
        }
    }

    /// Whether the NIC has the queue pair's next request, or will have it at a time that is known.
    pub(super) fn has_next(&mut self, at: QpRef, agenda: &mut Agenda<Event>) -> bool {
        let now = agenda.now();
        let Some(qp) = self.alive(at) else {
            return false;
        };
        let (next, leaves, machine) = (qp.next, qp.leaves(), qp.machine as usize);
        let qp_type = qp.qp_type;
        let Some(wqe) = qp.wqe(next) else {
            return false;
        };
        let (held, ready) = (wqe.held, wqe.ready);
        if self.machines[machine].nic.wqes.has(held, qp_type) {
            return true;
        }
        let turn = leaves.max(ready);
        let qp = &mut self.qps[at.index as usize];
        if turn > now {
            let before = std::mem::replace(&mut qp.reading, Reading::Settled);
            if before == Reading::No {
                self.machines[machine].stand_still(now);
            }
            if before != Reading::Settled {
                agenda.schedule(turn, Event::ReadNext { qp: at });
            }
            return false;
        }
        let (qp, machine) = (
            &mut self.qps[at.index as usize],
            &mut self.machines[machine],
        );
        if std::mem::replace(&mut qp.reading, Reading::No) == Reading::No {
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
    pub(super) fn read_next(&mut self, at: QpRef, agenda: &mut Agenda<Event>) {
        let Some(qp) = self.alive(at) else { return };
        qp.reading = Reading::Due;
        self.pump(at, agenda);
        if let Some(qp) = self.alive(at)
            && qp.reading == Reading::Due
        {
            // Something else holds the queue up: it is not read.
            qp.reading = Reading::No;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_its_blueflame_buffer_until_it_is_taken_up() {
        let mut register = BlueFlame::default();
        assert_eq!(register.write(5, 0), Held::Buffered);
        assert_eq!(register.write(6, 0), Held::Buffered);
        assert_eq!(register.write(7, 5), Held::InMemory, "5 is still there");
        assert_eq!(register.write(8, 6), Held::InMemory, "6 is still there");
        assert_eq!(register.write(9, 6), Held::Buffered, "5 was taken up");
        assert_eq!(register.write(10, 6), Held::InMemory, "6 is still there");
    }
}
