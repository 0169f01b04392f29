//! Memory of regions, reused from one simulation to the next.
//!
//! The system clears each page of new memory when it is first used, which takes longer than to clear used memory.

use std::cell::RefCell;

/// Shorter regions are not reused.
const SHORTEST: usize = 1 << 17;
/// Largest number of bytes that a thread keeps for reuse.
const MAX_KEPT: usize = 1 << 27;

/// The bytes of a region. They are zero at first.
pub(crate) struct Pages {
    bytes: Vec<u8>,
    /// Number of bytes up to the last one that may have changed.
    used: usize,
}

thread_local! {
    /// Bytes of former regions, each with the number of leading bytes that may not be zero.
    static KEPT: RefCell<Vec<(Vec<u8>, usize)>> = const { RefCell::new(Vec::new()) };
}

impl Pages {
    /// # Panics
    /// If the process has no memory for them.
    pub(crate) fn new(length: usize) -> Self {
        let kept = KEPT.with_borrow_mut(|kept| {
            let fits = kept.iter().position(|(bytes, _)| bytes.len() == length)?;
            Some(kept.remove(fits))
        });
        // `vec!` gets zeroed pages from the system, which cost nothing until they are used.
        let (mut bytes, used) = kept.unwrap_or_else(|| (vec![0; length], 0));
        bytes[..used].fill(0);
        Pages { bytes, used: 0 }
    }

    pub(crate) fn get(&self, offset: usize, length: usize) -> Option<&[u8]> {
        self.bytes.get(offset..offset + length)
    }

    pub(crate) fn get_mut(&mut self, offset: usize, length: usize) -> Option<&mut [u8]> {
        let bytes = self.bytes.get_mut(offset..offset + length)?;
        self.used = self.used.max(offset + length);
        Some(bytes)
    }

    /// Whether nothing has been written to the bytes from `offset` on.
    pub(crate) fn are_zero_from(&self, offset: usize) -> bool {
        self.used <= offset
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl Drop for Pages {
    /// Keeps the bytes for another region of this length, and drops those that were kept longest.
    fn drop(&mut self) {
        if !(SHORTEST..=MAX_KEPT).contains(&self.bytes.len()) {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        // While the thread ends, the list may already be destroyed.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            kept.push((bytes, self.used));
            while kept.iter().map(|(bytes, _)| bytes.len()).sum::<usize>() > MAX_KEPT {
                kept.remove(0);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_bytes_are_zero() {
        let length = SHORTEST + 1;
        for offset in [0, 7, length - 1] {
            let mut pages = Pages::new(length);
            let all = pages.get(0, length).expect("all bytes");
            assert!(all.iter().all(|byte| *byte == 0), "before {offset}");
            pages.get_mut(offset, 1).expect("a byte")[0] = 1;
        }
        assert_eq!(KEPT.with_borrow(Vec::len), 1);
    }

    #[test]
    fn few_bytes_are_kept() {
        for length in (1..9).map(|n| MAX_KEPT / 4 + n) {
            drop(Pages::new(length));
        }
        assert_eq!(KEPT.with_borrow(Vec::len), 3);
    }
}
