//! Copies payload: into shared memory, and inline payload out of the program's memory.
//!
//! The last byte becomes visible last. Programs that poll memory for a message (`ib_write_lat`) rely on that, and every
//! NIC does so in practice. On x86, stores become visible in program order; elsewhere the release store orders them.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use adverb_verbs::Sge;

/// Copies `length` bytes from `source` to `target`; the byte at the end becomes visible last.
///
/// # Safety
/// Both ranges are mapped during the whole call, `source` readable and `target` writable. If other processes write
/// them at the same time, the result is an arbitrary mixture of bytes, as with a NIC.
#[inline]
pub(crate) unsafe fn place(target: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller promises that both ranges are mapped. A sized store is used only if the target is aligned
    // for it.
    unsafe {
        match length {
            0 => {}
            8 if target.addr() & 7 == 0 => {
                let word = source.cast::<u64>().read_unaligned();
                (*target.cast::<AtomicU64>()).store(word, Ordering::Release);
            }
            4 if target.addr() & 3 == 0 => {
                let word = source.cast::<u32>().read_unaligned();
                (*target.cast::<AtomicU32>()).store(word, Ordering::Release);
            }
            2 if target.addr() & 1 == 0 => {
                let word = source.cast::<u16>().read_unaligned();
                (*target.cast::<AtomicU16>()).store(word, Ordering::Release);
            }
            16 if target.addr() & 7 == 0 => {
                let words = source.cast::<[u64; 2]>().read_unaligned();
                (*target.cast::<AtomicU64>()).store(words[0], Ordering::Relaxed);
                (*target.add(8).cast::<AtomicU64>()).store(words[1], Ordering::Release);
            }
            _ => {
                let last = length - 1;
                std::ptr::copy(source, target, last);
                (*target.add(last).cast::<AtomicU8>())
                    .store(source.add(last).read(), Ordering::Release);
            }
        }
    }
}

/// Returns a copy of inline payload.
pub(crate) fn gather_inline(sges: &[Sge<'_>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(sges.iter().map(|sge| sge.length() as usize).sum());
    // A piece of no bytes may be anywhere, even at NULL.
    for sge in sges.iter().filter(|sge| sge.length() > 0) {
        let source = std::ptr::with_exposed_provenance::<u8>(sge.addr() as usize);
        // SAFETY: an inline piece is readable while it lives (`Sge::from_raw`, `MemoryRegion::sge`).
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(source, sge.length() as usize)
        });
    }
    bytes
}

#[cfg(test)]
mod tests {
    use adverb_verbs::Lkey;

    use super::*;

    #[test]
    fn an_inline_piece_of_no_bytes_may_be_at_null() {
        // SAFETY: it has no bytes.
        let sge = unsafe { Sge::from_raw(0, 0, Lkey::default()) };
        assert!(gather_inline(&[sge]).is_empty());
    }

    #[test]
    fn every_length_and_alignment_is_copied_exactly() {
        let source: Vec<u8> = (0..80u8).map(|i| i.wrapping_mul(37) | 1).collect();
        for length in 0..40 {
            for (from, to) in (0..9).flat_map(|f| (0..9).map(move |t| (f, t))) {
                let mut target = [0u64; 8];
                let bytes = target.as_mut_ptr().cast::<u8>();
                // SAFETY: from + length < 80 and to + length < 64, both in bounds.
                unsafe { place(bytes.add(to), source.as_ptr().add(from), length) };
                let target: Vec<u8> = target.iter().flat_map(|w| w.to_ne_bytes()).collect();
                assert_eq!(target[to..to + length], source[from..from + length]);
                let outside = target[..to].iter().chain(&target[to + length..]);
                assert!(outside.into_iter().all(|b| *b == 0));
            }
        }
    }
}
