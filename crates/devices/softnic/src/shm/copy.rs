//! Copies payload: into shared memory, and inline payload out of the program's memory.
//!
//! The last bytes become visible last. Programs that poll memory for a message (`ib_write_lat`) rely on that, and every
//! NIC does so in practice. On x86, stores become visible in program order; elsewhere the release store orders them.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use adverb_verbs::Sge;

/// Returns how many bytes of a message of `length` bytes to the address `target` become visible last, and at once: those
/// that an aligned word of up to 8 B contains, so that no word of a message of whole words is torn. At least 1.
#[inline]
pub(crate) fn last_piece(target: usize, length: usize) -> usize {
    let end = target.wrapping_add(length);
    let (aligned, fits) = (end.trailing_zeros(), length.max(1).ilog2());
    1 << aligned.min(fits).min(3)
}

/// Copies `length` bytes from `source` to `target`; the last piece becomes visible last.
///
/// # Safety
/// Both ranges are mapped during the whole call, `source` readable and `target` writable. If other processes write
/// them at the same time, the result is an arbitrary mixture of bytes, as with a NIC.
#[inline]
pub(crate) unsafe fn place(target: *mut u8, source: *const u8, length: usize) {
    let last = match length {
        0 => return,
        // The usual short message.
        8 if target.addr().is_multiple_of(8) => 8,
        _ => last_piece(target.addr(), length),
    };
    let rest = length - last;
    macro_rules! copy_with_last {
        ($atomic:ty, $word:ty) => {{
            // The ranges may overlap, so the last piece is read before the others are written.
            let word = source.add(rest).cast::<$word>().read_unaligned();
            if rest > 0 {
                std::ptr::copy(source, target, rest);
            }
            (*target.add(rest).cast::<$atomic>()).store(word, Ordering::Release);
        }};
    }
    // SAFETY: the caller promises that both ranges are mapped. The last piece is aligned to its length, because
    // it ends at a multiple of it.
    unsafe {
        match last {
            8 => copy_with_last!(AtomicU64, u64),
            4 => copy_with_last!(AtomicU32, u32),
            2 => copy_with_last!(AtomicU16, u16),
            _ => copy_with_last!(AtomicU8, u8),
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
    fn the_last_piece_is_an_aligned_word_or_the_part_of_one_that_the_message_has() {
        for length in 1..80 {
            for target in 0..16 {
                let piece = last_piece(target, length);
                let is_aligned = |piece| (target + length).is_multiple_of(piece) && piece <= length;
                let longest = [8, 4, 2, 1].into_iter().find(|piece| is_aligned(*piece));
                assert_eq!(Some(piece), longest, "{length} B to {target}");
            }
        }
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
