//! The local memory of a request.

use adverb_verbs::{AccessFlags, SendFlags, SendRequest, Sge};

use crate::memory::{check_local, local_address};
use crate::port::Port;
use crate::shm::copy::place;
use crate::shm::process::Pieces;

/// The payload of a SEND or WRITE: checked SGEs, and how far they have been copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// The SGEs name memory of the program, without keys.
    is_inline: bool,
    sges: &'a [Sge<'a>],
    index: usize,
    offset: u32,
    pub(super) left: u64,
}

impl<'a> Source<'a> {
    /// Checks the request's SGEs. `None` if one of them must not be used.
    #[inline]
    pub(crate) fn check(port: &Port, pd: u32, request: &'a SendRequest<'_>) -> Option<Self> {
        let is_inline = request.flags.contains(SendFlags::INLINE);
        if !is_inline {
            let need = if request.operation.writes_local_memory() {
                AccessFlags::LOCAL_WRITE
            } else {
                AccessFlags::empty()
            };
            for sge in request.sges.iter().filter(|sge| sge.length() != 0) {
                check_local(port, pd, sge, need)?;
            }
        }
        Some(Source {
            is_inline,
            sges: request.sges,
            index: 0,
            offset: 0,
            left: request.length(),
        })
    }

    /// Copies the next `length` (at most `left`) bytes to `target`, which the caller checked.
    #[inline]
    pub(super) fn copy_to(&mut self, port: &Port, mut target: *mut u8, length: u64) {
        let mut wanted = length;
        while wanted > 0 {
            let (from, count) = self.take(port, wanted);
            // SAFETY: `Source::check` checked the SGE (or it is inline, hence readable), and the target has
            // `length` bytes.
            unsafe {
                place(target, from, count);
                target = target.add(count);
            }
            wanted -= count as u64;
        }
    }

    /// Returns the places of the next `length` (at most `left`) bytes.
    pub(super) fn gather(&mut self, port: &Port, length: u64) -> Pieces {
        let mut pieces = Pieces::new();
        let mut wanted = length;
        while wanted > 0 {
            let (from, count) = self.take(port, wanted);
            pieces.push(from.cast_mut(), count);
            wanted -= count as u64;
        }
        pieces
    }

    /// Returns the place of the next bytes, at most `most`, and their number.
    #[inline]
    fn take(&mut self, port: &Port, most: u64) -> (*const u8, usize) {
        let sge = &self.sges[self.index];
        let count = u64::from(sge.length() - self.offset).min(most);
        let start = if self.is_inline {
            std::ptr::with_exposed_provenance(sge.addr() as usize)
        } else {
            local_address(port, sge).cast_const()
        };
        let from = start.wrapping_add(self.offset as usize);
        self.offset += count as u32;
        if self.offset == sge.length() {
            self.index += 1;
            self.offset = 0;
        }
        self.left -= count;
        (from, count as usize)
    }
}
