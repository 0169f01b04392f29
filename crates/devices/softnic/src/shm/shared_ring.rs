//! The queue of a shared receive queue, in its owner's shared memory. Any number of requesters take receive requests
//! from it, each for the queue pair that it sends to.
//!
//! ```text
//!   owner: post              requester: take              owner: collect
//!   word: POSTED(slot) ──CAS──► TAKEN(queue pair) ─────────► records the holder of the slot
//!                               places the payload
//!   slot: POSTED ─────────────► COMPLETED ─────────────────► completion; the slot is free again
//! ```
//! The requests are in slots (a [`RecvRing`](crate::shm::ring::RecvRing)). The queue has a word for each, in
//! the order of posting. A requester takes a request by one compare-and-swap, which also stores the queue pair
//! that it is for. So requests are taken in order, each once, and if a requester dies at any instruction, the
//! owner knows which requests it held: at most one per connection.
//!
//! ```text
//! line 0      word 0: position of the next request (owner)
//! line 1      word 0: all requests before this position are taken: a hint (requesters)
//! line 2      word 0: limit, 0 or REACHED; word 1: a requester sleeps until a request is posted
//! next lines  one word per request: position << 18 | slot or holder << 2 | CLOSED, POSTED or TAKEN
//! ```
//! A position is never used twice in a queue, so a stale compare-and-swap fails.

use std::marker::PhantomData;

use crate::shm::ring::Line;
use crate::shm::sync::{AtomicU64, Ordering};

const CLOSED: u64 = 0;
const POSTED: u64 = 1;
const TAKEN: u64 = 2;
const STATE: u64 = 3;
const FIELD_SHIFT: u32 = 2;
const POSITION_SHIFT: u32 = 18;
const FIELD_MASK: u64 = (1 << (POSITION_SHIFT - FIELD_SHIFT)) - 1;

const WORDS_PER_LINE: usize = 8;
const FIRST_WORD_LINE: usize = 3;
/// The limit was reached, and the owner has not taken the event yet.
const REACHED: u64 = u64::MAX;

/// Maximum number of slots: slots and holders have to fit into the field of a word.
pub const MAX_SLOTS: usize = 1 << (POSITION_SHIFT - FIELD_SHIFT);

/// A request that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its position in the order of posting.
    pub position: u64,
    /// The slot that holds its scatter elements and its completion.
    pub slot: u16,
}

impl Ticket {
    /// Returns the request's position in a [`RecvRing`](crate::shm::ring::RecvRing) of `slots` (a power of two)
    /// slots. No other request in the slot has the same.
    #[inline]
    pub fn request(self, slots: usize) -> u64 {
        self.position << slots.trailing_zeros() | u64::from(self.slot)
    }

    /// Returns the ticket of the request at a position of such a ring.
    #[inline]
    pub fn of_request(request: u64, slots: usize) -> Self {
        Ticket {
            position: request >> slots.trailing_zeros(),
            slot: (request & (slots as u64 - 1)) as u16,
        }
    }
}

/// The value of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    #[inline]
    fn new(position: u64, field: u16, state: u64) -> Self {
        Word(position << POSITION_SHIFT | u64::from(field) << FIELD_SHIFT | state)
    }

    #[inline]
    fn position(self) -> u64 {
        self.0 >> POSITION_SHIFT
    }

    #[inline]
    fn state(self) -> u64 {
        self.0 & STATE
    }

    #[inline]
    fn field(self) -> u16 {
        (self.0 >> FIELD_SHIFT & FIELD_MASK) as u16
    }
}

/// The queue: a view of shared memory, its owner's or a requester's.
#[derive(Clone, Copy, Debug)]
pub struct SharedRing<'a> {
    lines: *const Line,
    slots: usize,
    memory: PhantomData<&'a [Line]>,
}

// SAFETY: the lines stay mapped for `'a` on every thread.
unsafe impl Send for SharedRing<'_> {}
// SAFETY: all access to the lines is by atomics.
unsafe impl Sync for SharedRing<'_> {}

impl<'a> SharedRing<'a> {
    /// Returns the number of lines of a queue of `slots` requests.
    pub const fn lines(slots: usize) -> usize {
        FIRST_WORD_LINE + slots.div_ceil(WORDS_PER_LINE)
    }

    /// Makes a queue of `slots` (a power of two) requests in `lines`.
    ///
    /// # Panics
    /// If `slots` is not a power of two, or there are too few lines.
    pub fn over(lines: &'a [Line], slots: usize) -> Self {
        assert!(slots.is_power_of_two() && lines.len() >= Self::lines(slots));
        // SAFETY: the slice's memory stays valid for `'a`.
        unsafe { Self::from_raw(lines.as_ptr(), slots) }
    }

    /// Makes a queue of `slots` (a power of two) requests.
    ///
    /// # Safety
    /// `lines` points to `lines(slots)` lines that stay mapped for `'a`.
    pub unsafe fn from_raw(lines: *const Line, slots: usize) -> Self {
        SharedRing {
            lines,
            slots,
            memory: PhantomData,
        }
    }

    #[inline]
    fn line(&self, index: usize) -> &'a Line {
        debug_assert!(index < Self::lines(self.slots));
        // SAFETY: callers pass an index within the queue, whose lines the caller of `from_raw` promised to be
        // mapped.
        unsafe { &*self.lines.add(index) }
    }

    #[inline]
    fn word(&self, position: u64) -> &'a AtomicU64 {
        let slot = position as usize & (self.slots - 1);
        &self.line(FIRST_WORD_LINE + slot / WORDS_PER_LINE).0[slot % WORDS_PER_LINE]
    }

    #[inline]
    fn read(&self, position: u64) -> Word {
        Word(self.word(position).load(Ordering::Acquire))
    }

    fn next(&self) -> &'a AtomicU64 {
        &self.line(0).0[0]
    }

    fn hint(&self) -> &'a AtomicU64 {
        &self.line(1).0[0]
    }

    fn limit_word(&self) -> &'a AtomicU64 {
        &self.line(2).0[0]
    }

    fn sleepers(&self) -> &'a AtomicU64 {
        &self.line(2).0[1]
    }
}

/// The owner's operations. The owner's threads exclude each other by a private lock.
impl SharedRing<'_> {
    /// Empties the queue, whose memory may have been another queue's. Returns the first position, 1.
    pub fn clear(&self) -> u64 {
        let first = 1;
        for position in 0..self.slots as u64 {
            self.word(position).store(CLOSED, Ordering::Relaxed);
        }
        self.limit_word().store(0, Ordering::Relaxed);
        self.sleepers().store(0, Ordering::Relaxed);
        self.hint().store(first, Ordering::Relaxed);
        self.next().store(first, Ordering::Release);
        first
    }

    /// Posts the request in the ticket's slot. The request one lap before must have been collected.
    #[inline]
    pub fn post(&self, ticket: Ticket) {
        let word = Word::new(ticket.position, ticket.slot, POSTED);
        self.word(ticket.position).store(word.0, Ordering::Release);
        self.next().store(ticket.position + 1, Ordering::Release);
    }

    /// Returns the holder of the request at `position`. `None` if it was not taken.
    #[inline]
    pub fn taken_by(&self, position: u64) -> Option<u16> {
        let word = self.read(position);
        let is_taken = word.position() == position && word.state() == TAKEN;
        is_taken.then(|| word.field())
    }

    /// Arms the limit; 0 disarms it. If an earlier limit was reached, [`SharedRing::take_reached`] no longer
    /// reports it.
    pub fn arm(&self, limit: u32) {
        self.limit_word().store(limit.into(), Ordering::Relaxed);
    }

    /// Returns the armed limit, or 0.
    pub fn limit(&self) -> u32 {
        match self.limit_word().load(Ordering::Relaxed) {
            REACHED => 0,
            limit => limit as u32,
        }
    }

    /// Whether the limit was reached since it was armed. Returns true only once.
    pub fn take_reached(&self) -> bool {
        let word = self.limit_word();
        word.load(Ordering::Relaxed) == REACHED
            && word
                .compare_exchange(REACHED, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Whether a requester sleeps until a request is posted. Returns true only once.
    #[inline]
    pub fn take_sleepers(&self) -> bool {
        self.sleepers().load(Ordering::Relaxed) != 0
            && self.sleepers().swap(0, Ordering::Relaxed) != 0
    }
}

/// The requesters' operations.
impl SharedRing<'_> {
    /// Asks the owner to wake sleeping requesters when it posts a request.
    pub fn ask_for_wake(&self) {
        self.sleepers().store(1, Ordering::SeqCst);
    }

    /// Whether a request is posted. Another requester may take it first.
    #[inline]
    pub fn has_posted(&self) -> bool {
        self.oldest_from(self.hint().load(Ordering::Relaxed))
            .is_some()
    }

    /// Takes the oldest request for `holder`. `None` if none is posted.
    #[inline]
    pub fn take(&self, holder: u16) -> Option<Ticket> {
        let mut ticket = self.oldest_from(self.hint().load(Ordering::Relaxed))?;
        while !self.claim(ticket, holder) {
            ticket = self.oldest_from(ticket.position + 1)?;
        }
        self.hint().store(ticket.position + 1, Ordering::Relaxed);
        self.look_at_limit(ticket.position);
        Some(ticket)
    }

    /// Takes a request by one compare-and-swap. Acquire: `holder` sees the request that the owner wrote before
    /// it stored POSTED. Release: this requester's earlier loads are ordered before TAKEN becomes visible.
    #[inline]
    fn claim(&self, ticket: Ticket, holder: u16) -> bool {
        let posted = Word::new(ticket.position, ticket.slot, POSTED);
        let taken = Word::new(ticket.position, holder, TAKEN);
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.word(ticket.position)
            .compare_exchange(posted.0, taken.0, order.0, order.1)
            .is_ok()
    }

    /// Returns the oldest posted request at `position` or later. Requests are taken in order: if one was taken,
    /// or its word already holds a later one, all before it were taken, too.
    #[inline]
    fn oldest_from(&self, mut position: u64) -> Option<Ticket> {
        loop {
            let word = self.read(position);
            let there = word.position();
            if there < position || word.state() == CLOSED {
                return None;
            }
            position = match word.state() {
                POSTED if there == position => {
                    let slot = word.field();
                    return Some(Ticket { position, slot });
                }
                // A request of a later lap: all requests up to one lap before it were taken.
                POSTED => there + 1 - self.slots as u64,
                _ => there + 1,
            };
        }
    }

    /// After the request at `position` was taken: reports if fewer are left than the limit. One
    /// compare-and-swap reports it and disarms the limit, so a requester that dies here has done both or
    /// neither.
    #[inline]
    fn look_at_limit(&self, position: u64) {
        let limit = self.limit_word().load(Ordering::Relaxed);
        if limit == 0 || limit == REACHED {
            return;
        }
        let next = self.next().load(Ordering::Acquire);
        if next.saturating_sub(position + 1) < limit {
            let order = (Ordering::Relaxed, Ordering::Relaxed);
            // If it fails, another requester has reported it, or the owner has armed the limit again.
            let _ = (self.limit_word()).compare_exchange(limit, REACHED, order.0, order.1);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SLOTS: usize = 4;

    fn memory() -> Vec<Line> {
        (0..SharedRing::lines(SLOTS))
            .map(|_| Line::default())
            .collect()
    }

    fn ticket(position: u64) -> Ticket {
        let slot = (position * 7 % 13) as u16;
        Ticket { position, slot }
    }

    #[test]
    fn requests_are_taken_in_order_over_many_laps() {
        let memory = memory();
        let ring = SharedRing::over(&memory, SLOTS);
        let mut next = ring.clear();
        for lap in 0..20 {
            assert!(!ring.has_posted());
            assert_eq!(ring.take(3), None);
            let count = 1 + lap % SLOTS as u64;
            for position in next..next + count {
                ring.post(ticket(position));
            }
            for position in next..next + count {
                assert!(ring.has_posted());
                assert_eq!(ring.taken_by(position), None);
                let holder = (position % 5) as u16;
                assert_eq!(ring.take(holder), Some(ticket(position)));
                assert_eq!(ring.taken_by(position), Some(holder));
            }
            next += count;
        }
    }

    #[test]
    fn a_hint_that_is_laps_behind_finds_the_oldest() {
        let memory = memory();
        let ring = SharedRing::over(&memory, SLOTS);
        let first = ring.clear();
        for position in first..first + 10 {
            ring.post(ticket(position));
            assert_eq!(ring.take(0), Some(ticket(position)));
        }
        for behind in first..first + 10 {
            ring.hint().store(behind, Ordering::Relaxed);
            assert_eq!(ring.take(0), None, "{behind}");
        }
        (10..13).for_each(|n| ring.post(ticket(first + n)));
        for behind in first..first + 10 {
            let oldest = ring.oldest_from(behind);
            assert_eq!(oldest, Some(ticket(first + 10)), "{behind}");
        }
    }

    #[test]
    fn a_reached_limit_is_reported_once() {
        let memory = memory();
        let ring = SharedRing::over(&memory, SLOTS);
        let first = ring.clear();
        (0..4).for_each(|n| ring.post(ticket(first + n)));
        ring.arm(2);
        assert_eq!(ring.limit(), 2);
        for is_reached in [false, false, true, false] {
            assert!(ring.take(0).is_some());
            assert_eq!(ring.take_reached(), is_reached);
        }
        assert_eq!(ring.limit(), 0);
        ring.arm(0);
        assert!(!ring.take_reached());
    }

    #[test]
    fn tickets_round_trip_through_request_positions() {
        for slots in [1, 2, 64, MAX_SLOTS] {
            for (position, slot) in [(1, 0), (77, slots - 1), ((1 << 46) - 1, slots / 2)] {
                let slot = slot as u16;
                let ticket = Ticket { position, slot };
                let request = ticket.request(slots);
                assert_eq!(Ticket::of_request(request, slots), ticket);
                assert_eq!(request as usize & (slots - 1), usize::from(slot));
            }
        }
    }
}
