//! The event queue: a heap ordered by time, first in, first out among entries of the same time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use adverb_units::Time;

/// An item and its position in the order.
#[derive(Debug)]
struct Entry<T> {
    time: Time,
    /// Counts the entries added so far: breaks ties.
    sequence: u64,
    item: T,
}

impl<T> Ord for Entry<T> {
    /// Reverses the order: `BinaryHeap` pops the greatest entry, which must be the earliest.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.sequence).cmp(&(self.time, self.sequence))
    }
}

impl<T> PartialOrd for Entry<T> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

/// A queue ordered by time.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Entry<T>>,
    sequence: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue {
            heap: BinaryHeap::new(),
            sequence: 0,
        }
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.time)
    }

    /// Adds an item, after all items of the same time.
    #[inline]
    pub(crate) fn push(&mut self, time: Time, item: T) {
        let sequence = self.sequence;
        self.sequence += 1;
        self.heap.push(Entry {
            time,
            sequence,
            item,
        });
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Time, T)> {
        self.heap.pop().map(|entry| (entry.time, entry.item))
    }
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
