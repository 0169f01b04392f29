//! The receive ring: one queue pair's receive queue, in its owner's shared memory.
//!
//! ```text
//!           owner: post            requester: complete          owner: take
//!   EMPTY ───────────────► POSTED ─────────────────► COMPLETED ─────────────► (next lap)
//!           release store          release store                acquire load
//! ```
//! A slot is one cache line (more for requests of more than two scatter elements). It holds the receive request
//! and its completion. The state word contains the request's position, which counts up from the queue pair's RESET,
//! so a stale slot never matches.
//!
//! Each word has one writer at a time: the owner until it stores POSTED, then the requester until it stores
//! COMPLETED. Both stores are releases, and the other side's load is an acquire, so it sees the words written
//! before. A requester that dies before its store of COMPLETED has completed nothing, and after it everything.
//! The request's words are never written by a requester, because another requester may carry out the same
//! request then.
//!
//! ```text
//! word 0   position << 2 | EMPTY, POSTED or COMPLETED
//! word 1   byte_len | status << 32 | flags << 40
//! word 2   immediate data, or the invalidated key
//! word 3   total capacity of the pieces | pieces << 48
//! words 4,5 6,7   two pieces: address; length << 32 | lkey
//! next lines      four more pieces each
//! ```

use std::marker::PhantomData;

use adverb_transport::LocalPiece;
use adverb_verbs::{Lkey, Sge, WcStatus};

use crate::shm::sync::{AtomicU64, Ordering};

const EMPTY: u64 = 0;
const POSTED: u64 = 1;
const COMPLETED: u64 = 2;
const STATE_BITS: u32 = 2;
/// The capacity is below these bits: 16 scatter elements of less than 4 GiB do not reach them.
const COUNT_SHIFT: u32 = 48;
const IN_FIRST_LINE: usize = 2;
const IN_OTHER_LINES: usize = 4;

/// One cache line of shared words.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Line(pub(crate) [AtomicU64; 8]);

/// A scatter element in the receiver's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Address in the owner's address space.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// The owner's local key.
    pub lkey: u32,
}

impl From<&Sge<'_>> for Piece {
    fn from(sge: &Sge<'_>) -> Self {
        Piece {
            addr: sge.addr(),
            length: sge.length(),
            lkey: sge.lkey().0,
        }
    }
}

impl From<Piece> for LocalPiece {
    fn from(piece: Piece) -> Self {
        LocalPiece {
            addr: piece.addr,
            length: piece.length,
            lkey: Lkey(piece.lkey),
        }
    }
}

/// The completion of a receive request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes received.
    pub byte_len: u32,
    /// `ibv_wc_status`.
    pub status: u8,
    /// What the message carried in addition to its payload.
    pub extra: Extra,
    /// Whether it was a WRITE with immediate data, not a SEND.
    pub is_write: bool,
}

/// What a message carries in addition to its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    #[default]
    None,
    /// Immediate data.
    Imm(u32),
    /// A key of the receiver, which it has invalidated.
    Invalidated(u32),
}

const WITH_IMM: u64 = 1;
const IS_WRITE: u64 = 2;
const WITH_INV: u64 = 4;

impl Extra {
    const fn flags(self) -> u64 {
        match self {
            Extra::None => 0,
            Extra::Imm(_) => WITH_IMM,
            Extra::Invalidated(_) => WITH_INV,
        }
    }

    const fn word(self) -> u32 {
        match self {
            Extra::None => 0,
            Extra::Imm(word) | Extra::Invalidated(word) => word,
        }
    }

    const fn unpack(flags: u64, word: u32) -> Self {
        match flags & (WITH_IMM | WITH_INV) {
            0 => Extra::None,
            WITH_IMM => Extra::Imm(word),
            _ => Extra::Invalidated(word),
        }
    }
}

impl Arrival {
    /// Returns the completion of a failed receive request.
    pub fn failed(status: WcStatus) -> Self {
        Arrival {
            status: status.code() as u8,
            ..Arrival::default()
        }
    }

    fn pack(self) -> u64 {
        let flags = self.extra.flags() | if self.is_write { IS_WRITE } else { 0 };
        u64::from(self.byte_len) | u64::from(self.status) << 32 | flags << 40
    }

    fn unpack(word: u64, extra: u64) -> Self {
        let flags = word >> 40 & 0xff;
        Arrival {
            byte_len: word as u32,
            status: (word >> 32) as u8,
            extra: Extra::unpack(flags, extra as u32),
            is_write: flags & IS_WRITE != 0,
        }
    }
}

/// A view of a ring: the owner's or its requester's.
#[derive(Clone, Copy, Debug)]
pub struct RecvRing<'a> {
    lines: *const Line,
    stride: usize,
    mask: u64,
    memory: PhantomData<&'a [Line]>,
}

// SAFETY: the lines stay mapped for `'a` on every thread.
unsafe impl Send for RecvRing<'_> {}
// SAFETY: all access to the lines is by atomics.
unsafe impl Sync for RecvRing<'_> {}

impl<'a> RecvRing<'a> {
    /// Returns the number of lines of a slot for `pieces` scatter elements.
    pub fn lines_per_slot(pieces: usize) -> usize {
        1 + pieces
            .saturating_sub(IN_FIRST_LINE)
            .div_ceil(IN_OTHER_LINES)
    }

    /// Makes a ring of `slots` (a power of two) slots in `lines`.
    ///
    /// # Panics
    /// If `slots` is not a power of two, or the number of lines is not a multiple of it.
    pub fn over(lines: &'a [Line], slots: usize) -> Self {
        assert!(slots.is_power_of_two() && lines.len().is_multiple_of(slots));
        // SAFETY: the slice's memory stays valid for `'a`.
        unsafe { Self::from_raw(lines.as_ptr(), slots, lines.len() / slots) }
    }

    /// Makes a ring of `slots` (a power of two) slots of `stride` lines each.
    ///
    /// # Safety
    /// `lines` points to `slots * stride` lines that stay mapped for `'a`.
    pub unsafe fn from_raw(lines: *const Line, slots: usize, stride: usize) -> Self {
        RecvRing {
            lines,
            stride,
            mask: slots as u64 - 1,
            memory: PhantomData,
        }
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.mask as usize + 1
    }

    /// Owner: empties all slots. The memory may have been the ring of another queue pair, with the same positions.
    pub fn clear(&self) {
        for slot in 0..=self.mask {
            self.line(slot, 0).0[0].store(EMPTY, Ordering::Relaxed);
        }
    }

    #[inline]
    fn line(&self, position: u64, index: usize) -> &'a Line {
        let slot = (position & self.mask) as usize;
        debug_assert!(index < self.stride);
        // SAFETY: slot < slots by the mask and index < stride, so the line is one that the caller of `from_raw`
        // promised to be mapped.
        unsafe { &*self.lines.add(slot * self.stride + index) }
    }

    fn piece_words(&self, position: u64, i: usize) -> (&'a AtomicU64, &'a AtomicU64) {
        let (line, at) = if i < IN_FIRST_LINE {
            (self.line(position, 0), 4 + 2 * i)
        } else {
            let i = i - IN_FIRST_LINE;
            (
                self.line(position, 1 + i / IN_OTHER_LINES),
                2 * (i % IN_OTHER_LINES),
            )
        };
        (&line.0[at], &line.0[at + 1])
    }

    /// Owner: posts a request. The slot's previous request must have been taken.
    #[inline]
    pub fn post(&self, position: u64, pieces: impl ExactSizeIterator<Item = Piece>) {
        let line = self.line(position, 0);
        let count = pieces.len() as u64;
        let mut capacity = 0;
        for (i, piece) in pieces.enumerate() {
            let (addr, rest) = self.piece_words(position, i);
            addr.store(piece.addr, Ordering::Relaxed);
            rest.store(
                u64::from(piece.length) << 32 | u64::from(piece.lkey),
                Ordering::Relaxed,
            );
            capacity += u64::from(piece.length);
        }
        line.0[3].store(capacity | count << COUNT_SHIFT, Ordering::Relaxed);
        line.0[0].store(position << STATE_BITS | POSTED, Ordering::Release);
    }

    /// Owner: returns the completion of the request at `position`, if it is complete.
    #[inline]
    pub fn arrival(&self, position: u64) -> Option<Arrival> {
        let line = self.line(position, 0);
        if line.0[0].load(Ordering::Acquire) != position << STATE_BITS | COMPLETED {
            return None;
        }
        let (word, extra) = (
            line.0[1].load(Ordering::Relaxed),
            line.0[2].load(Ordering::Relaxed),
        );
        Some(Arrival::unpack(word, extra))
    }

    /// Requester: whether a request is posted at `position`.
    #[inline]
    pub fn is_posted(&self, position: u64) -> bool {
        self.line(position, 0).0[0].load(Ordering::Acquire) == position << STATE_BITS | POSTED
    }

    /// Requester: returns the total length of the posted request's scatter elements.
    #[inline]
    pub fn capacity(&self, position: u64) -> u64 {
        self.line(position, 0).0[3].load(Ordering::Relaxed) & ((1 << COUNT_SHIFT) - 1)
    }

    /// Requester: returns the posted request's scatter elements.
    #[inline]
    pub fn pieces(&self, position: u64) -> impl Iterator<Item = Piece> + 'a {
        let count = (self.line(position, 0).0[3].load(Ordering::Relaxed) >> COUNT_SHIFT) as usize;
        let ring = *self;
        let most = IN_FIRST_LINE + (self.stride - 1) * IN_OTHER_LINES;
        (0..count.min(most)).map(move |i| {
            let (addr, rest) = ring.piece_words(position, i);
            let rest = rest.load(Ordering::Relaxed);
            let addr = addr.load(Ordering::Relaxed);
            Piece {
                addr,
                length: (rest >> 32) as u32,
                lkey: rest as u32,
            }
        })
    }

    /// Requester: completes the posted request. The payload must have been written before.
    #[inline]
    pub fn complete(&self, position: u64, arrival: Arrival) {
        let line = self.line(position, 0);
        line.0[2].store(arrival.extra.word().into(), Ordering::Relaxed);
        line.0[1].store(arrival.pack(), Ordering::Relaxed);
        line.0[0].store(position << STATE_BITS | COMPLETED, Ordering::Release);
    }

    /// Requester: prefetches the slot at `position` for writing.
    ///
    /// The owner has written the slot, so without this a message costs two transfers of its cache line: one to read the
    /// request, and one to write the completion. `_mm_prefetch` does not help: it becomes this instruction only for
    /// CPUs that are named when compiling.
    #[inline]
    pub fn prefetch(&self, position: u64) {
        #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
        // SAFETY: the instruction only affects caches, and CPUs without it do nothing. The address is within the ring.
        unsafe {
            std::arch::asm!(
                "prefetchw [{}]",
                in(reg) std::ptr::from_ref(self.line(position, 0)),
                options(nostack, preserves_flags, readonly)
            );
        }
        #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
        let _ = position;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ring_memory(slots: usize, pieces: usize) -> Vec<Line> {
        (0..slots * RecvRing::lines_per_slot(pieces))
            .map(|_| Line::default())
            .collect()
    }

    #[test]
    fn a_slot_is_one_line_up_to_two_pieces() {
        let lines = [0, 1, 2, 3, 6, 7, 16].map(RecvRing::lines_per_slot);
        assert_eq!(lines, [1, 1, 1, 2, 2, 3, 5]);
    }

    #[test]
    fn the_requester_finds_what_was_posted() {
        let memory = ring_memory(4, 9);
        let ring = RecvRing::over(&memory, 4);
        for position in 0..12 {
            let pieces: Vec<_> = (0..position as u32 % 10)
                .map(|i| Piece {
                    addr: position << 20 | u64::from(i),
                    length: i + 1,
                    lkey: !i,
                })
                .collect();
            assert!(!ring.is_posted(position));
            ring.post(position, pieces.iter().copied());
            assert!(ring.is_posted(position) && !ring.is_posted(position + 4));
            assert_eq!(ring.pieces(position).collect::<Vec<_>>(), pieces);
            assert_eq!(
                ring.capacity(position),
                pieces.iter().map(|p| u64::from(p.length)).sum::<u64>()
            );
            assert_eq!(ring.arrival(position), None);
            let arrival = Arrival {
                byte_len: u32::MAX,
                status: 9,
                extra: match position % 3 {
                    0 => Extra::None,
                    1 => Extra::Imm(position as u32),
                    _ => Extra::Invalidated(position as u32),
                },
                is_write: true,
            };
            ring.complete(position, arrival);
            assert_eq!(ring.arrival(position), Some(arrival));
            assert!(!ring.is_posted(position));
        }
    }

    #[test]
    fn completions_of_an_earlier_generation_are_ignored() {
        let memory = ring_memory(2, 1);
        let ring = RecvRing::over(&memory, 2);
        ring.post(0, [].into_iter());
        ring.complete(0, Arrival::default());
        assert_eq!(ring.arrival(1 << 32), None);
    }

    #[test]
    fn a_cleared_ring_is_empty() {
        let memory = ring_memory(4, 3);
        let ring = RecvRing::over(&memory, 4);
        (0..4).for_each(|position| ring.post(position, [].into_iter()));
        ring.complete(2, Arrival::default());
        ring.clear();
        assert!((0..4).all(|p| !ring.is_posted(p) && ring.arrival(p).is_none()));
    }
}
