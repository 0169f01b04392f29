//! A port that loses, duplicates, reorders and corrupts some of the packets that it sends, on purpose:
//! a bad network without root, in the words of `tc-netem`. What arrives it leaves alone, so that both
//! directions suffer only if both sides are told so.

use std::time::{Duration, Instant};

use adverb_verbs::{Counters, Impairment};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::lanes::Way;

/// A packet that is reordered leaves behind so many others at most.
const FARTHEST: u64 = 3;
/// Or after so long, if fewer follow.
pub(super) const HOLD: Duration = Duration::from_millis(1);

/// A packet on a way of its own, with its ICRC.
#[derive(Debug)]
pub(super) struct Stray<W> {
    pub(super) way: W,
    pub(super) bytes: Vec<u8>,
    /// Packets that go first.
    behind: u64,
    until: Instant,
}

/// Whether a packet goes the usual way, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// It does.
    Usual,
    /// It does not.
    None,
}

/// A port's impairment at work.
#[derive(Debug)]
pub(super) struct Impaired<W = Way> {
    how: Impairment,
    random: ChaCha8Rng,
    strays: Vec<Stray<W>>,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
}

impl<W: Clone> Impaired<W> {
    pub(super) fn new(how: Impairment) -> Self {
        Impaired {
            how,
            random: ChaCha8Rng::seed_from_u64(how.seed),
            strays: Vec::new(),
            lost: 0,
            duplicated: 0,
            reordered: 0,
            corrupted: 0,
        }
    }

    /// Decides what becomes of the next packet, which `sealed` makes as it would leave alone.
    pub(super) fn meet(&mut self, way: &W, sealed: impl Fn() -> Vec<u8>) -> Passage {
        // One number for each, so that the others stay as they are where one probability changes.
        let [loss, duplicate, reorder, corrupt] = [(); 4].map(|()| self.random.next_u64());
        if self.how.loss.happens(loss) {
            self.lost += 1;
            return Passage::None;
        }
        self.strays
            .iter_mut()
            .for_each(|stray| stray.behind = stray.behind.saturating_sub(1));
        if self.how.duplicate.happens(duplicate) {
            self.duplicated += 1;
            self.stray(way, sealed(), 0);
        }
        let (reorders, corrupts) = (
            self.how.reorder.happens(reorder),
            self.how.corrupt.happens(corrupt),
        );
        if !reorders && !corrupts {
            return Passage::Usual;
        }
        let mut bytes = sealed();
        if corrupts {
            self.corrupted += 1;
            let bit = below(&mut self.random, 8 * bytes.len() as u64) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let mut behind = 0;
        if reorders {
            self.reordered += 1;
            behind = 1 + below(&mut self.random, FARTHEST);
        }
        self.stray(way, bytes, behind);
        Passage::None
    }

    fn stray(&mut self, way: &W, bytes: Vec<u8>, behind: u64) {
        let until = Instant::now() + HOLD;
        self.strays.push(Stray {
            way: way.clone(),
            bytes,
            behind,
            until,
        });
    }

    /// Whether packets wait.
    pub(super) fn holds(&self) -> bool {
        !self.strays.is_empty()
    }

    /// Whether one that waits has only its own turn to wait for.
    pub(super) fn is_due(&self) -> bool {
        self.strays.iter().any(|stray| stray.behind == 0)
    }

    /// Gives those that are due to `send`, which says whether they left.
    pub(super) fn release(&mut self, mut send: impl FnMut(&Stray<W>) -> bool) {
        let now = Instant::now();
        let is_due = |stray: &Stray<W>| stray.behind == 0 || stray.until <= now;
        self.strays.retain(|stray| !is_due(stray) || !send(stray));
    }

    pub(super) fn counters(&self) -> Counters {
        [
            ("impaired_lost_pkts", self.lost),
            ("impaired_duplicated_pkts", self.duplicated),
            ("impaired_reordered_pkts", self.reordered),
            ("impaired_corrupted_pkts", self.corrupted),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .into()
    }
}

/// A number below `bound`, uniformly (to within 2^-64 × bound).
fn below(random: &mut ChaCha8Rng, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use adverb_verbs::Probability;

    use super::*;

    const PACKETS: usize = 10_000;

    /// What became of so many packets, each of its number's bytes: the order in which they leave.
    fn pass(how: Impairment) -> (Vec<Vec<u8>>, Counters) {
        let mut impaired = Impaired::new(how);
        let mut left = Vec::new();
        for n in 0..PACKETS {
            let packet = || n.to_be_bytes().to_vec();
            if impaired.meet(&(), packet) == Passage::Usual {
                left.push(packet());
            }
            impaired.release(|stray| {
                left.push(stray.bytes.clone());
                true
            });
        }
        std::thread::sleep(HOLD);
        impaired.release(|stray| {
            left.push(stray.bytes.clone());
            true
        });
        (left, impaired.counters())
    }

    fn one_percent(change: impl Fn(&mut Impairment, Probability)) -> Impairment {
        let mut how = Impairment {
            seed: 1,
            ..Impairment::default()
        };
        change(&mut how, Probability::per_million(10_000));
        how
    }

    #[track_caller]
    fn about_a_hundred(counters: &Counters, name: &str) -> usize {
        let count = counters[name];
        // Five standard deviations.
        assert!((50..=150).contains(&count), "{name}: {count}");
        count as usize
    }

    #[test]
    fn nothing_happens_to_packets_that_are_let_alone() {
        let (left, counters) = pass(one_percent(|_, _| {}));
        let all: Vec<_> = (0..PACKETS).map(|n| n.to_be_bytes().to_vec()).collect();
        assert_eq!(left, all);
        assert!(counters.values().all(|count| *count == 0));
    }

    #[test]
    fn as_many_are_lost_and_duplicated_as_was_asked() {
        let (left, counters) = pass(one_percent(|how, p| how.loss = p));
        let lost = about_a_hundred(&counters, "impaired_lost_pkts");
        assert_eq!(left.len(), PACKETS - lost);
        let (left, counters) = pass(one_percent(|how, p| how.duplicate = p));
        let duplicated = about_a_hundred(&counters, "impaired_duplicated_pkts");
        assert_eq!(left.len(), PACKETS + duplicated);
        assert!(left.is_sorted());
    }

    #[test]
    fn reordered_ones_come_a_little_later_and_corrupt_ones_differ_in_a_bit() {
        let (mut left, counters) = pass(one_percent(|how, p| how.reorder = p));
        about_a_hundred(&counters, "impaired_reordered_pkts");
        assert!(!left.is_sorted());
        let number = |packet: &[u8]| usize::from_be_bytes(packet.try_into().unwrap());
        let moved = left.iter().enumerate();
        let farthest = moved
            .map(|(place, packet)| place.abs_diff(number(packet)))
            .max();
        assert!(farthest <= Some(2 * FARTHEST as usize), "{farthest:?}");
        left.sort();
        assert_eq!(left.len(), pass(Impairment::default()).0.len());

        let (left, counters) = pass(one_percent(|how, p| how.corrupt = p));
        let corrupted = about_a_hundred(&counters, "impaired_corrupted_pkts");
        let changed = left
            .iter()
            .enumerate()
            .filter(|(n, packet)| number(packet) != *n);
        let bits: Vec<u32> = changed
            .map(|(n, packet)| (number(packet) ^ n).count_ones())
            .collect();
        assert_eq!(bits, vec![1; corrupted]);
    }

    #[test]
    fn a_seed_meets_the_same_packets_again() {
        let how = |seed| Impairment {
            seed,
            ..one_percent(|how, p| (how.loss, how.duplicate, how.corrupt) = (p, p, p))
        };
        assert_eq!(pass(how(7)).0, pass(how(7)).0);
        assert_ne!(pass(how(7)).0, pass(how(8)).0);
    }
}
