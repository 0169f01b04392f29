//! Checks in constant memory that numbers were handed out exactly once.

use std::ops::Range;

use adverb_workload::random::mix;
use serde::{Deserialize, Serialize};

/// A set of numbers, as a hash that does not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberSet {
    /// Number of them.
    pub count: u64,
    digest: u64,
}

impl NumberSet {
    /// Returns all numbers of a range, each once.
    pub fn all(numbers: Range<u64>) -> Self {
        let mut all = NumberSet::default();
        numbers.for_each(|number| all.add(number));
        all
    }

    /// Adds a number.
    #[inline]
    pub fn add(&mut self, number: u64) {
        self.count += 1;
        self.digest = self.digest.wrapping_add(mix(number));
    }

    /// Adds the numbers of another set.
    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.digest = self.digest.wrapping_add(other.digest);
    }

    /// Whether these are consecutive numbers from `first` on, each once. A number that occurs twice and
    /// one that is missing hide each other with a probability of 2^-64.
    pub fn is_exactly_once_from(&self, first: u64) -> bool {
        *self == NumberSet::all(first..first.wrapping_add(self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_twice_and_one_never_are_noticed() {
        let of = |numbers: &[u64]| {
            let mut handed = NumberSet::default();
            numbers.iter().for_each(|number| handed.add(*number));
            handed
        };
        assert!(of(&[]).is_exactly_once_from(0));
        let mut halves = of(&[3, 1]);
        halves.merge(of(&[0, 2]));
        assert!(halves.is_exactly_once_from(0));
        assert!(!of(&[0, 1, 1, 3]).is_exactly_once_from(0));
        assert!(!of(&[0, 0, 3, 3]).is_exactly_once_from(0));
        assert!(!of(&[1, 2, 3]).is_exactly_once_from(0));
    }
}
