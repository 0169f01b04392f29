//! The processing units of a NIC, to which queue pairs are bound.

use std::collections::VecDeque;

use adverb_units::Time;

use crate::ids::QpRef;
use crate::resource::Server;

/// Serves the queue pairs that are bound to it in turn, one WQE each.
///
/// It holds a request until the transmit side takes it, and takes no other meanwhile. So what a busy transmit side cannot
/// take stays in the send queues.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unit {
    pub(crate) server: Server,
    /// Queue pairs whose next WQE the NIC has, and since when, in the order in which they are served.
    pub(crate) waiting: VecDeque<(QpRef, Time)>,
    /// Whether an event is scheduled at the time when it is free.
    pub(crate) is_scheduled: bool,
}

/// Returns the number of the unit that serves a machine's queue pair `number`.
///
/// Consecutive queue pairs have different units, but equal steps between queue pairs do not lead to equal units: threads
/// with the same number of queue pairs each, which post to them in turn, would otherwise all post to a few units.
pub(crate) fn unit_of(number: u32, units: u32) -> u32 {
    (number % units + scramble(number / units) % units) % units
}

/// The final mixing steps of MurmurHash3 (Appleby), which map 0 to 0.
fn scramble(number: u32) -> u32 {
    let number = (number ^ (number >> 16)).wrapping_mul(0x85eb_ca6b);
    let number = (number ^ (number >> 13)).wrapping_mul(0xc2b2_ae35);
    number ^ (number >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_steps_between_queue_pairs_do_not_lead_to_a_few_units() {
        for (units, threads) in [(16, 8), (16, 14), (32, 14)] {
            for step in 1..=64 {
                let mut of = vec![0; units as usize];
                for thread in 0..threads {
                    of[unit_of(thread * step, units) as usize] += 1;
                }
                let used = of.iter().filter(|count| **count > 0).count();
                assert!(
                    used > threads as usize / 3,
                    "{used} units of {units}, {threads} threads, {step} apart"
                );
            }
        }
        let first: Vec<u32> = (0..16).map(|number| unit_of(number, 16)).collect();
        assert_eq!(first, (0..16).collect::<Vec<_>>());
    }
}
