//! What is to happen, the earliest first; what is for the same time, in the order in which it came.
//!
//! Most of it is for the next microseconds. Time is cut into intervals, of which the next
//! thousand have a list each (a calendar queue: Brown, CACM 31(10), 1988); what comes later
//! waits in a heap. The first interval whose list had anything is open: its items are ordered by
//! a heap of their own, which is small, and so are all that come for it or before it.

use adverb_units::Time;

use crate::heap::{Heap, Key};

/// An interval is 2^13 ps = 8.2 ns, about the time between two operations of a NIC.
const INTERVAL_BITS: u32 = 13;
/// Intervals that have lists, together 8.4 us.
const LISTS: usize = 1024;
/// No node.
const NONE: u32 = u32::MAX;

/// An item and where it stands; or room for one.
#[derive(Debug)]
struct Node<T> {
    time: Time,
    /// Place in the order of coming.
    sequence: u32,
    /// The next of its list.
    next: u32,
    item: Option<T>,
}

/// A queue by time.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    nodes: Vec<Node<T>>,
    /// The first node that is free.
    free: u32,
    /// Place in the order of the next that comes.
    sequence: u32,
    /// The open interval: lists have only later ones.
    open: u64,
    /// What is in it or before it. Not empty, unless the lists are.
    near: Heap,
    lists: Lists,
    /// What was too far ahead of the open interval when it came.
    far: Heap,
}

fn interval(time: Time) -> u64 {
    time.as_ps() >> INTERVAL_BITS
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Queue {
            nodes: Vec::new(),
            free: NONE,
            sequence: 0,
            open: 0,
            near: Heap::default(),
            lists: Lists::new(),
            far: Heap::default(),
        }
    }

    /// The time of the first item.
    #[inline]
    pub(crate) fn next(&self) -> Option<Time> {
        let first = self.near.first().min(self.far.first());
        (first < Key::NEVER).then(|| first.time())
    }

    /// Adds an item, behind those of the same time.
    #[inline]
    pub(crate) fn push(&mut self, time: Time, item: T) {
        if self.sequence == u32::MAX {
            self.number_anew();
        }
        let sequence = self.sequence;
        self.sequence += 1;
        let interval = interval(time);
        let ahead = interval.saturating_sub(self.open);
        let is_listed = ahead > 0 && ahead < LISTS as u64 && !self.near.is_empty();
        let next = if is_listed {
            self.lists.head(interval)
        } else {
            NONE
        };
        let number = self.store(Node {
            time,
            sequence,
            next,
            item: Some(item),
        });
        if is_listed {
            self.lists.set(interval, number);
        } else if ahead < LISTS as u64 {
            self.open = self.open.max(interval);
            self.near.push(Key::new(time, sequence, number));
        } else {
            self.far.push(Key::new(time, sequence, number));
        }
    }

    /// Takes the first item.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Time, T)> {
        let (near, far) = (self.near.first(), self.far.first());
        let first = near.min(far);
        if near < far {
            self.near.pop();
            if self.near.is_empty() {
                self.open_next();
            }
        } else {
            self.far.pop()?;
            if self.near.is_empty() {
                self.open = interval(first.time());
            }
        }
        let node = &mut self.nodes[first.number() as usize];
        let item = node.item.take().expect("a key's item is there");
        node.next = self.free;
        self.free = first.number();
        Some((first.time(), item))
    }

    #[inline]
    fn store(&mut self, node: Node<T>) -> u32 {
        let number = self.free;
        if let Some(free) = self.nodes.get_mut(number as usize) {
            self.free = free.next;
            *free = node;
            return number;
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 items at a time")
    }

    /// Opens the next interval whose list has anything.
    #[inline]
    fn open_next(&mut self) {
        let Some(next) = self.lists.next(self.open) else {
            return;
        };
        self.open = next;
        let mut number = self.lists.take(next);
        while number != NONE {
            let node = &self.nodes[number as usize];
            self.near.push(Key::new(node.time, node.sequence, number));
            number = node.next;
        }
    }

    /// Numbers all that is there from 0 on, in the same order.
    #[cold]
    fn number_anew(&mut self) {
        let mut nodes = std::mem::replace(self, Queue::new()).nodes;
        nodes.sort_unstable_by_key(|node| (node.time, node.sequence));
        for node in nodes {
            if let Some(item) = node.item {
                self.push(node.time, item);
            }
        }
    }
}

/// The lists of intervals: the number of their first nodes.
#[derive(Debug)]
struct Lists {
    heads: Box<[u32; LISTS]>,
    /// Which are not empty.
    filled: [u64; LISTS / 64],
}

impl Lists {
    fn new() -> Self {
        Lists {
            heads: Box::new([NONE; LISTS]),
            filled: [0; LISTS / 64],
        }
    }

    #[inline]
    fn head(&self, interval: u64) -> u32 {
        self.heads[interval as usize % LISTS]
    }

    #[inline]
    fn set(&mut self, interval: u64, head: u32) {
        let place = interval as usize % LISTS;
        self.heads[place] = head;
        self.filled[place / 64] |= 1 << (place % 64);
    }

    /// Empties a list; returns its first node.
    #[inline]
    fn take(&mut self, interval: u64) -> u32 {
        let place = interval as usize % LISTS;
        self.filled[place / 64] &= !(1 << (place % 64));
        std::mem::replace(&mut self.heads[place], NONE)
    }

    /// The first interval behind `open` whose list is not empty.
    #[inline]
    fn next(&self, open: u64) -> Option<u64> {
        let from = open + 1;
        let place = from as usize % LISTS;
        let word = self.filled[place / 64] >> (place % 64);
        if word != 0 {
            return Some(from + u64::from(word.trailing_zeros()));
        }
        // The rest of this word comes last.
        let words = self.filled.len();
        let behind = (1..=words).map(|n| (n, self.filled[(place / 64 + n) % words]));
        let (n, word) = { behind }.find(|(_, word)| *word != 0)?;
        let skipped = 64 * n - place % 64;
        Some(from + skipped as u64 + u64::from(word.trailing_zeros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift64 (Marsaglia 2003).
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    /// All items, as they come.
    fn drained<T>(queue: &mut Queue<T>) -> Vec<(u64, T)> {
        let pops = std::iter::from_fn(|| queue.pop());
        pops.map(|(time, item)| (time.as_ps(), item)).collect()
    }

    /// Pushes and pops of a run, with times up to 2^`bits` ps ahead, beside a sorted list.
    fn comes_in_order(bits: u32, seed: u64) {
        let (mut queue, mut expected) = (Queue::new(), Vec::new());
        let (mut now, mut state) = (0, seed);
        for number in 0..3_000_u64 {
            for _ in 0..random(&mut state) % 3 {
                // Often the same time, and of any size.
                let size = random(&mut state) % u64::from(bits);
                let time = now + (random(&mut state) & ((1 << size) - 1));
                queue.push(Time::from_ps(time), (number, state));
                expected.push((time, (number, state)));
            }
            expected.sort_by_key(|(time, _)| *time);
            assert_eq!(queue.next().map(Time::as_ps), expected.first().map(|e| e.0));
            if let Some((time, item)) = queue.pop() {
                now = time.as_ps();
                assert_eq!((now, item), expected.remove(0));
            }
        }
        assert_eq!(drained(&mut queue), expected);
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn items_come_by_time_and_those_of_a_time_in_turn() {
        for (bits, seed) in (1..45).zip(1..) {
            comes_in_order(bits, seed);
        }
    }

    #[test]
    fn the_order_outlives_the_numbers() {
        let mut queue = Queue::new();
        queue.sequence = u32::MAX - 50;
        let times = [0, 5, 1 << 20, 1 << 40];
        for number in 0..100 {
            queue.push(Time::from_ps(times[number % 4]), number);
        }
        let expected = (0..4).flat_map(|time| {
            let numbers = (time..100).step_by(4);
            numbers.map(move |number| (times[time], number))
        });
        assert_eq!(drained(&mut queue), expected.collect::<Vec<_>>());
    }

    #[test]
    fn room_is_used_again() {
        let mut queue = Queue::new();
        for number in 0..1_000 {
            queue.push(Time::from_ps(number), number);
            queue.push(Time::from_ps(number << 20), number);
            queue.pop();
            queue.pop();
        }
        assert_eq!(queue.nodes.len(), 2);
    }
}
