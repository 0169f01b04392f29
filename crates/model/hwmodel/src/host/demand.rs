//! What threads with arrays of their own take of a socket: its last-level cache, and bandwidth of its memory.
//!
//! Each access is to a random word: a line of the array from memory unless the cache holds it, later the same line
//! back to memory if it was written, and a page walk before it, because arrays that exceed the cache exceed the TLB,
//! too. A core overlaps as many accesses as it has line fill buffers, but not more than its page walks permit.

use adverb_units::{Bytes, Span};
use adverb_verbs::Probability;

use crate::params::Params;
use crate::rate::ns;

/// Bytes of an array that one byte of its page tables maps: 4 KiB by an entry of 8 B.
const MAPPED_BY_BYTE: u64 = 512;

/// The accesses of a load to the memory of a socket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Demand {
    /// Accesses in flight.
    in_flight: u32,
    /// Time for which each occupies the memory bus.
    each: Span,
}

impl Demand {
    /// Returns the demand of `threads` on one socket; `None` if its last-level cache holds all arrays.
    ///
    /// Threads that wait for a CPU count, too: their lines are in the cache, or were evicted, when they run again.
    pub(crate) fn of(threads: u32, array: Bytes, writes: Probability, p: &Params) -> Option<Self> {
        let arrays = array.get().saturating_mul(threads.into());
        let cache = (p.memory.llc_mib * Bytes::mib(1).get() as f64) as u64;
        if arrays <= cache {
            return None;
        }
        let walks_memory = arrays / MAPPED_BY_BYTE > cache;
        let (walk, lines) = match walks_memory {
            true => (p.memory.dram_ns, 2.0),
            false => (p.memory.llc_ns, 1.0),
        };
        let walked = p.memory.dram_ns.as_ns_f64() / walk.as_ns_f64() * f64::from(p.cpu.page_walks);
        let of_core = walked.min(p.cpu.line_fills.into());
        let misses = 1.0 - cache as f64 / arrays as f64;
        let in_flight = f64::from(threads.min(p.cpu.cores)) * of_core * misses;
        Some(Demand {
            in_flight: in_flight.round() as u32,
            each: ns(p.memory.line_ns.as_ns_f64() * (lines + writes.get())),
        })
    }

    /// Returns how long another access to memory waits on average, if each access of the load takes `idle` in idle
    /// memory.
    ///
    /// Mean value analysis of a closed system (Reiser and Lavenberg, 1980): the accesses in flight queue for the bus.
    pub(crate) fn wait(self, idle: Span) -> Span {
        let each = self.each.as_ns_f64();
        let mut queued = 0.0;
        for n in 1..=self.in_flight {
            let at_bus = each * (1.0 + queued);
            queued = f64::from(n) * at_bus / (idle.as_ns_f64() + at_bus);
        }
        ns(each * queued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;

    fn params() -> Params {
        Preset::built_in("cx3_fdr_nurdma").unwrap().params
    }

    fn demand(threads: u32, array: Bytes) -> Option<Demand> {
        Demand::of(threads, array, Probability::per_million(500_000), &params())
    }

    #[test]
    fn arrays_that_the_cache_holds_demand_nothing() {
        assert_eq!(demand(24, Bytes::mib(1)), None);
        assert!(demand(24, Bytes::mib(2)).is_some());
        assert!(demand(1, Bytes::mib(64)).is_some());
    }

    #[test]
    fn page_walks_limit_the_accesses_of_a_core() {
        let all = |p: &Params| {
            let demand = Demand::of(64, Bytes::mib(64), Probability::ZERO, p);
            demand.unwrap().in_flight
        };
        let mut p = params();
        let mut last = 0;
        for walks in [1, 2, 4] {
            p.cpu.page_walks = walks;
            assert!(all(&p) > last, "{walks}");
            last = all(&p);
        }
        p.cpu.page_walks = 64;
        let most = p.cpu.cores * p.cpu.line_fills;
        assert!((most * 99 / 100..=most).contains(&all(&p)), "{}", all(&p));
    }

    #[test]
    fn the_wait_grows_with_the_load_up_to_a_full_bus() {
        let idle = Span::from_ns(85);
        let waits: Vec<Span> = [1, 10, 50, 200, 1000]
            .map(|in_flight| {
                Demand {
                    in_flight,
                    each: Span::from_ns(1),
                }
                .wait(idle)
            })
            .into();
        assert!(waits.is_sorted(), "{waits:?}");
        assert!(
            waits[0] < Span::from_ns(1) && waits[1] < Span::from_ns(1),
            "{waits:?}"
        );
        // All accesses but those on their way queue for the bus, 1 ns each.
        let full = waits[4].as_ns_f64();
        assert!((full - 915.0).abs() < 2.0, "{full}");
    }
}
