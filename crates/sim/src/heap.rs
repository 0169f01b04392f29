//! A heap of keys, four children a node: the four of them share a cache line.

use adverb_units::Time;

/// Children of a node.
const ARITY: usize = 4;

/// Time, place in the order of coming, and a number that goes with them: 64, 32 and 32 bits, so that one
/// comparison orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u128);

impl Key {
    /// Behind all others.
    pub(crate) const NEVER: Key = Key(u128::MAX);

    #[inline]
    pub(crate) fn new(time: Time, sequence: u32, number: u32) -> Self {
        Key(u128::from(time.as_ps()) << 64 | u128::from(sequence) << 32 | u128::from(number))
    }

    #[inline]
    pub(crate) fn time(self) -> Time {
        Time::from_ps((self.0 >> 64) as u64)
    }

    #[inline]
    pub(crate) fn number(self) -> u32 {
        self.0 as u32
    }
}

/// Keys, the least first.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    /// None is less than its parent, that at `(index - 1) / ARITY`.
    keys: Vec<Key>,
}

impl Heap {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The least; [`Key::NEVER`] where there is none.
    #[inline]
    pub(crate) fn first(&self) -> Key {
        self.keys.first().copied().unwrap_or(Key::NEVER)
    }

    #[inline]
    pub(crate) fn push(&mut self, key: Key) {
        self.keys.push(key);
        let keys = &mut self.keys[..];
        let mut place = keys.len() - 1;
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if keys[parent] < key {
                break;
            }
            keys[place] = keys[parent];
            place = parent;
        }
        keys[place] = key;
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Key> {
        let last = self.keys.pop()?;
        if self.is_empty() {
            return Some(last);
        }
        let first = self.keys[0];
        self.sink(last);
        Some(first)
    }

    /// Puts `key`, for which there is room at the root, where it belongs.
    fn sink(&mut self, key: Key) {
        let keys = &mut self.keys[..];
        let mut place = 0;
        loop {
            let first = place * ARITY + 1;
            let children = keys.get(first..).unwrap_or_default();
            let Some((least, child)) = least(&children[..children.len().min(ARITY)]) else {
                break;
            };
            if key < child {
                break;
            }
            keys[place] = child;
            place = first + least;
        }
        keys[place] = key;
    }
}

/// The least of a node's children.
#[inline]
fn least(children: &[Key]) -> Option<(usize, Key)> {
    let less = |(a, x): (usize, Key), (b, y): (usize, Key)| if y < x { (b, y) } else { (a, x) };
    if let [a, b, c, d] = *children {
        return Some(less(less((0, a), (1, b)), less((2, c), (3, d))));
    }
    children.iter().copied().enumerate().reduce(less)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_their_order() {
        let mut heap = Heap::default();
        let mut expected = Vec::new();
        for number in 0..5_000_u32 {
            let key = Key::new(
                Time::from_ps((number.wrapping_mul(2_654_435_761) >> 22).into()),
                number,
                number,
            );
            heap.push(key);
            expected.push(key);
            if number % 3 == 0 {
                expected.sort_unstable();
                assert_eq!(heap.pop(), Some(expected.remove(0)));
            }
        }
        expected.sort_unstable();
        let rest: Vec<Key> = std::iter::from_fn(|| heap.pop()).collect();
        assert_eq!(rest, expected);
    }
}
