//! What threads with arrays of their own take of a socket: its last-level cache, bandwidth of memory, and bandwidth between
//! the sockets if the arrays are on the other one.
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
    /// Time for which each occupies the interconnect between the sockets.
    crossing: Span,
}

/// What accesses in flight use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Used {
    /// How long another access waits for the memory bus on average,
    pub(crate) bus: Span,
    /// and for the interconnect.
    pub(crate) crossing: Span,
    /// Share of the interconnect's time.
    pub(crate) share: f64,
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
            crossing: Span::ZERO,
        })
    }

    /// Returns the demand of at most `in_flight` lines that only cross.
    pub(crate) fn crossing(in_flight: u32, line: Span) -> Self {
        Demand {
            in_flight,
            each: Span::ZERO,
            crossing: line,
        }
    }

    /// The arrays are on the other socket: each line crosses.
    pub(crate) fn across(self, line: Span) -> Self {
        Demand {
            crossing: line,
            ..self
        }
    }

    /// Returns what the accesses use if each takes `idle` without waiting.
    ///
    /// Mean value analysis of a closed system (Reiser and Lavenberg, 1980): the accesses in flight queue for the bus, then
    /// for the interconnect.
    pub(crate) fn used(self, idle: Span) -> Used {
        let (each, crossing) = (self.each.as_ns_f64(), self.crossing.as_ns_f64());
        let (mut rate, mut at_bus, mut between) = (0.0, 0.0, 0.0);
        for n in 1..=self.in_flight {
            let bus = each * (1.0 + at_bus);
            let link = crossing * (1.0 + between);
            rate = f64::from(n) / (idle.as_ns_f64() + bus + link);
            (at_bus, between) = (rate * bus, rate * link);
        }
        Used {
            bus: ns(each * at_bus),
            crossing: ns(crossing * between),
            share: rate * crossing,
        }
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
                let demand = Demand {
                    in_flight,
                    each: Span::from_ns(1),
                    crossing: Span::ZERO,
                };
                demand.used(idle).bus
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

    #[test]
    fn arrays_on_the_other_socket_use_the_slower_of_bus_and_interconnect() {
        let line = Span::from_ns(4);
        let near = demand(24, Bytes::mib(64)).unwrap();
        let far = near.across(line);
        let idle = Span::from_ns(85);
        let (near, far) = (near.used(idle), far.used(idle));
        assert_eq!((near.crossing, near.share), (Span::ZERO, 0.0));
        assert!(far.bus < near.bus, "fewer accesses at a time reach the bus");
        assert!(far.crossing > Span::ZERO && far.share < 1.0, "{far:?}");
        let alone = Demand::crossing(1, line).used(idle);
        let expected = line.as_ns_f64() * alone.share;
        assert!(
            (alone.crossing.as_ns_f64() - expected).abs() < 0.001,
            "{alone:?}"
        );
    }
}
