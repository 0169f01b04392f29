//! The receive queue of a UD queue pair. Any number of senders add messages, and its owner takes them.
//!
//! ```text
//!   sender                                       owner
//!   cell: FREE ──CAS──► holder                   word: post  ──► POSTED
//!   copies the message into its cell
//!   word: POSTED ──CAS──► FULL(cell)  ─────────► takes: copies to the receive request's memory
//!                                                cell: ──► FREE
//! ```
//! A sender changes the word of a receive request from POSTED to FULL by one compare-and-swap, after its
//! message is complete. So the queue has no holes, requests complete in the order of posting, and no sender
//! waits for another. A message stays in a *cell* until its receiver polls. A sender that claims a cell owns it
//! until it publishes the cell (then the receiver owns it) or frees it. A sender that dies or is stopped in
//! between withholds one cell and nothing else. The owner of the ring reclaims the cells of dead senders
//! ([`DatagramRing::reclaim`]).
//!
//! A sender that still addresses a queue pair as it was before a RESET does no harm: positions are never used
//! twice, so its compare-and-swap fails, and otherwise it only writes to a cell that it owns. So a RESET need
//! not wait for senders, provided that this memory is not used for anything else.
//!
//! ```text
//! line 0            word 0: first position since the last RESET
//! next lines        one word per receive: position << 18 | cell << 2 | CLOSED, POSTED or FULL
//! cell, line 0      word 0: holder; 0: FREE
//!                   word 1: length | source queue pair << 32 | has immediate data << 56
//!                           | has a GRH << 57
//!                   word 2: immediate data | addressee << 32
//! from byte 24 on   payload
//! last 40 bytes     GRH: the global routing header of a message from another host
//! ```

mod message;

use std::marker::PhantomData;

use crate::shm::ring::Line;
use crate::shm::sync::{AtomicU64, Ordering};
pub use message::{Addressee, Cell, GrhSource, Holder, Message};

const CLOSED: u64 = 0;
const POSTED: u64 = 1;
const FULL: u64 = 2;
const STATE: u64 = 3;
const CELL_SHIFT: u32 = 2;
const POSITION_SHIFT: u32 = 18;
const CELL_MASK: u64 = (1 << (POSITION_SHIFT - CELL_SHIFT)) - 1;

const WORDS_PER_LINE: usize = 8;
const FREE: u64 = 0;
/// Bytes of a cell before the payload.
const CELL_HEADER: usize = 24;
/// Cells in addition to one per receive: the number of senders that may be writing a message, or be stopped
/// there, while all receives are full.
const SPARE_CELLS: usize = if cfg!(loom) { 2 } else { 32 };
const WITH_IMM: u64 = 1 << 56;
const WITH_GRH: u64 = 1 << 57;
/// Length in bytes of the global routing header, which precedes the payload in a receive (IBTA vol. 1, 8.3).
pub const GRH_LEN: usize = adverb_wire::grh::LEN;

/// The value of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    fn new(position: u64, cell: Cell, state: u64) -> Self {
        Word(position << POSITION_SHIFT | u64::from(cell.0) << CELL_SHIFT | state)
    }

    fn posted(position: u64) -> Self {
        Self::new(position, Cell(0), POSTED)
    }

    fn position(self) -> u64 {
        self.0 >> POSITION_SHIFT
    }

    /// Returns the cell of the message at `position`.
    fn full_at(self, position: u64) -> Option<Cell> {
        let is_full = self.position() == position && self.0 & STATE == FULL;
        is_full.then_some(Cell((self.0 >> CELL_SHIFT & CELL_MASK) as u32))
    }
}

/// The ring: a view of shared memory, its owner's or a sender's.
#[derive(Clone, Copy, Debug)]
pub struct DatagramRing<'a> {
    lines: *const Line,
    slots: usize,
    cell_lines: usize,
    memory: PhantomData<&'a [Line]>,
}

// SAFETY: the lines stay mapped for `'a` on every thread.
unsafe impl Send for DatagramRing<'_> {}
// SAFETY: words are accessed by atomics, and a cell's payload only by the cell's holder.
unsafe impl Sync for DatagramRing<'_> {}

impl<'a> DatagramRing<'a> {
    /// Returns the number of lines of a cell for `payload` bytes.
    pub const fn lines_per_cell(payload: usize) -> usize {
        (CELL_HEADER + payload + GRH_LEN).div_ceil(64)
    }

    /// Returns the number of lines of a ring of `slots` receives, whose cells have `cell_lines` lines.
    pub const fn lines(slots: usize, cell_lines: usize) -> usize {
        Self::first_cell(slots) + Self::cells_of(slots) * cell_lines
    }

    const fn first_cell(slots: usize) -> usize {
        1 + slots.div_ceil(WORDS_PER_LINE)
    }

    const fn cells_of(slots: usize) -> usize {
        slots + SPARE_CELLS
    }

    /// Makes a ring of `slots` (a power of two) receives in `lines`.
    ///
    /// # Panics
    /// If `slots` is not a power of two, or there are too few lines.
    pub fn over(lines: &'a [Line], slots: usize, cell_lines: usize) -> Self {
        assert!(slots.is_power_of_two() && lines.len() >= Self::lines(slots, cell_lines));
        // SAFETY: the slice's memory stays valid for `'a`.
        unsafe { Self::from_raw(lines.as_ptr(), slots, cell_lines) }
    }

    /// Makes a ring of `slots` (a power of two) receives, whose cells have `cell_lines` lines each.
    ///
    /// # Safety
    /// `lines` points to `lines(slots, cell_lines)` lines that stay mapped for `'a`.
    pub unsafe fn from_raw(lines: *const Line, slots: usize, cell_lines: usize) -> Self {
        DatagramRing {
            lines,
            slots,
            cell_lines,
            memory: PhantomData,
        }
    }

    /// Returns the number of cells.
    pub fn cells(&self) -> usize {
        Self::cells_of(self.slots)
    }

    #[inline]
    fn line(&self, index: usize) -> &'a Line {
        debug_assert!(index < Self::lines(self.slots, self.cell_lines));
        // SAFETY: callers pass an index within the ring, whose lines the caller of `from_raw` promised to be mapped.
        unsafe { &*self.lines.add(index) }
    }

    #[inline]
    fn word(&self, position: u64) -> &'a AtomicU64 {
        let slot = position as usize & (self.slots - 1);
        &self.line(1 + slot / WORDS_PER_LINE).0[slot % WORDS_PER_LINE]
    }

    #[inline]
    fn read(&self, position: u64) -> Word {
        // Acquire: the message, which was written before the word, is visible; and so are earlier words.
        Word(self.word(position).load(Ordering::Acquire))
    }

    #[inline]
    fn cell(&self, cell: Cell) -> &'a Line {
        // The number is from shared memory, so it is not trusted.
        let number = cell.number().min(self.cells() - 1);
        self.line(Self::first_cell(self.slots) + number * self.cell_lines)
    }

    /// Returns the address of a cell's payload, aligned to 8.
    #[inline]
    pub fn payload(&self, cell: Cell) -> *mut u8 {
        let first = std::ptr::from_ref(self.cell(cell)).cast::<u8>();
        first.wrapping_add(CELL_HEADER).cast_mut()
    }

    /// Returns the address of a cell's global routing header, [`GRH_LEN`] bytes.
    pub fn grh(&self, cell: Cell) -> *mut u8 {
        self.payload(cell).wrapping_add(self.room())
    }

    /// Returns the maximum length of the payload in bytes.
    pub fn room(&self) -> usize {
        self.cell_lines * 64 - CELL_HEADER - GRH_LEN
    }
}

/// The owner's operations. One thread at a time posts, and one takes.
impl DatagramRing<'_> {
    /// Resets the queue; returns the position of the first receive. All earlier receives must have been taken
    /// or closed.
    pub fn begin_generation(&self) -> u64 {
        let positions = (0..self.slots as u64).map(|slot| self.read(slot).position());
        let last = positions.fold(self.first(), u64::max);
        // A sender that has not noticed the reset may still look at the next position, so that one is never posted.
        let first = last + 2;
        self.line(0).0[0].store(first, Ordering::Release);
        first
    }

    /// Posts a receive.
    #[inline]
    pub fn post(&self, position: u64) {
        let word = Word::posted(position);
        self.word(position).store(word.0, Ordering::Release);
    }

    /// Returns the cell of the message in the receive at `position`, if it has one. The caller owns the cell
    /// until it frees it.
    #[inline]
    pub fn arrival(&self, position: u64) -> Option<Cell> {
        self.read(position).full_at(position)
    }

    /// Closes the receive at `position`. If it already has a message, returns the message's cell instead.
    pub fn close(&self, position: u64) -> Option<Cell> {
        let closed = Word::new(position, Cell(0), CLOSED);
        let posted = Word::posted(position);
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let found = (self.word(position)).compare_exchange(posted.0, closed.0, order.0, order.1);
        found.err().and_then(|word| Word(word).full_at(position))
    }

    /// Returns the message in a cell.
    #[inline]
    pub fn message(&self, cell: Cell) -> Message {
        let line = self.cell(cell);
        let word = line.0[1].load(Ordering::Relaxed);
        let imm = line.0[2].load(Ordering::Relaxed) as u32;
        Message {
            length: (word as u32).min(self.room() as u32),
            source: (word >> 32) as u32 & 0xff_ffff,
            imm: (word & WITH_IMM != 0).then_some(imm),
            grh: match word & WITH_GRH {
                0 => GrhSource::Local,
                _ => GrhSource::Received,
            },
        }
    }

    /// Returns the addressee of the message in a cell.
    pub fn addressee(&self, cell: Cell) -> Addressee {
        let word = self.cell(cell).0[2].load(Ordering::Relaxed);
        Addressee((word >> 32) as u32)
    }

    /// Reclaims the cells of dead holders, which can no longer publish them. No messages may be taken during
    /// the call. Those at position `taken` and later are waiting; their cells are kept.
    pub fn reclaim(&self, taken: u64, is_dead: impl Fn(Holder) -> bool) {
        let mut is_waiting = vec![false; self.cells()];
        for slot in 0..self.slots as u64 {
            let word = self.read(slot);
            if let Some(cell) = word.full_at(word.position().max(taken)) {
                is_waiting[cell.number().min(self.cells() - 1)] = true;
            }
        }
        let numbers = (0..self.cells()).filter(|number| !is_waiting[*number]);
        for cell in numbers.map(|number| Cell(number as u32)) {
            let holder = self.cell(cell).0[0].load(Ordering::Acquire);
            if holder != FREE && is_dead(Holder(holder)) {
                self.free(cell);
            }
        }
    }
}

/// Operations of both sides.
impl DatagramRing<'_> {
    /// Frees a cell. Owner: after taking a message. Sender: instead of publishing one.
    #[inline]
    pub fn free(&self, cell: Cell) {
        // Release: the next holder's writes come after this side's reads.
        self.cell(cell).0[0].store(FREE, Ordering::Release);
    }
}

/// The senders' operations.
impl DatagramRing<'_> {
    /// Returns the first position since the last RESET.
    pub fn first(&self) -> u64 {
        self.line(0).0[0].load(Ordering::Acquire)
    }

    /// Returns the oldest posted receive at `position` or later. `None` if all have a message. Calls `is_same_generation`
    /// before the search continues in a later lap.
    #[inline]
    pub fn posted_from(
        &self,
        mut position: u64,
        is_same_generation: impl Fn() -> bool,
    ) -> Option<u64> {
        loop {
            let word = self.read(position);
            let (there, state) = (word.position(), word.0 & STATE);
            if there < position {
                return None;
            }
            if there == position {
                match state {
                    POSTED => return Some(position),
                    FULL => position += 1,
                    _ => return None,
                }
                continue;
            }
            // A later lap: the owner has taken the message in this slot, and all before it.
            if state == CLOSED || !is_same_generation() {
                return None;
            }
            position = if state == POSTED {
                there + 1 - self.slots as u64
            } else {
                there + 1
            };
        }
    }

    /// Claims a free cell, preferably the usual one of `position`. `None` if all are held.
    #[inline]
    pub fn claim(&self, position: u64, holder: Holder) -> Option<Cell> {
        let count = self.cells();
        let start = (position % count as u64) as usize;
        (start..count).chain(0..start).find_map(|number| {
            let cell = Cell(number as u32);
            let word = &self.cell(cell).0[0];
            let is_free = word.load(Ordering::Relaxed) == FREE;
            let claim =
                || word.compare_exchange(FREE, holder.0, Ordering::Acquire, Ordering::Relaxed);
            (is_free && claim().is_ok()).then_some(cell)
        })
    }

    /// Describes the message in the claimed cell.
    #[inline]
    pub fn describe(&self, cell: Cell, message: Message, to: Addressee) {
        let line = self.cell(cell);
        let with_imm = if message.imm.is_some() { WITH_IMM } else { 0 };
        let with_grh = match message.grh {
            GrhSource::Local => 0,
            GrhSource::Received => WITH_GRH,
        };
        let flags = with_imm | with_grh;
        let word = u64::from(message.length) | u64::from(message.source) << 32 | flags;
        let imm = u64::from(message.imm.unwrap_or(0));
        line.0[2].store(imm | u64::from(to.0) << 32, Ordering::Relaxed);
        line.0[1].store(word, Ordering::Relaxed);
    }

    /// Completes the receive at `position` with the message in the claimed cell. Returns false if the receive
    /// already has another, or was closed.
    #[inline]
    pub fn publish(&self, position: u64, cell: Cell) -> bool {
        let (posted, full) = (Word::posted(position), Word::new(position, cell, FULL));
        self.word(position)
            .compare_exchange(posted.0, full.0, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
