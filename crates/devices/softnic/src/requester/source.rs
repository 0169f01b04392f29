//! The local memory of a request.

use adverb_verbs::{AccessFlags, SendFlags, SendRequest, Sge};

use crate::memory::{check_local, local_address};
use crate::port::Port;
use crate::shm::copy::place;

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
            let sge = &self.sges[self.index];
            let count = u64::from(sge.length() - self.offset).min(wanted);
            let from = if self.is_inline {
                std::ptr::with_exposed_provenance(sge.addr() as usize)
            } else {
                local_address(port, sge).cast_const()
            };
            // SAFETY: `Source::check` checked the SGE (or it is inline, hence readable), and the target has
            // `length` bytes.
            unsafe {
                place(target, from.add(self.offset as usize), count as usize);
                target = target.add(count as usize);
            }
            self.offset += count as u32;
            if self.offset == sge.length() {
                self.index += 1;
                self.offset = 0;
            }
            wanted -= count;
        }
        self.left -= length;
    }
}
