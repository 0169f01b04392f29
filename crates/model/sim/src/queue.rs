//! The event queue: a heap ordered by time, first in, first out among entries of the same time.
//!
//! The heap contains only keys of 16 B, which are compared at once and quickly moved; the items stay in slots.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use adverb_units::Time;

/// Bits of a key: time (64), number of the entry (40), slot (24). The number breaks ties.
const SLOT_BITS: u32 = 24;
const NUMBER_BITS: u32 = 40;

/// A queue ordered by time.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Reverse<u128>>,
    /// Entries so far.
    numbers: u64,
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue {
            heap: BinaryHeap::new(),
            numbers: 0,
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|key| time_of(key.0))
    }

    /// Adds an item, after all items of the same time.
    ///
    /// # Panics
    /// If there are more items at a time, or more altogether, than a key has bits for.
    #[inline]
    pub(crate) fn push(&mut self, time: Time, item: T) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        assert!(slot >> SLOT_BITS == 0 && self.numbers >> NUMBER_BITS == 0);
        self.slots[slot as usize] = Some(item);
        let order = self.numbers << SLOT_BITS | u64::from(slot);
        self.numbers += 1;
        let key = u128::from(time.as_ps()) << 64 | u128::from(order);
        self.heap.push(Reverse(key));
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Time, T)> {
        let Reverse(key) = self.heap.pop()?;
        let slot = key as u32 & ((1 << SLOT_BITS) - 1);
        self.free.push(slot);
        let item = self.slots[slot as usize].take();
        Some((
            time_of(key),
            item.expect("an entry in the heap has an item"),
        ))
    }
}

fn time_of(key: u128) -> Time {
    Time::from_ps((key >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pops_by_time_and_first_in_first_out_at_the_same_time() {
        let mut queue = Queue::new();
        for number in 0..1_000_u64 {
            queue.push(Time::from_ps(number * 7919 % 40), number);
        }
        assert_eq!(queue.next(), Some(Time::ZERO));
        let popped = std::iter::from_fn(|| queue.pop()).map(|(time, item)| (time.as_ps(), item));
        let popped: Vec<(u64, u64)> = popped.collect();
        let mut expected: Vec<(u64, u64)> = (0..1_000).map(|n| (n * 7919 % 40, n)).collect();
        expected.sort_unstable();
        assert_eq!(popped, expected);
        assert_eq!(queue.next(), None);
    }
}
