//! A queue pair's send queue: WQEs from post to completion, and what the NIC has taken of them.
//!
//! WQEs are numbered from 0 in each life of the queue pair. In order: those before `first` have ended, those
//! before `next` are sent, those before `known` are known to the NIC by a doorbell, all others are posted.

use std::collections::VecDeque;

use adverb_units::Time;
use adverb_verbs::{Psn, QpAttr, SendFlags, WcStatus};

use crate::nic::port::Passage;
use crate::nic::wqe::{BlueFlame, Held, Reading, Wqe};
use crate::resource::Slots;

/// The send queue of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// From `first` on.
    wqes: VecDeque<Wqe>,
    first: u64,
    next: u64,
    known: u64,
    /// Number behind the last WQE that a doorbell announced without bringing it.
    unread: u64,
    /// Number behind the last WQE that had begun when the queue pair went to SQD.
    drains_until: u64,
    /// WQEs before this number have completed, and the program has polled that: their room is free.
    retired: u64,
    doorbells: u64,
    blueflame: BlueFlame,
    reading: Reading,
    /// Whether the next WQE has its turn at the processing unit.
    is_issuing: bool,
    psn: Psn,
    max_rd_atomic: u32,
    reads_in_flight: u32,
    /// When the last READ or atomic operation to end made room for another.
    read_room: Time,
    /// DMA reads of payload.
    gathers: Slots,
    /// The way of the last request.
    pub(super) departed: Passage,
}

impl SendQueue {
    /// An empty queue; the NIC reads the payloads of `gathers` WQEs at a time.
    pub(crate) fn new(gathers: usize) -> Self {
        SendQueue {
            max_rd_atomic: 1,
            gathers: Slots::new(gathers),
            ..SendQueue::default()
        }
    }

    pub(super) fn reset(&mut self) {
        self.wqes.clear();
        (self.first, self.next, self.known, self.retired) = (0, 0, 0, 0);
        (self.unread, self.blueflame) = (0, BlueFlame::default());
        (self.doorbells, self.reading) = (0, Reading::No);
        (self.reads_in_flight, self.is_issuing) = (0, false);
    }

    pub(super) fn apply(&mut self, attr: &QpAttr) {
        self.psn = attr.sq_psn.unwrap_or(self.psn);
        self.max_rd_atomic = attr.max_rd_atomic.map_or(self.max_rd_atomic, u32::from);
    }

    /// Number of the first WQE that was not posted.
    pub(crate) fn posted(&self) -> u64 {
        self.first + self.wqes.len() as u64
    }

    /// Number of the next WQE that is sent.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Number of the first WQE that the NIC does not know of.
    #[inline]
    pub(crate) fn known(&self) -> u64 {
        self.known
    }

    /// PSN of the first WQE.
    pub(crate) fn psn(&self) -> Psn {
        self.psn
    }

    /// A WQE that has not completed.
    #[inline]
    pub(crate) fn wqe(&mut self, seq: u64) -> Option<&mut Wqe> {
        let place = seq.checked_sub(self.first)?;
        self.wqes.get_mut(usize::try_from(place).ok()?)
    }

    /// The WQE that was posted last.
    pub(crate) fn last(&self) -> Option<&Wqe> {
        self.wqes.back()
    }

    pub(crate) fn is_full(&self, depth: u32) -> bool {
        self.posted() - self.retired >= depth.into()
    }

    pub(crate) fn post(&mut self, wqe: Wqe) {
        self.wqes.push_back(wqe);
    }

    /// Removes the first WQE if it has ended; returns it with the number of the one after it.
    #[inline]
    pub(crate) fn take_ended(&mut self) -> Option<(Wqe, WcStatus, u64)> {
        let status = self.wqes.front()?.status?;
        let wqe = self.wqes.pop_front()?;
        self.first += 1;
        Some((wqe, status, self.first))
    }

    /// Notes that the program has polled the completion of all WQEs before `before`.
    pub(crate) fn retire(&mut self, before: u64) {
        self.retired = self.retired.max(before);
    }

    /// Ends all WQEs without sending them.
    pub(crate) fn flush(&mut self, now: Time) {
        self.reads_in_flight = 0;
        for wqe in self.wqes.iter_mut().filter(|wqe| wqe.status.is_none()) {
            wqe.status = Some(WcStatus::WrFlushErr);
            wqe.completed = now;
        }
        self.give_up();
    }

    /// The NIC knows all WQEs, and sends none.
    pub(crate) fn give_up(&mut self) {
        (self.next, self.known) = (self.posted(), self.posted());
    }

    /// The queue pair goes to SQD: only what has begun is sent. A WQE that waits for a receive of the peer has
    /// begun; those that were sent after it are sent again later.
    pub(super) fn drain(&mut self, is_paused: bool) {
        self.drains_until = self.next + u64::from(is_paused);
    }

    /// Number behind the last WQE that may be sent while the queue drains (IBTA vol. 1, 10.3.1.5).
    pub(super) fn drains_until(&self) -> u64 {
        self.drains_until.min(self.known)
    }

    pub(crate) fn is_issuing(&self) -> bool {
        self.is_issuing
    }

    /// The processing unit will take the next WQE at a time that is settled.
    pub(crate) fn begin_turn(&mut self) {
        self.is_issuing = true;
    }

    pub(crate) fn end_turn(&mut self) {
        self.is_issuing = false;
    }

    /// The processing unit takes the next WQE; returns its number.
    #[inline]
    pub(crate) fn issue(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Whether the next WQE has to wait for answers to earlier ones.
    pub(crate) fn must_wait(&mut self) -> bool {
        let (reads, next) = (self.reads_in_flight, self.next);
        let Some(wqe) = self.wqe(next) else {
            return true;
        };
        let is_fenced = wqe.flags.contains(SendFlags::FENCE) && reads > 0;
        is_fenced || self.lacks_room()
    }

    /// Whether the next WQE is a READ or an atomic operation, and `max_rd_atomic` of them are in flight.
    pub(crate) fn lacks_room(&mut self) -> bool {
        let (reads, most, next) = (self.reads_in_flight, self.max_rd_atomic, self.next);
        let wqe = self.wqe(next);
        wqe.is_some_and(|wqe| wqe.operation.writes_local_memory()) && reads >= most.max(1)
    }

    /// When the NIC can take the next WQE, which it has at `ready`: a READ waits for room among the READs in
    /// flight, a payload for a DMA read.
    pub(crate) fn takes_at(&mut self, ready: Time) -> Time {
        let (next, room) = (self.next, self.read_room);
        let Some(wqe) = self.wqe(next) else {
            return ready;
        };
        let reads = wqe.operation.writes_local_memory();
        let gathers = wqe.inline.is_none() && !reads && wqe.length > 0;
        match (reads, gathers) {
            (true, _) => ready.max(room),
            (_, true) => self.gathers.admit(ready),
            _ => ready,
        }
    }

    /// The payload of a WQE is read over PCIe until `until`.
    pub(crate) fn gather(&mut self, until: Time) {
        self.gathers.occupy(until);
    }

    pub(crate) fn begin_read(&mut self) {
        self.reads_in_flight += 1;
    }

    pub(crate) fn end_read(&mut self) {
        self.reads_in_flight -= 1;
    }

    /// There is room for another READ from `at` on.
    pub(crate) fn free_read(&mut self, at: Time) {
        self.read_room = at;
    }

    /// Whether an answer to WQE `seq` is awaited.
    pub(crate) fn awaits(&mut self, seq: u64) -> bool {
        seq < self.next && self.is_unfinished(seq)
    }

    pub(crate) fn is_unfinished(&mut self, seq: u64) -> bool {
        self.wqe(seq).is_some_and(|wqe| wqe.status.is_none())
    }

    /// Number of the first WQE without an answer.
    pub(crate) fn first_unanswered(&self) -> u64 {
        let unanswered = self.wqes.iter().position(|wqe| wqe.status.is_none());
        self.first + unanswered.unwrap_or(0) as u64
    }

    /// Goes back to WQE `seq`: it and those after it are sent again. READs among them are no longer in flight.
    pub(crate) fn resend_from(&mut self, seq: u64) {
        self.next = seq;
        let sent = self.wqes.iter().take((self.next - self.first) as usize);
        let reads = sent.filter(|w| w.status.is_none() && w.operation.writes_local_memory());
        self.reads_in_flight = reads.count() as u32;
    }

    /// When the last request has begun to leave.
    pub(crate) fn leaves(&self) -> Time {
        self.departed.begin
    }
}

/// How the NIC comes by WQEs.
impl SendQueue {
    /// Whether the NIC has not yet read all WQEs that it knows of.
    pub(crate) fn is_behind(&mut self) -> bool {
        let last = self.unread.checked_sub(1);
        let last = last.and_then(|seq| self.wqe(seq));
        last.is_some_and(|wqe| wqe.held == Held::InMemory)
    }

    /// The CPU writes the next WQE to a BlueFlame register of the queue pair's own.
    pub(crate) fn write_blueflame(&mut self) -> Held {
        self.blueflame.write(self.known, self.next)
    }

    /// A doorbell brings the next WQE by MMIO: at `ready` it is `held`.
    pub(crate) fn written(&mut self, ready: Time, held: Held) {
        let (known, doorbell) = (self.known, self.doorbells);
        self.doorbells += 1;
        if let Some(wqe) = self.wqe(known) {
            (wqe.ready, wqe.doorbell, wqe.held) = (ready, doorbell, held);
            self.known += 1;
            if held == Held::InMemory {
                self.unread = self.known;
            }
        }
    }

    /// A doorbell announces `count` WQEs, which the NIC can read from `ready` on. Returns their numbers.
    pub(crate) fn rung(&mut self, count: u32, ready: Time) -> std::ops::Range<u64> {
        let (first, doorbell) = (self.known, self.doorbells);
        self.doorbells += 1;
        self.known = (first + u64::from(count)).min(self.posted());
        self.unread = self.known;
        for seq in first..self.known {
            if let Some(wqe) = self.wqe(seq) {
                (wqe.doorbell, wqe.ready) = (doorbell, ready);
            }
        }
        first..self.known
    }

    /// The WQE cache evicts what it has of the queue, from the next WQE on.
    pub(crate) fn evict(&mut self) {
        for seq in self.next..self.known {
            match self.wqe(seq) {
                Some(wqe) if matches!(wqe.held, Held::Written(_) | Held::Read(_)) => {
                    wqe.held = Held::InMemory;
                    self.unread = self.unread.max(seq + 1);
                }
                _ => return,
            }
        }
    }

    /// Sets how far the NIC is with reading the next WQE; returns how far it was.
    pub(crate) fn set_reading(&mut self, reading: Reading) -> Reading {
        std::mem::replace(&mut self.reading, reading)
    }

    /// The WQE was due to be read, but something else holds the queue up: it is not read.
    pub(crate) fn forget_due(&mut self) {
        if self.reading == Reading::Due {
            self.reading = Reading::No;
        }
    }
}
