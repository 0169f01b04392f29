//! Cache-line contention: the order in which cores and the NIC get lines that they access concurrently.
//!
//! Each transfer of a line from one agent to the next takes `memory.line_transfer_ns`. Agents get a line in
//! the order of their requests, and keep it until the next one has it. Cores that only read get their
//! copies concurrently. The root port has one request per line at a time, and its writes keep their order:
//! while one waits for its line, the next ones could request theirs, but a contended line would be lost
//! again before their turn.
//!
//! Threads of the load walk from byte to byte ([`walk`]). They are not roles: nothing waits for them, so
//! they are advanced only when the NIC accesses a line.

mod line;
mod walk;

use std::collections::HashMap;

use adverb_sim::Random;
use adverb_units::{Span, Time};

use crate::host::memory::Range;
use crate::host::pcie::LINE;
use line::{ContendedLine, Holder};
use walk::Walker;

pub(crate) use line::{Core, LineTimes};
pub(crate) use walk::Walk;

/// A line: its region and its number in it.
type Place = (u32, u64);

/// The outcome of the root port's access to a line.
#[derive(Clone, Copy, Debug)]
struct Grant {
    /// When the root port can continue.
    ready: Time,
    /// When the line is available to the next agent.
    end: Time,
    /// Whether cores have lost the line by then.
    is_lost: bool,
}

impl Grant {
    /// The line stays where it is.
    fn passing(at: Time) -> Self {
        Grant {
            ready: at,
            end: at,
            is_lost: false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Contention {
    times: LineTimes,
    lines: HashMap<Place, ContendedLine>,
    /// For each region, the range of lines that were written past the caches. Those that no agent has
    /// requested since are in memory only.
    flushed: HashMap<u32, std::ops::Range<u64>>,
    /// When the root port's last write got its lines.
    written: Time,
    walk: Option<Walk>,
    walkers: Vec<Walker>,
    random: Random,
}

/// The numbers of the lines that a range overlaps.
fn lines_of(range: Range) -> std::ops::Range<u64> {
    let (begin, end) = (range.offset as u64, (range.offset + range.length) as u64);
    begin / LINE..end.div_ceil(LINE)
}

/// The region that threads walk through: the first one.
const WALKED: u32 = 0;

impl Contention {
    pub(crate) fn new(times: LineTimes, random: Random) -> Self {
        Contention {
            times,
            lines: HashMap::new(),
            flushed: HashMap::new(),
            written: Time::ZERO,
            walk: None,
            walkers: Vec::new(),
            random,
        }
    }

    /// Starts a walking thread on each of `cores`, which come with the time of transferring a line there.
    pub(crate) fn begin(
        &mut self,
        walk: Walk,
        cores: impl Iterator<Item = (Core, Span)>,
        now: Time,
    ) {
        let random = &mut self.random;
        let bytes = walk.bytes.max(1);
        self.walkers.extend(cores.map(|(core, transfer)| Walker {
            core,
            transfer,
            place: random.below(bytes),
            since: now,
            writes: false,
            next: now + Span::from_ps(random.below(transfer.as_ps().max(1))),
            must_write: false,
        }));
        self.walk = Some(Walk { bytes, ..walk });
    }

    /// Whether threads contend for lines of the range.
    #[inline]
    pub(crate) fn concerns(&self, range: Range) -> bool {
        !self.walkers.is_empty() && range.region == WALKED
    }

    /// The root port writes into the last-level cache: it takes each line from the cores, in turn with them.
    /// Returns when it has the last line.
    pub(crate) fn allocate(&mut self, range: Range, at: Time) -> Time {
        let asked = at.max(self.written);
        self.written = self.each(range, asked, |line, asked, times, _| {
            let is_taken = !line.is_at_rest(asked);
            let end = if is_taken {
                line.transfer(asked, times.transfer)
            } else {
                asked
            };
            line.holder = Holder::Cache;
            Grant {
                ready: end,
                end,
                is_lost: is_taken,
            }
        });
        self.written
    }

    /// The root port writes to memory of its own socket, which invalidates cached copies. A partly written
    /// line is merged with its present content, wherever that is. Returns when the access to the last line
    /// begins: later requests for it wait.
    pub(crate) fn bypass(&mut self, range: Range, at: Time) -> Time {
        let asked = at.max(self.written);
        let mut ready = asked;
        for part in self.line_by_line(range) {
            let turn = self.each(part, asked, |line, asked, times, is_whole| {
                let fetch = match is_whole {
                    true => Span::ZERO,
                    false => line.fetch(times),
                };
                let end = line.transfer(asked, times.snoop + fetch + times.memory);
                line.holder = Holder::Memory;
                Grant {
                    ready: line.begun,
                    end,
                    is_lost: true,
                }
            });
            ready = ready.max(turn);
        }
        let lines = lines_of(range);
        let flushed = self.flushed.entry(range.region).or_insert(lines.clone());
        *flushed = flushed.start.min(lines.start)..flushed.end.max(lines.end);
        self.written = ready;
        ready
    }

    /// The root port writes to the other socket's memory. There its write is a snoop that has priority over
    /// the requests of cores, and is merged in memory. It does not wait for cores, only for an earlier write
    /// of the root port to the same line. Returns when the snoop of the last line begins.
    pub(crate) fn invalidate(&mut self, range: Range, at: Time) -> Time {
        self.each(range, at, |line, asked, times, _| {
            if line.is_at_rest(asked) {
                line.holder = Holder::Memory;
                return Grant::passing(asked);
            }
            let is_wanted = line.free > asked;
            let end = line.in_progress(asked, times.transfer) + times.snoop;
            line.free = line.free.max(asked) + times.snoop;
            if !is_wanted {
                line.holder = Holder::Memory;
                line.granted = end;
            }
            Grant {
                ready: asked,
                end,
                is_lost: !is_wanted,
            }
        })
    }

    /// The root port reads, in turn with the cores, which keep their copies. Returns when the last line is
    /// read, without the time of reading the last-level cache.
    pub(crate) fn read(&mut self, range: Range, at: Time) -> Time {
        let mut end = at;
        if self.is_flushed(range.region, &lines_of(range)) {
            end = at + self.times.memory;
        }
        for part in self.line_by_line(range) {
            let read = self.each(part, at, |line, asked, times, _| {
                let end = match line.holder {
                    Holder::Memory => asked.max(line.free) + times.memory,
                    Holder::Writer(_) => line.transfer(asked, times.transfer),
                    // Copies are made concurrently.
                    Holder::Cache | Holder::Readers(_) => asked.max(line.free),
                };
                Grant::passing(end)
            });
            end = end.max(read);
        }
        end
    }

    /// The root port reads from memory, where each access waits for `queueing`. Requests to the same address do not pass each
    /// other: while one is outstanding, the next one waits (Intel's uncore event RxR_IRQ_RETRY.ADDR_CONFLICT). Returns when
    /// the last request begins.
    pub(crate) fn fetch(&mut self, range: Range, at: Time, queueing: Span) -> Time {
        self.each(range, at, |_, asked, times, _| Grant {
            ready: asked,
            end: asked + times.snoop + times.memory + queueing,
            is_lost: false,
        })
    }

    /// The parts of a range whose lines are handled one by one: the whole range if cores contend for it, else
    /// the lines at its ends that it covers only partly.
    fn line_by_line(&self, range: Range) -> impl Iterator<Item = Range> + use<> {
        let line = LINE as usize;
        let (begin, end) = (range.offset, range.offset + range.length);
        let (first, last) = (begin / line * line, end / line * line);
        let head = Range {
            length: range.length.min(first + line - begin),
            ..range
        };
        let tail = Range {
            offset: last,
            length: end - last,
            ..range
        };
        let is_contested = self.concerns(range);
        let has_head = !is_contested && head.length < line;
        let has_tail = !is_contested && tail.length > 0 && last > first;
        [
            is_contested.then_some(range),
            has_head.then_some(head),
            has_tail.then_some(tail),
        ]
        .into_iter()
        .flatten()
    }

    /// Whether some of these lines of a region were written past the caches.
    fn is_flushed(&self, region: u32, lines: &std::ops::Range<u64>) -> bool {
        let flushed = self.flushed.get(&region);
        flushed.is_some_and(|f| lines.start < f.end && f.start < lines.end)
    }

    /// The root port reads the other socket's memory. Its snoop has priority over the requests of cores, with
    /// which it conflicts.
    pub(crate) fn read_across(&mut self, range: Range, at: Time) -> Time {
        self.each(range, at, |line, asked, times, _| {
            let Holder::Writer(owner) = line.holder else {
                let fetched = line.in_progress(asked, times.transfer) + line.fetch(times);
                return Grant::passing(fetched);
            };
            let is_wanted = line.free > asked;
            let mut span = times.transfer;
            if line.free > asked + times.transfer {
                span += times.conflict;
            }
            let end = line.in_progress(asked, times.transfer) + span;
            line.free = line.free.max(asked) + span;
            if !is_wanted {
                // A socket does not read dirty lines of another one: the line is written back, too.
                line.holder = Holder::Readers(vec![owner]);
                line.granted = end;
            }
            Grant {
                ready: end,
                end,
                is_lost: !is_wanted,
            }
        })
    }

    /// Applies `act` to each line of a range, with whether the range covers the whole line. The root port requests different lines concurrently, and has
    /// one request per line at a time. Returns when it can continue with all of them.
    fn each(
        &mut self,
        range: Range,
        at: Time,
        act: impl Fn(&mut ContendedLine, Time, &LineTimes, bool) -> Grant,
    ) -> Time {
        let (begin, end) = (range.offset as u64, (range.offset + range.length) as u64);
        let mut last = at;
        for number in lines_of(range) {
            let is_whole = begin <= number * LINE && (number + 1) * LINE <= end;
            let place = (range.region, number);
            let asked = self.lines.get(&place).map_or(at, |line| at.max(line.root));
            self.advance(asked);
            let is_flushed = self.is_flushed(range.region, &(number..number + 1));
            let line = self.lines.entry(place).or_insert_with(|| {
                let mut line = ContendedLine::new();
                if is_flushed {
                    line.holder = Holder::Memory;
                }
                line
            });
            let turn = act(line, asked, &self.times, is_whole);
            line.root = turn.end;
            if turn.is_lost && range.region == WALKED {
                self.lose(number, turn.end, None);
            }
            last = last.max(turn.ready);
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use adverb_sim::Seed;

    use super::*;
    use adverb_verbs::{Access, Probability};

    const TIMES: LineTimes = LineTimes {
        transfer: Span::from_ns(20),
        memory: Span::from_ns(90),
        snoop: Span::from_ns(60),
        conflict: Span::from_ns(100),
    };

    fn contention(cores: impl IntoIterator<Item = u32>, bytes: u64, access: Access) -> Contention {
        let mut contention = Contention::new(TIMES, Seed(1).stream("load", 0));
        let walk = Walk {
            bytes,
            access,
            each: Span::from_ns(2),
            think: Span::ZERO,
        };
        let cores = cores.into_iter().map(|core| (Core(core), TIMES.transfer));
        contention.begin(walk, cores, Time::ZERO);
        contention
    }

    fn at(ns: u64) -> Time {
        Time::ZERO + Span::from_ns(ns)
    }

    fn bytes(offset: usize, length: usize) -> Range {
        Range {
            region: WALKED,
            offset,
            length,
        }
    }

    const WRITES: Access = Access::Mixed {
        writes: Probability::per_million(1_000_000),
    };

    /// Mean time between back-to-back accesses of the root port.
    fn pace(contention: &mut Contention, access: impl Fn(&mut Contention, Time) -> Time) -> f64 {
        let mut now = at(1_000);
        for _ in 0..100 {
            now = access(contention, now);
        }
        (now - at(1_000)).as_ns_f64() / 100.0
    }

    fn writing(contention: &mut Contention) -> f64 {
        pace(contention, |c, now| c.allocate(bytes(0, 8), now))
    }

    #[test]
    fn uncontended_lines_cost_nothing() {
        let mut alone = contention([], 64, WRITES);
        assert_eq!(alone.allocate(bytes(0, 4096), at(5)), at(5));
        assert_eq!(alone.read(bytes(0, 4096), at(6)), at(6));
    }

    #[test]
    fn the_root_port_waits_for_one_transfer_to_each_core() {
        for cores in [1, 2, 4, 12] {
            let turns = writing(&mut contention(0..cores, 64, WRITES)) / 20.0;
            let expected = f64::from(cores + 1);
            assert!((turns - expected).abs() < 0.3, "{turns} turns of {cores}");
        }
    }

    #[test]
    fn hyper_threads_of_a_core_share_its_turn() {
        let cores = writing(&mut contention(0..4, 64, WRITES));
        let threads = writing(&mut contention((0..8).map(|t| t % 4), 64, WRITES));
        assert!(
            (threads / cores - 1.0).abs() < 0.15,
            "{threads} and {cores}"
        );
    }

    #[test]
    fn readers_get_their_copies_concurrently() {
        let share = |share| {
            let writes = Probability::new(share).unwrap();
            writing(&mut contention(0..12, 64, Access::Mixed { writes }))
        };
        assert!(share(0.0) < share(0.5) && share(0.5) < share(0.9));
        assert!(share(0.0) < 3.0 * 20.0, "{}", share(0.0));
    }

    #[test]
    fn a_locked_instruction_holds_the_line() {
        let swaps = writing(&mut contention(0..8, 64, Access::CompareSwap));
        let stores = writing(&mut contention(0..8, 64, WRITES));
        assert!(swaps > stores * 1.05, "{swaps} and {stores}");
    }

    #[test]
    fn more_lines_reduce_contention() {
        let mut last = f64::INFINITY;
        for lines in [1, 2, 8, 64] {
            let pace = writing(&mut contention(0..8, 64 * lines, WRITES));
            assert!(pace < last, "{pace} for {lines} lines, {last} for fewer");
            last = pace;
        }
    }

    #[test]
    fn snoops_from_the_other_socket_have_priority() {
        let across = pace(&mut contention(0..12, 64, WRITES), |c, now| {
            c.read_across(bytes(0, 8), now)
        });
        let within = pace(&mut contention(0..12, 64, WRITES), |c, now| {
            c.read(bytes(0, 8), now)
        });
        assert!(across < within, "{across} and {within}");
    }

    #[test]
    fn writes_to_the_other_socket_wait_only_for_each_other() {
        let mut contended = contention(0..12, 64, WRITES);
        let begun = contended.invalidate(bytes(0, 8), at(1_000));
        assert_eq!(begun, at(1_000), "it does not wait for cores");
        let write = |c: &mut Contention, now| c.invalidate(bytes(0, 8), now);
        let each = pace(&mut contended, write);
        let (snoop, transfer) = (TIMES.snoop.as_ns_f64(), TIMES.transfer.as_ns_f64());
        assert!((snoop..snoop + transfer).contains(&each), "{each}");
        let mut quiet = contention([], 64, WRITES);
        assert_eq!(pace(&mut quiet, write), 0.0, "the line is uncontended");
    }

    #[test]
    fn partial_writes_of_a_line_are_serialized_and_lines_are_concurrent() {
        let mut off = contention([], 64, WRITES);
        let merged = pace(&mut off, |c, now| c.bypass(bytes(0, 8), now));
        assert!((merged - 240.0).abs() < 5.0, "{merged}");
        let mut off = contention([], 64, WRITES);
        for line in 0..64 {
            assert_eq!(off.bypass(bytes(line * 64, 64), at(9)), at(9));
        }
        let missed = off.read(bytes(0, 64), at(2_000));
        assert_eq!(missed, at(2_000) + TIMES.memory, "the line is in memory");
        assert_eq!(off.read(bytes(8192, 64), at(2_000)), at(2_000));
        let (begin, end) = (at(3_000), at(3_000) + TIMES.snoop + TIMES.memory * 2);
        assert_eq!(off.bypass(bytes(100, 300), begin), begin);
        assert_eq!(
            off.bypass(bytes(0, 120), begin),
            end,
            "both have a part of line 1"
        );
        assert_eq!(off.lines.len(), 2, "only partly written lines are tracked");
    }
}
