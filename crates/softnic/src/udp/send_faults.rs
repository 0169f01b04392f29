//! Fault injection on sent packets: drops, duplicates, reorders and corrupts a share of them, as `tc-netem`
//! does, without root. Received packets are not affected: for faults in both directions, both sides inject them.

use std::time::{Duration, Instant};

use adverb_verbs::{Counters, Impairment};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::peer_sockets::Route;

/// Maximum number of packets that overtake a reordered one.
const FARTHEST: u64 = 3;
/// Maximum delay of a reordered packet, if fewer packets follow.
pub(super) const HOLD: Duration = Duration::from_millis(1);

/// A packet that is sent by itself, with its ICRC: a duplicated, reordered or corrupted one.
#[derive(Debug)]
pub(super) struct Delayed<W> {
    pub(super) route: W,
    pub(super) bytes: Vec<u8>,
    /// Number of packets that still overtake it.
    behind: u64,
    until: Instant,
}

/// Whether the packet itself is sent unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is.
    Send,
    /// It is dropped, or replaced by a delayed one.
    Drop,
}

/// Injects the faults of an [`Impairment`].
#[derive(Debug)]
pub(super) struct SendFaults<W = Route> {
    how: Impairment,
    random: ChaCha8Rng,
    delayed: Vec<Delayed<W>>,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
}

impl<W: Clone> SendFaults<W> {
    pub(super) fn new(how: Impairment) -> Self {
        SendFaults {
            how,
            random: ChaCha8Rng::seed_from_u64(how.seed),
            delayed: Vec::new(),
            lost: 0,
            duplicated: 0,
            reordered: 0,
            corrupted: 0,
        }
    }

    /// Decides the fate of the next packet. `sealed` returns it as it is if sent alone, with its ICRC.
    pub(super) fn judge(&mut self, route: &W, sealed: impl Fn() -> Vec<u8>) -> Verdict {
        // A random number for each kind of fault: changing one probability does not change the others' packets.
        let [loss, duplicate, reorder, corrupt] = [(); 4].map(|()| self.random.next_u64());
        if self.how.loss.happens(loss) {
            self.lost += 1;
            return Verdict::Drop;
        }
        self.delayed
            .iter_mut()
            .for_each(|delayed| delayed.behind = delayed.behind.saturating_sub(1));
        if self.how.duplicate.happens(duplicate) {
            self.duplicated += 1;
            self.delay(route, sealed(), 0);
        }
        let (reorders, corrupts) = (
            self.how.reorder.happens(reorder),
            self.how.corrupt.happens(corrupt),
        );
        if !reorders && !corrupts {
            return Verdict::Send;
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
        self.delay(route, bytes, behind);
        Verdict::Drop
    }

    fn delay(&mut self, route: &W, bytes: Vec<u8>, behind: u64) {
        let until = Instant::now() + HOLD;
        self.delayed.push(Delayed {
            route: route.clone(),
            bytes,
            behind,
            until,
        });
    }

    /// Whether packets are delayed.
    pub(super) fn holds(&self) -> bool {
        !self.delayed.is_empty()
    }

    /// Whether a delayed packet is to be sent now.
    pub(super) fn is_due(&self) -> bool {
        self.delayed.iter().any(|delayed| delayed.behind == 0)
    }

    /// Passes the due packets to `send`, which returns false if one could not be sent.
    pub(super) fn release(&mut self, mut send: impl FnMut(&Delayed<W>) -> bool) {
        let now = Instant::now();
        let is_due = |delayed: &Delayed<W>| delayed.behind == 0 || delayed.until <= now;
        self.delayed
            .retain(|delayed| !is_due(delayed) || !send(delayed));
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

/// Returns a random number below `bound`, uniform up to an error of 2^-64 × bound.
fn below(random: &mut ChaCha8Rng, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use adverb_verbs::Probability;

    use super::*;

    const PACKETS: usize = 10_000;

    /// Passes `PACKETS` packets, whose contents are their numbers; returns them in the order in which they are sent.
    fn pass(how: Impairment) -> (Vec<Vec<u8>>, Counters) {
        let mut impaired = SendFaults::new(how);
        let mut left = Vec::new();
        for n in 0..PACKETS {
            let packet = || n.to_be_bytes().to_vec();
            if impaired.judge(&(), packet) == Verdict::Send {
                left.push(packet());
            }
            impaired.release(|delayed| {
                left.push(delayed.bytes.clone());
                true
            });
        }
        std::thread::sleep(HOLD);
        impaired.release(|delayed| {
            left.push(delayed.bytes.clone());
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
    fn without_faults_packets_pass_unchanged() {
        let (left, counters) = pass(one_percent(|_, _| {}));
        let all: Vec<_> = (0..PACKETS).map(|n| n.to_be_bytes().to_vec()).collect();
        assert_eq!(left, all);
        assert!(counters.values().all(|count| *count == 0));
    }

    #[test]
    fn loss_and_duplication_have_the_requested_rates() {
        let (left, counters) = pass(one_percent(|how, p| how.loss = p));
        let lost = about_a_hundred(&counters, "impaired_lost_pkts");
        assert_eq!(left.len(), PACKETS - lost);
        let (left, counters) = pass(one_percent(|how, p| how.duplicate = p));
        let duplicated = about_a_hundred(&counters, "impaired_duplicated_pkts");
        assert_eq!(left.len(), PACKETS + duplicated);
        assert!(left.is_sorted());
    }

    #[test]
    fn reordered_packets_are_a_little_late_and_corrupted_ones_differ_in_a_bit() {
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
    fn a_seed_repeats_the_same_faults() {
        let how = |seed| Impairment {
            seed,
            ..one_percent(|how, p| (how.loss, how.duplicate, how.corrupt) = (p, p, p))
        };
        assert_eq!(pass(how(7)).0, pass(how(7)).0);
        assert_ne!(pass(how(7)).0, pass(how(8)).0);
    }
}
