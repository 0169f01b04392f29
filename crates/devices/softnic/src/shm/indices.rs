//! Allocates indices of table entries.

use std::ops::Range;

/// Allocates the numbers of a range, the least recently used first.
#[derive(Debug)]
pub(crate) struct Indices {
    range: Range<u32>,
    /// The first number allocated, as an offset in the range.
    offset: u32,
    /// How many numbers have been allocated at least once.
    fresh: u32,
    free: std::collections::VecDeque<u32>,
}

impl Indices {
    pub(crate) fn new(range: Range<u32>) -> Self {
        Indices::beginning_at(range, 0)
    }

    /// The first number allocated is the one at `offset`, modulo the length of the range.
    pub(crate) fn beginning_at(range: Range<u32>, offset: u64) -> Self {
        let count = u64::from(range.end - range.start);
        Indices {
            // Less than a `u32`.
            offset: (offset % count) as u32,
            range,
            fresh: 0,
            free: Default::default(),
        }
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        let count = self.range.end - self.range.start;
        if self.fresh == count {
            return self.free.pop_front();
        }
        let index = self.range.start + (self.offset + self.fresh) % count;
        self.fresh += 1;
        Some(index)
    }

    pub(crate) fn give(&mut self, index: u32) {
        self.free.push_back(index);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_a_range_is_allocated_once() {
        for offset in [0, 3, 5, u64::MAX] {
            let mut indices = Indices::beginning_at(2..7, offset);
            let mut given: Vec<u32> = std::iter::from_fn(|| indices.take()).collect();
            assert_eq!(u64::from(given[0]), 2 + offset % 5);
            indices.give(4);
            assert_eq!((indices.take(), indices.take()), (Some(4), None));
            given.sort_unstable();
            assert_eq!(given, [2, 3, 4, 5, 6]);
        }
    }
}
