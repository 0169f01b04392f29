//! Which items a connection asks for, if several workers share them.

use adverb_workload::random::Random;

/// The items of a connection's worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) worker: u64,
    workers: u64,
    /// How many there are.
    items: u64,
    /// Number of the connection among its worker's connections, and how many they are.
    rank: u64,
    ranks: u64,
}

impl Share {
    /// Returns the share of connection `number` of `connections`: the items of its worker.
    pub(super) fn new(number: u64, connections: u64, (items, workers): (u64, u64)) -> Self {
        let worker = number % workers;
        Share {
            worker,
            workers,
            items: (items - worker).div_ceil(workers),
            rank: number / workers,
            ranks: (connections - worker).div_ceil(workers),
        }
    }

    fn item(&self, number: u64) -> u64 {
        number * self.workers + self.worker
    }

    /// Returns a random item.
    pub(super) fn random(&self, random: &mut Random) -> u64 {
        self.item(random.below(self.items))
    }

    /// Returns the items that the connection PUTs at the beginning.
    pub(super) fn puts(self) -> impl Iterator<Item = u64> {
        let numbers = (self.rank..self.items).step_by(self.ranks as usize);
        numbers.map(move |number| self.item(number))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn connections_of_a_worker_put_each_of_its_items_once() {
        for (connections, items, workers) in [(1, 1, 1), (8, 7, 3), (5, 100, 4), (3, 50, 3)] {
            let shares = (0..connections).map(|n| Share::new(n, connections, (items, workers)));
            let puts: Vec<u64> = shares.clone().flat_map(Share::puts).collect();
            let all: BTreeSet<u64> = puts.iter().copied().collect();
            assert_eq!((puts.len() as u64, all.len() as u64), (items, items));
            let mut random = Random::new(1);
            for share in shares {
                let item = share.random(&mut random);
                assert!(item < items && item % workers == share.worker);
            }
        }
    }
}
