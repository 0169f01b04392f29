//! Fault injection, as `tc-netem` does it, without root: drops, duplicates, reorders and corrupts packets.
//!
//! A device with an [`Impairment`] injects faults into the packets that it sends, each with its probability. Packets that
//! are not lost pass a link with delay and rate ([`crate::delay_line`]). For faults in both directions, both sides inject
//! them. Tests can also choose the fault of each packet that a port receives (feature `testing`).

use std::time::{Duration, Instant};

use adverb_verbs::{Counters, Impairment};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::delay_line::DelayLine;

/// Maximum number of packets that overtake a randomly reordered one.
const FARTHEST: u64 = 3;
/// Maximum delay of a reordered packet, if fewer packets follow.
const HOLD: Duration = Duration::from_millis(1);

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is lost.
    Loss,
    /// It arrives twice.
    Duplicate,
    /// This number of its successors overtake it.
    Reorder(u64),
    /// The bit with this number, modulo its length, is flipped.
    Corrupt(u64),
}

/// Chooses the faults of each packet.
enum FaultSource {
    Random(Impairment, Box<ChaCha8Rng>),
    #[cfg(feature = "testing")]
    Rule(Rule),
}

#[cfg(feature = "testing")]
type Rule = Box<dyn FnMut(&[u8]) -> Option<Fault> + Send>;

impl std::fmt::Debug for FaultSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FaultSource::Random(how, _) => how.fmt(f),
            #[cfg(feature = "testing")]
            FaultSource::Rule(_) => f.write_str("Rule"),
        }
    }
}

impl FaultSource {
    /// Returns the faults of the next packet. Nothing else happens to a lost one.
    #[cfg_attr(not(feature = "testing"), expect(unused_variables))]
    fn faults(&mut self, packet: impl Fn() -> Vec<u8>) -> [Option<Fault>; 3] {
        match self {
            FaultSource::Random(how, random) => random_faults(how, random),
            #[cfg(feature = "testing")]
            FaultSource::Rule(rule) => [rule(&packet()), None, None],
        }
    }
}

fn random_faults(how: &Impairment, random: &mut ChaCha8Rng) -> [Option<Fault>; 3] {
    // A random number for each kind of fault: changing one probability does not change the others' packets.
    let [loss, duplicate, reorder, corrupt] = [(); 4].map(|()| random.next_u64());
    if how.loss.happens(loss) {
        return [Some(Fault::Loss), None, None];
    }
    let duplicates = how.duplicate.happens(duplicate);
    let corrupts = how.corrupt.happens(corrupt);
    let reorders = how.reorder.happens(reorder);
    [
        duplicates.then_some(Fault::Duplicate),
        corrupts.then(|| Fault::Corrupt(random.next_u64())),
        reorders.then(|| Fault::Reorder(1 + random.next_u64() % FARTHEST)),
    ]
}

/// A packet that is passed on by itself, with its ICRC: a duplicated, reordered or corrupted one.
#[derive(Debug)]
struct Delayed<W> {
    route: W,
    bytes: Vec<u8>,
    /// Number of packets that still overtake it.
    behind: u64,
    until: Instant,
}

/// A route of packets.
pub trait Route: Clone {
    /// Returns the bytes on the wire around a packet's own: headers of lower layers, check sequence, preamble and gap.
    fn around(&self) -> usize;
}

/// What the caller does with a packet after fault injection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Sends it unchanged.
    Pass,
    /// Drops it: it is lost, or the injector holds a copy that it sends later.
    Drop,
}

/// Injects faults into packets. `W` is the route of a packet.
#[derive(Debug)]
pub struct FaultInjector<W> {
    source: FaultSource,
    delayed: Vec<Delayed<W>>,
    /// The link; `None` if it has neither delay nor rate.
    line: Option<DelayLine<W>>,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
}

impl<W: Route> FaultInjector<W> {
    /// Injects random faults.
    pub fn random(how: Impairment) -> Self {
        let random = ChaCha8Rng::seed_from_u64(how.seed);
        FaultInjector {
            line: how.delays().then(|| DelayLine::new(how)),
            ..Self::new(FaultSource::Random(how, Box::new(random)))
        }
    }

    /// Injects these random faults into further packets. Packets that are held keep their times.
    pub fn change(&mut self, how: Impairment) {
        let next = Self::random(how);
        self.source = next.source;
        self.line = match (self.line.take(), next.line) {
            (Some(line), _) => Some(line.with(how)),
            (None, line) => line,
        };
    }

    /// Injects the faults that a closure chooses.
    #[cfg(feature = "testing")]
    pub fn by_rule(rule: Rule) -> Self {
        Self::new(FaultSource::Rule(rule))
    }

    const fn new(source: FaultSource) -> Self {
        FaultInjector {
            source,
            delayed: Vec::new(),
            line: None,
            lost: 0,
            duplicated: 0,
            reordered: 0,
            corrupted: 0,
        }
    }

    /// Decides what happens to the next packet. `alone` returns the packet with the ICRC that it has if it is sent alone.
    pub fn judge(&mut self, route: &W, alone: impl Fn() -> Vec<u8>) -> Verdict {
        let faults = self.source.faults(&alone);
        if faults.contains(&Some(Fault::Loss)) {
            self.lost += 1;
            return Verdict::Drop;
        }
        for delayed in &mut self.delayed {
            delayed.behind = delayed.behind.saturating_sub(1);
        }
        let (mut changed, mut behind) = (None, 0);
        for fault in faults.into_iter().flatten() {
            match fault {
                Fault::Loss => unreachable!("handled above"),
                Fault::Duplicate => {
                    self.duplicated += 1;
                    self.delay(route, alone(), 0);
                }
                Fault::Corrupt(bit) => {
                    self.corrupted += 1;
                    flip(changed.get_or_insert_with(&alone), bit);
                }
                Fault::Reorder(by) => {
                    self.reordered += 1;
                    changed.get_or_insert_with(&alone);
                    behind = by;
                }
            }
        }
        match (changed, &mut self.line) {
            (None, None) => Verdict::Pass,
            (None, Some(line)) => {
                line.push(Instant::now(), (route.clone(), route.around()), alone());
                Verdict::Drop
            }
            (Some(bytes), _) => {
                self.delay(route, bytes, behind);
                Verdict::Drop
            }
        }
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

    /// Returns when the next packet that is held is due, unless another one that is sent makes it due earlier.
    pub fn next_release(&self) -> Option<Instant> {
        let line = self.line.as_ref().and_then(DelayLine::next_due);
        let delayed = self.delayed.iter().map(|delayed| delayed.until);
        delayed.chain(line).min()
    }

    /// Whether a delayed packet is to be passed on now.
    pub fn is_due(&self) -> bool {
        self.delayed.iter().any(|delayed| delayed.behind == 0)
    }

    /// Passes the due packets to `pass`, which returns false if one has to stay.
    pub fn release(&mut self, mut pass: impl FnMut(&W, &[u8]) -> bool) {
        let now = Instant::now();
        let is_due = |delayed: &Delayed<W>| delayed.behind == 0 || delayed.until <= now;
        match &mut self.line {
            None => (self.delayed)
                .retain(|delayed| !is_due(delayed) || !pass(&delayed.route, &delayed.bytes)),
            Some(line) => {
                for Delayed { route, bytes, .. } in
                    self.delayed.extract_if(.., |delayed| is_due(delayed))
                {
                    let around = route.around();
                    line.push(now, (route, around), bytes);
                }
                line.release(now, pass);
            }
        }
    }

    /// Returns what happened to packets, by the names of counters.
    pub fn counters(&self) -> Counters {
        [
            ("impaired_lost_pkts", self.lost),
            ("impaired_duplicated_pkts", self.duplicated),
            ("impaired_reordered_pkts", self.reordered),
            ("impaired_corrupted_pkts", self.corrupted),
            (
                "impaired_overflow_pkts",
                self.line.as_ref().map_or(0, |line| line.overflows),
            ),
        ]
        .map(|(name, count)| (name.to_owned(), count))
        .into()
    }
}

/// Flips the bit with this number, modulo the length.
fn flip(bytes: &mut [u8], bit: u64) {
    let bit = (bit % (8 * bytes.len() as u64)) as usize;
    bytes[bit / 8] ^= 1 << (bit % 8);
}

#[cfg(test)]
mod tests {
    use adverb_units::Span;
    use adverb_verbs::Probability;

    use super::*;

    const PACKETS: usize = 10_000;

    impl Route for () {
        fn around(&self) -> usize {
            66
        }
    }

    /// Passes `PACKETS` packets, whose contents are their numbers; returns them in the order in which they are sent.
    fn pass(how: Impairment) -> (Vec<Vec<u8>>, Counters) {
        let mut impaired = FaultInjector::random(how);
        let mut left = Vec::new();
        for n in 0..PACKETS {
            let packet = || n.to_be_bytes().to_vec();
            if impaired.judge(&(), packet) == Verdict::Pass {
                left.push(packet());
            }
            impaired.release(|(), bytes| {
                left.push(bytes.to_vec());
                true
            });
        }
        std::thread::sleep(HOLD);
        impaired.release(|(), bytes| {
            left.push(bytes.to_vec());
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
    fn faults_are_the_same_with_a_delay() {
        let how = |delay| Impairment {
            delay,
            ..one_percent(|how, p| (how.loss, how.duplicate, how.corrupt) = (p, p, p))
        };
        // Of this order only the places of duplicates depend on the time.
        let sorted = |delay| {
            let (mut left, counters) = pass(how(delay));
            left.sort();
            (left, counters)
        };
        assert_eq!(sorted(Span::ZERO), sorted(Span::from_us(1)));
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
