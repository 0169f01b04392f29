//! A queue pair's send queue: WQEs from post to completion, and which of them the NIC has.
//!
//! WQEs are numbered from 0 in each life of the queue pair. WQEs before `first` have ended, WQEs before `next`
//! are sent, a doorbell has announced those before `known` to the NIC, and all others are only posted.

use std::collections::VecDeque;
use std::ops::Range;

use adverb_units::Time;
use adverb_verbs::{Psn, QpAttr, SendFlags, WcStatus};

use crate::nic::port::TransitTimes;
use crate::nic::wqe::{BlueFlame, Wqe, WqeLocation};
use crate::params::NicParams;
use crate::resource::Slots;

#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// From `first` on.
    wqes: VecDeque<Wqe>,
    first: u64,
    next: u64,
    known: u64,
    /// Number after the last WQE that a doorbell announced without containing it.
    unread: u64,
    /// Number after the last WQE that had begun when the queue pair entered SQD.
    drains_until: u64,
    /// The program has polled the completion of WQEs before this number: their entries are free.
    retired: u64,
    doorbells: u64,
    blueflame: BlueFlame,
    /// Whether an event is scheduled at which the next WQE may be read.
    is_reading: bool,
    /// Announced WQEs that the NIC still has to read in advance.
    prefetch: Range<u64>,
    /// DMA reads of them.
    prefetches: Slots,
    /// Whether an event is scheduled at which the processing unit takes the next WQE.
    is_issuing: bool,
    psn: Psn,
    max_rd_atomic: u32,
    reads_in_flight: u32,
    /// Whether the NIC has loaded the context to send READs and atomic operations.
    is_fetching: bool,
    /// When the last READ or atomic operation to end made room for another.
    read_room: Time,
    /// DMA reads of payload.
    gathers: Slots,
    pub(super) departed: TransitTimes,
}

impl SendQueue {
    /// An empty queue.
    pub(crate) fn new(nic: &NicParams) -> Self {
        SendQueue {
            max_rd_atomic: 1,
            gathers: Slots::new(nic.gathers as usize),
            prefetches: Slots::new(nic.wqe_prefetches as usize),
            ..SendQueue::default()
        }
    }

    pub(super) fn reset(&mut self) {
        self.wqes.clear();
        (self.first, self.next, self.known, self.retired) = (0, 0, 0, 0);
        (self.unread, self.blueflame) = (0, BlueFlame::default());
        (self.doorbells, self.is_reading) = (0, false);
        (self.reads_in_flight, self.is_issuing) = (0, false);
        (self.is_fetching, self.prefetch) = (false, 0..0);
    }

    pub(super) fn apply(&mut self, attr: &QpAttr) {
        self.psn = attr.sq_psn.unwrap_or(self.psn);
        self.max_rd_atomic = attr.max_rd_atomic.map_or(self.max_rd_atomic, u32::from);
    }

    /// Number after the last posted WQE.
    pub(crate) fn posted(&self) -> u64 {
        self.first + self.wqes.len() as u64
    }

    /// Number of the next WQE to be sent.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Number after the last WQE that a doorbell has announced.
    #[inline]
    pub(crate) fn known(&self) -> u64 {
        self.known
    }

    pub(crate) fn psn(&self) -> Psn {
        self.psn
    }

    /// Returns WQE `seq`, unless it has completed.
    #[inline]
    pub(crate) fn wqe(&mut self, seq: u64) -> Option<&mut Wqe> {
        let place = seq.checked_sub(self.first)?;
        self.wqes.get_mut(usize::try_from(place).ok()?)
    }

    pub(crate) fn last(&self) -> Option<&Wqe> {
        self.wqes.back()
    }

    pub(crate) fn is_full(&self, depth: u32) -> bool {
        self.posted() - self.retired >= depth.into()
    }

    pub(crate) fn post(&mut self, wqe: Wqe) {
        self.wqes.push_back(wqe);
    }

    /// Returns the first WQE if it has ended, with the number of the one after it.
    #[inline]
    pub(crate) fn first_ended(&mut self) -> Option<(&mut Wqe, WcStatus, u64)> {
        let next = self.first + 1;
        let wqe = self.wqes.front_mut()?;
        let status = wqe.status?;
        Some((wqe, status, next))
    }

    /// Removes the first WQE, which has ended.
    #[inline]
    pub(crate) fn remove_ended(&mut self) {
        self.wqes.pop_front();
        self.first += 1;
    }

    /// Frees the entries of WQEs before `before`, whose completion the program has polled.
    pub(crate) fn retire(&mut self, before: u64) {
        self.retired = self.retired.max(before);
    }

    pub(crate) fn flush(&mut self, now: Time) {
        self.reads_in_flight = 0;
        // A later WQE may have ended before: it is flushed, too, because no success follows an error.
        let has_ended = |wqe: &&mut Wqe| wqe.status.is_some();
        for wqe in self.wqes.iter_mut().skip_while(has_ended) {
            wqe.status = Some(WcStatus::WrFlushErr);
            wqe.completed = now;
        }
        self.give_up();
    }

    /// Skips all posted WQEs: they are not sent.
    pub(crate) fn give_up(&mut self) {
        (self.next, self.known) = (self.posted(), self.posted());
    }

    /// The queue pair enters SQD: only WQEs that have begun are sent. A WQE that waits for a receive of the peer
    /// has begun; later ones, although already sent once, have not.
    pub(super) fn drain(&mut self, is_paused: bool) {
        self.drains_until = self.next + u64::from(is_paused);
    }

    /// Number after the last WQE that may be sent while the queue drains (IBTA vol. 1, 10.3.1.5).
    pub(super) fn drains_until(&self) -> u64 {
        self.drains_until.min(self.known)
    }

    pub(crate) fn is_issuing(&self) -> bool {
        self.is_issuing
    }

    /// An event is scheduled at which the processing unit takes the next WQE.
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

    /// Returns when the NIC can process the next WQE, which it has: a READ or atomic may wait for an earlier one to end, a
    /// payload for its DMA read. `None`: it has to wait for answers, as all do after a fence, and READs and atomics while
    /// `max_rd_atomic` of them are in flight.
    #[inline]
    pub(crate) fn takes_at(&mut self, now: Time) -> Option<Time> {
        let (reads, most, room) = (self.reads_in_flight, self.max_rd_atomic, self.read_room);
        let wqe = self.wqe(self.next)?;
        let ready = wqe.ready.max(now);
        let is_fenced = wqe.flags.contains(SendFlags::FENCE) && reads > 0;
        let is_fetch = wqe.operation.writes_local_memory();
        if is_fenced || is_fetch && reads >= most.max(1) {
            return None;
        }
        let gathers = wqe.inline.is_none() && wqe.length > 0;
        Some(match (is_fetch, gathers) {
            (true, _) => ready.max(room),
            (_, true) => self.gathers.admit(ready),
            _ => ready,
        })
    }

    /// The payload of a WQE is read over PCIe until `until`.
    pub(crate) fn gather(&mut self, until: Time) {
        self.gathers.occupy(until);
    }

    /// Whether the NIC has to load the context before it takes the next WQE: a READ or an atomic operation, unless it follows
    /// another one immediately.
    pub(crate) fn begin_fetches(&mut self) -> bool {
        let next = self.next;
        let is_fetch = self
            .wqe(next)
            .is_some_and(|wqe| wqe.operation.writes_local_memory());
        is_fetch && !std::mem::replace(&mut self.is_fetching, true)
    }

    /// The NIC has sent all READs and atomic operations that it may send.
    pub(crate) fn end_fetches(&mut self) {
        self.is_fetching &= self.is_issuing;
    }

    pub(crate) fn begin_read(&mut self) {
        self.reads_in_flight += 1;
    }

    pub(crate) fn end_read(&mut self) {
        self.reads_in_flight -= 1;
    }

    /// Another READ may be sent from `at` on.
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

    /// Resends WQE `seq` and all later ones (go-back-N). READs among them are no longer in flight.
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

/// How the NIC gets WQEs.
impl SendQueue {
    /// Whether there are announced WQEs that the NIC has not read.
    pub(crate) fn is_behind(&mut self) -> bool {
        let last = self.unread.checked_sub(1);
        let last = last.and_then(|seq| self.wqe(seq));
        last.is_some_and(|wqe| wqe.location == WqeLocation::InMemory)
    }

    /// The CPU writes the next WQE to the queue pair's own BlueFlame register.
    pub(crate) fn write_blueflame(&mut self) -> WqeLocation {
        self.blueflame.write(self.known, self.next)
    }

    /// A doorbell contains the next WQE, which is at `location` from `ready` on.
    pub(crate) fn written(&mut self, ready: Time, location: WqeLocation) {
        let (known, doorbell) = (self.known, self.doorbells);
        self.doorbells += 1;
        if let Some(wqe) = self.wqe(known) {
            (wqe.ready, wqe.doorbell, wqe.location) = (ready, doorbell, location);
            self.known += 1;
            if location == WqeLocation::InMemory {
                self.unread = self.known;
            }
        }
    }

    /// A doorbell announces `count` WQEs, which the NIC can read from `ready` on. Returns their numbers.
    pub(crate) fn rung(&mut self, count: u32, ready: Time) -> Range<u64> {
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

    /// The NIC reads WQEs `rung`, which a doorbell announced at `there`, in advance. Returns when it begins, unless it still
    /// has to read earlier ones.
    pub(crate) fn prefetch(&mut self, rung: Range<u64>, there: Time) -> Option<Time> {
        for seq in rung.clone() {
            if let Some(wqe) = self.wqe(seq) {
                wqe.location = WqeLocation::Announced;
            }
        }
        let is_reading = !self.prefetch.is_empty();
        if !is_reading {
            self.prefetch.start = rung.start;
        }
        self.prefetch.end = rung.end;
        (!is_reading).then(|| self.prefetches.admit(there))
    }

    /// Returns the first WQE to be read in advance, and skips those that were read since the doorbell.
    pub(crate) fn next_prefetch(&mut self) -> Option<u64> {
        while !self.prefetch.is_empty() {
            let first = self.prefetch.start;
            let wqe = self.wqe(first);
            if wqe.is_some_and(|wqe| wqe.location == WqeLocation::Announced) {
                return Some(first);
            }
            self.prefetch.start += 1;
        }
        None
    }

    /// A read that began at `at` returns the WQEs before `next`, the last of them at `last`. Returns when the NIC may read
    /// further ones, if there are any.
    pub(crate) fn prefetched_until(&mut self, next: u64, at: Time, last: Time) -> Option<Time> {
        self.prefetch.start = next;
        self.prefetches.occupy(last);
        (!self.prefetch.is_empty()).then(|| self.prefetches.admit(at))
    }

    /// Sets whether an event is scheduled at which the next WQE may be read; returns whether one was.
    pub(crate) fn set_reading(&mut self, is_reading: bool) -> bool {
        std::mem::replace(&mut self.is_reading, is_reading)
    }
}
