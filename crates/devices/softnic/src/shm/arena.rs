//! Allocates receive rings within the port file: first fit in a list of free extents.

use std::ops::Range;

/// Allocation granule: a page, so that rings of different queue pairs share neither a cache line nor a page.
const GRANULE: u64 = 4096;

/// Free extents of a range of file offsets, in order. No two are adjacent.
#[derive(Debug)]
pub(crate) struct Arena {
    free: Vec<Range<u64>>,
}

impl Arena {
    /// Makes an arena in which all of `range` is free. Both ends are multiples of the granule.
    pub(crate) fn new(range: Range<u64>) -> Self {
        debug_assert!(range.start.is_multiple_of(GRANULE) && range.end.is_multiple_of(GRANULE));
        Arena { free: vec![range] }
    }

    /// Allocates at least `length` bytes. `None` if no extent is long enough.
    pub(crate) fn take(&mut self, length: u64) -> Option<Range<u64>> {
        let length = length.next_multiple_of(GRANULE);
        let i = self
            .free
            .iter()
            .position(|extent| extent.end - extent.start >= length)?;
        let extent = &mut self.free[i];
        let taken = extent.start..extent.start + length;
        extent.start = taken.end;
        if extent.is_empty() {
            self.free.remove(i);
        }
        Some(taken)
    }

    /// Frees a range that [`Arena::take`] returned.
    pub(crate) fn give(&mut self, range: Range<u64>) {
        let i = self
            .free
            .partition_point(|extent| extent.start < range.start);
        self.free.insert(i, range);
        let touches = |free: &[Range<u64>], i: usize| free[i].end == free[i + 1].start;
        if i + 1 < self.free.len() && touches(&self.free, i) {
            self.free[i].end = self.free.remove(i + 1).end;
        }
        if i > 0 && touches(&self.free, i - 1) {
            self.free[i - 1].end = self.free.remove(i).end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn extents_never_overlap_and_are_all_freed(sizes in prop::collection::vec(1u64..40_000, 1..60)) {
            let whole = 0..1 << 20;
            let mut arena = Arena::new(whole.clone());
            let mut held: Vec<Range<u64>> = Vec::new();
            for (i, size) in sizes.into_iter().enumerate() {
                if let Some(range) = arena.take(size) {
                    prop_assert!(range.end - range.start >= size && range.end <= whole.end);
                    prop_assert!(held.iter().all(|h| h.end <= range.start || range.end <= h.start));
                    held.push(range);
                }
                if i % 3 == 2 && !held.is_empty() {
                    arena.give(held.swap_remove(i % held.len()));
                }
            }
            held.into_iter().for_each(|range| arena.give(range));
            prop_assert_eq!(arena.free, vec![whole]);
        }
    }
}
