//! The event queue, ordered by time; first in, first out among entries of the same time.
//!
//! A calendar queue (Brown, CACM 1988): entries of the next microseconds wait unordered in buckets, one for each
//! short interval, and are sorted when their bucket is next. The few entries that are later wait in a heap. Keys of
//! 16 B are compared and moved; the items stay in slots.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use adverb_units::Time;

/// Bits of a key: time (64), number of the entry (40), slot (24). The number breaks ties.
const SLOT_BITS: u32 = 24;
const NUMBER_BITS: u32 = 40;
/// The interval of a bucket, as a power of two of picoseconds, and the number of buckets.
const BUCKET_BITS: u32 = 14;
const BUCKETS: u64 = 512;
const WORD: u64 = u64::BITS as u64;
/// No slot.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Slot<T> {
    key: u128,
    /// The next slot of its bucket.
    next: u32,
    item: Option<T>,
}

/// A queue ordered by time.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// Keys of the interval `current` and of those before, the latest first. Empty only if all buckets are.
    near: Vec<u128>,
    current: u64,
    /// The first slot of each bucket. They cover the intervals after `current`.
    buckets: [u32; BUCKETS as usize],
    /// A bit for each bucket that is not empty.
    used: [u64; (BUCKETS / WORD) as usize],
    /// Keys of intervals that were too late for the buckets.
    far: BinaryHeap<Reverse<u128>>,
    /// Entries so far.
    numbers: u64,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue {
            near: Vec::new(),
            current: 0,
            buckets: [NONE; BUCKETS as usize],
            used: [0; (BUCKETS / WORD) as usize],
            far: BinaryHeap::new(),
            numbers: 0,
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        let near = self.near.last().copied();
        let far = self.far.peek().map(|key| key.0);
        let first = match (near, far) {
            (Some(near), Some(far)) => near.min(far),
            (near, far) => near.or(far)?,
        };
        Some(time_of(first))
    }

    /// Adds an item, after all items of the same time.
    ///
    /// # Panics
    /// If there are more items at a time, or more altogether, than a key has bits for.
    #[inline]
    pub(crate) fn push(&mut self, time: Time, item: T) {
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        assert!(slot >> SLOT_BITS == 0 && self.numbers >> NUMBER_BITS == 0);
        let order = self.numbers << SLOT_BITS | u64::from(slot);
        self.numbers += 1;
        let key = u128::from(time.as_ps()) << 64 | u128::from(order);
        let interval = interval_of(key);
        let mut next = NONE;
        if interval <= self.current {
            let later = self.near.iter().rposition(|near| *near > key);
            self.near.insert(later.map_or(0, |place| place + 1), key);
        } else if interval - self.current >= BUCKETS {
            self.far.push(Reverse(key));
        } else if self.near.is_empty() {
            self.current = interval;
            self.near.push(key);
        } else {
            let bucket = interval % BUCKETS;
            next = std::mem::replace(&mut self.buckets[bucket as usize], slot);
            self.used[(bucket / WORD) as usize] |= 1 << (bucket % WORD);
        }
        let item = Some(item);
        if slot as usize == self.slots.len() {
            self.slots.push(Slot { key, next, item });
        } else {
            self.slots[slot as usize] = Slot { key, next, item };
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Time, T)> {
        let near = self.near.last().copied();
        let far = self.far.peek().map(|key| key.0);
        let key = match (near, far) {
            (Some(near), far) if far.is_none_or(|far| near < far) => {
                self.near.pop();
                if self.near.is_empty() {
                    self.advance();
                }
                near
            }
            _ => {
                let Reverse(far) = self.far.pop()?;
                if self.near.is_empty() {
                    self.current = interval_of(far);
                }
                far
            }
        };
        let slot = key as u32 & ((1 << SLOT_BITS) - 1);
        self.free.push(slot);
        let item = self.slots[slot as usize].item.take();
        Some((
            time_of(key),
            item.expect("an entry in the queue has an item"),
        ))
    }

    /// Sorts the entries of the next bucket that is not empty, if there is one.
    #[inline]
    fn advance(&mut self) {
        let first = (self.current + 1) % BUCKETS;
        let words = self.used.len();
        for step in 0..=words {
            let word = ((first / WORD) as usize + step) % words;
            let mut bits = self.used[word];
            if step == 0 {
                bits &= u64::MAX << (first % WORD);
            }
            if bits == 0 {
                continue;
            }
            let bucket = word as u64 * WORD + u64::from(bits.trailing_zeros());
            self.used[word] &= !(1 << (bucket % WORD));
            self.current += 1 + (bucket.wrapping_sub(first)) % BUCKETS;
            let mut slot = std::mem::replace(&mut self.buckets[bucket as usize], NONE);
            while let Some(entry) = self.slots.get(slot as usize) {
                self.near.push(entry.key);
                slot = entry.next;
            }
            if self.near.len() > 1 {
                self.near.sort_unstable_by_key(|key| Reverse(*key));
            }
            return;
        }
    }
}

fn time_of(key: u128) -> Time {
    Time::from_ps((key >> 64) as u64)
}

fn interval_of(key: u128) -> u64 {
    (key >> 64) as u64 >> BUCKET_BITS
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

    /// Entries of the same interval, of other buckets, and later than all buckets, pushed while others are popped.
    #[test]
    fn agrees_with_an_ordered_map_at_all_distances() {
        let mut queue = Queue::new();
        let mut expected = std::collections::BTreeMap::new();
        let (mut random, mut now) = (1_u64, 0);
        for number in 0..100_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let distance = (random >> 20) >> (random >> 58);
            // The queue is empty now and then.
            let is_filling = number / 100 % 3 != 2;
            if is_filling {
                queue.push(Time::from_ps(now + distance), number);
                expected.insert((now + distance, number), ());
            }
            if !is_filling || random % 5 < 2 {
                let first = expected.pop_first().map(|(first, ())| first);
                assert_eq!(queue.next().map(Time::as_ps), first.map(|first| first.0));
                let popped = queue.pop().map(|(time, item)| (time.as_ps(), item));
                assert_eq!(popped, first);
                now = first.map_or(now, |first| first.0);
            }
        }
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), expected.len());
    }
}
