//! The event queue, ordered by time; first in, first out among entries of the same time.
//!
//! A calendar queue (Brown, CACM 1988): entries of the next microseconds wait unordered in buckets, one for each
//! short interval, and are sorted when their bucket is next. The few entries that are later wait in a heap.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::iter;

use adverb_units::Time;

/// The interval of a bucket, as a power of two of picoseconds, and the number of buckets.
const BUCKET_BITS: u32 = 14;
const BUCKETS: u64 = 512;
const WORD: u64 = u64::BITS as u64;

/// An item; its number breaks ties.
#[derive(Debug)]
struct Entry<T> {
    time: Time,
    number: u64,
    item: T,
}

impl<T> Entry<T> {
    #[inline]
    fn key(&self) -> u128 {
        u128::from(self.time.as_ps()) << 64 | u128::from(self.number)
    }

    #[inline]
    fn interval(&self) -> u64 {
        self.time.as_ps() >> BUCKET_BITS
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// A queue ordered by time.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// Entries of the interval `current` and of those before, the latest first. Empty only if all buckets are.
    near: Vec<Entry<T>>,
    current: u64,
    /// Entries of the intervals after `current`.
    buckets: Box<[Vec<Entry<T>>]>,
    /// A bit for each bucket that is not empty.
    used: [u64; (BUCKETS / WORD) as usize],
    /// Entries that are too late for the buckets.
    far: BinaryHeap<Reverse<Entry<T>>>,
    /// Entries so far.
    numbers: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue {
            near: Vec::new(),
            current: 0,
            buckets: iter::repeat_with(Vec::new).take(BUCKETS as usize).collect(),
            used: [0; (BUCKETS / WORD) as usize],
            far: BinaryHeap::new(),
            numbers: 0,
        }
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        let near = self.near.last();
        near.or_else(|| Some(&self.far.peek()?.0))
            .map(|entry| entry.time)
    }

    /// Adds an item, after all items of the same time.
    #[inline]
    pub(crate) fn push(&mut self, time: Time, item: T) {
        let number = self.numbers;
        self.numbers += 1;
        let entry = Entry { time, number, item };
        let interval = entry.interval();
        // A distant entry waits in the heap: if the buckets began with it, all that come before it would be
        // inserted into `near`.
        if self.near.is_empty() && interval < self.current + BUCKETS {
            self.begin(interval);
        }
        self.enter(entry);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Time, T)> {
        if self.near.is_empty() {
            let far = self.far.peek()?.0.interval();
            self.begin(far);
        }
        let Entry { time, item, .. } = self.near.pop()?;
        if self.near.is_empty() {
            self.advance();
        }
        Some((time, item))
    }

    /// Puts an entry where it belongs.
    #[inline(always)]
    fn enter(&mut self, entry: Entry<T>) {
        let interval = entry.interval();
        if interval <= self.current {
            let later = self.near.iter().rposition(|near| *near > entry);
            self.near.insert(later.map_or(0, |place| place + 1), entry);
        } else if interval - self.current < BUCKETS {
            let bucket = interval % BUCKETS;
            self.buckets[bucket as usize].push(entry);
            self.used[(bucket / WORD) as usize] |= 1 << (bucket % WORD);
        } else {
            self.far.push(Reverse(entry));
        }
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
            std::mem::swap(&mut self.near, &mut self.buckets[bucket as usize]);
            if self.near.len() > 1 {
                self.near.sort_unstable_by(|one, other| other.cmp(one));
            }
            return self.begin(self.current + 1 + bucket.wrapping_sub(first) % BUCKETS);
        }
    }

    /// Begins an interval: the buckets cover the ones after it.
    #[inline]
    fn begin(&mut self, interval: u64) {
        self.current = interval;
        let is_covered = |far: &Reverse<Entry<T>>| far.0.interval() < interval + BUCKETS;
        while self.far.peek().is_some_and(is_covered) {
            self.approach();
        }
    }

    /// The buckets cover the first entry of the heap now.
    #[cold]
    fn approach(&mut self) {
        if let Some(Reverse(entry)) = self.far.pop() {
            self.enter(entry);
        }
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

    /// Otherwise each entry before the distant one would be inserted into a sorted list of all of them.
    #[test]
    fn entries_before_a_distant_one_wait_in_buckets() {
        let mut queue = Queue::new();
        queue.push(Time::from_ps(1 << 40), 0);
        for number in 1..1_000 {
            queue.push(Time::from_ps(number << BUCKET_BITS), number);
        }
        assert_eq!(queue.near.len(), 1);
        let popped = std::iter::from_fn(|| queue.pop()).map(|(_, item)| item);
        assert!(popped.eq((1..1_000).chain([0])));
    }
}
