//! A computation of a fixed length, calibrated once per process.
//!
//! A loop that reads the clock would end on time even if the kernel used the core meanwhile; this one has a fixed
//! number of steps, so it ends later.

use std::hint::black_box;
use std::sync::OnceLock;

use adverb_units::Span;

use crate::clock;

/// Steps of a calibration: some ten microseconds.
const STEPS: u64 = 1 << 15;
/// Calibrations. The fastest one counts: the others were disturbed.
const TRIES: u32 = 200;

/// Executes a computation that takes `idle` on a core without other work.
pub(crate) fn execute(idle: Span) {
    static STEPS_PER_NS: OnceLock<f64> = OnceLock::new();
    let rate = STEPS_PER_NS.get_or_init(calibrate);
    steps((idle.as_ns_f64() * rate) as u64);
}

/// Returns the number of steps per nanosecond.
fn calibrate() -> f64 {
    let measure = |_| {
        let start = clock::now();
        steps(STEPS);
        clock::now() - start
    };
    let fastest = (0..TRIES).map(measure).min().unwrap_or(Span::ZERO);
    STEPS as f64 / fastest.as_ns_f64().max(1.0)
}

/// Steps that depend on each other, so that the CPU cannot overlap them: a linear congruential generator.
fn steps(count: u64) {
    let mut state = black_box(1_u64);
    for _ in 0..count {
        state = black_box(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_computation_takes_longer() {
        let fastest = |idle| {
            let one = |_| {
                let start = clock::now();
                execute(idle);
                clock::now() - start
            };
            (0..20).map(one).min().unwrap()
        };
        fastest(Span::from_us(1));
        let (short, long) = (fastest(Span::from_us(50)), fastest(Span::from_us(500)));
        assert!(short < long, "{short} {long}");
    }
}
