//! Random operations of two to four hosts over RC, UC and UD under every mix of faults, against a simple
//! model of memory and completions: over two million of them.
//!
//! `ADVERB_TRANSPORT_SEED=N` runs one seed again; a failure names its seed. `ADVERB_TRANSPORT_SEEDS=N`
//! runs N seeds.

use std::panic::AssertUnwindSafe;

use crate::harness::{Run, Sums};
use crate::lab::Random;

/// Operations of each direction of a connection, and of each datagram queue pair.
const OPERATIONS: usize = 120;
/// Seeds that are more than a million operations of RC, and a million of UC and UD.
const SEEDS: u64 = 2200;

fn run(seed: u64) -> Run {
    let mut run = Run::new(OPERATIONS, Random::new(seed), Random::new(seed ^ 0x5eed));
    run.finish();
    run
}

/// A number in the environment.
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn seeds() -> std::ops::Range<u64> {
    match variable("ADVERB_TRANSPORT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..variable("ADVERB_TRANSPORT_SEEDS").unwrap_or(SEEDS),
    }
}

/// Runs these seeds; returns the totals, or the first seed that fails.
fn all(seeds: impl Iterator<Item = u64>) -> Result<Sums, u64> {
    let mut sums = Sums::default();
    for seed in seeds {
        let tried = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let run = run(seed);
            run.check();
            run.sums()
        }));
        sums.add(&tried.map_err(|_| seed)?);
    }
    Ok(sums)
}

#[test]
fn two_million_operations_come_out_as_they_should() {
    let (even, odd) = std::thread::scope(|scope| {
        let half = |first| scope.spawn(move || all(seeds().skip(first).step_by(2)));
        let (even, odd) = (half(0), half(1));
        (even.join().unwrap(), odd.join().unwrap())
    });
    let mut sums = Sums::default();
    for part in [even, odd] {
        match part {
            Ok(part) => sums.add(&part),
            Err(seed) => {
                panic!("seed {seed}: run it again with ADVERB_TRANSPORT_SEED={seed}");
            }
        }
    }
    if seeds().count() as u64 == SEEDS {
        assert!(
            sums.reliable >= 1_000_000 && sums.loose >= 900_000,
            "{sums:?}"
        );
        let faults = [
            sums.resent,
            sums.duplicates,
            sums.rnr_naks,
            sums.damaged,
            sums.timeouts,
            sums.lost,
        ];
        assert!(faults.iter().all(|&n| n > 10_000), "{sums:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let traces = [1, 2, 1].map(|seed| run(seed).network.trace());
    assert_eq!(traces[0], traces[2]);
    assert_ne!(traces[0], traces[1]);
}
