//! Cache-line contention: lines that cores and the NIC access at the same time, and in which order they get
//! them.
//!
//! A line passes from one to the next; each passage takes `memory.line_transfer_ns`. Whoever asks for
//! it gets it after those that asked before, and keeps it until the next one has it. Cores that
//! only read get their copies side by side. The root port asks for a line once at a time, and its
//! writes keep their order: while one waits for its line the next ones could ask for theirs, but a
//! line that others fight for would be gone again when it is their turn.
//!
//! Threads of the load walk from byte to byte ([`walk`]). They are not roles: nothing waits for them, so
//! they are brought up to date when the NIC comes.

mod line;
mod walk;

use std::collections::HashMap;

use adverb_sim::Random;
use adverb_units::{Span, Time};

use crate::host::memory::Range;
use crate::host::pcie::LINE;
use line::{Holder, Line};
use walk::Walker;

pub(crate) use line::{Core, LineTimes};
pub(crate) use walk::Walk;

/// A line: its region and its number in it.
type Place = (u32, u64);

/// What the root port does with a line.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// When it can go on.
    ready: Time,
    /// When the line is there for the next one.
    end: Time,
    /// Whether cores have lost the line by then.
    is_lost: bool,
}

/// How much of a line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Whole,
    Part,
}

impl Turn {
    /// Nothing changes hands.
    fn passing(at: Time) -> Self {
        Turn {
            ready: at,
            end: at,
            is_lost: false,
        }
    }
}

/// The lines of a machine that are fought for.
#[derive(Debug)]
pub(crate) struct Contention {
    times: LineTimes,
    lines: HashMap<Place, Line>,
    /// Of each region, from the first to the last line that was written past the caches: one that nobody
    /// has asked for since is in memory alone.
    flushed: HashMap<u32, std::ops::Range<u64>>,
    /// When the root port's last write got its lines.
    written: Time,
    walk: Option<Walk>,
    walkers: Vec<Walker>,
    random: Random,
}

/// The lines that have a part of a range, by number.
fn lines_of(range: Range) -> std::ops::Range<u64> {
    let (begin, end) = (range.offset as u64, (range.offset + range.length) as u64);
    begin / LINE..end.div_ceil(LINE)
}

/// Threads walk through the region that was registered first.
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

    /// Lets threads walk: one for each of `cores`, with the time that a line takes to come there.
    pub(crate) fn begin(&mut self, walk: Walk, cores: impl Iterator<Item = (Core, Span)>) {
        let random = &mut self.random;
        let bytes = walk.bytes.max(1);
        self.walkers.extend(cores.map(|(core, transfer)| Walker {
            core,
            transfer,
            place: random.below(bytes),
            since: Time::ZERO,
            writes: false,
            next: Time::ZERO + Span::from_ps(random.below(transfer.as_ps().max(1))),
            must_write: false,
        }));
        self.walk = Some(Walk { bytes, ..walk });
    }

    /// Whether anybody fights for lines of the range.
    #[inline]
    pub(crate) fn concerns(&self, range: Range) -> bool {
        !self.walkers.is_empty() && range.region == WALKED
    }

    /// The root port writes into the last-level cache: it takes each line from the cores, in turn with
    /// them. Returns when the last line is its own.
    pub(crate) fn allocate(&mut self, range: Range, at: Time) -> Time {
        let asked = at.max(self.written);
        self.written = self.each(range, asked, |line, asked, times, _| {
            let is_taken = !line.is_at_rest(asked);
            let end = if is_taken {
                line.pass(asked, times.transfer)
            } else {
                asked
            };
            line.holder = Holder::Cache;
            Turn {
                ready: end,
                end,
                is_lost: is_taken,
            }
        });
        self.written
    }

    /// The root port writes to memory of its own socket: lines leave all caches. A part of a line is
    /// merged with the rest, which comes from whoever has it. Returns when the last line's turn begins:
    /// from then on, who asks for it waits.
    pub(crate) fn bypass(&mut self, range: Range, at: Time) -> Time {
        let asked = at.max(self.written);
        let mut ready = asked;
        for part in self.apart(range) {
            let turn = self.each(part, asked, |line, asked, times, extent| {
                let fetch = match extent {
                    Extent::Whole => Span::ZERO,
                    Extent::Part => line.fetch(times),
                };
                let end = line.pass(asked, times.snoop + fetch + times.memory);
                line.holder = Holder::Memory;
                Turn {
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

    /// The root port writes to the other socket's memory, where its write is a snoop that comes before
    /// the requests of cores, and is merged at the memory. It waits for no core, but for the root port's
    /// own write of the same line before it: returns when the last line's snoop begins.
    pub(crate) fn invalidate(&mut self, range: Range, at: Time) -> Time {
        self.each(range, at, |line, asked, times, _| {
            if line.is_at_rest(asked) {
                line.holder = Holder::Memory;
                return Turn::passing(asked);
            }
            let is_wanted = line.free > asked;
            let end = line.under_way(asked, times.transfer) + times.snoop;
            line.free = line.free.max(asked) + times.snoop;
            if !is_wanted {
                line.holder = Holder::Memory;
                line.granted = end;
            }
            Turn {
                ready: asked,
                end,
                is_lost: !is_wanted,
            }
        })
    }

    /// The root port reads, in turn with the cores; who has a line keeps it. Returns when the last line
    /// has been read, beyond what reading the last-level cache takes.
    pub(crate) fn read(&mut self, range: Range, at: Time) -> Time {
        let mut end = at;
        if self.is_flushed(range.region, &lines_of(range)) {
            end = at + self.times.memory;
        }
        for part in self.apart(range) {
            let read = self.each(part, at, |line, asked, times, _| {
                let end = match line.holder {
                    Holder::Memory => asked.max(line.free) + times.memory,
                    Holder::Writer(_) => line.pass(asked, times.transfer),
                    // Copies are handed out side by side.
                    Holder::Cache | Holder::Readers(_) => asked.max(line.free),
                };
                Turn::passing(end)
            });
            end = end.max(read);
        }
        end
    }

    /// The parts of a range whose lines are looked at one by one: all where others want them, else those
    /// that the range has but a part of.
    fn apart(&self, range: Range) -> impl Iterator<Item = Range> + use<> {
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

    /// Whether lines of a region lie between those that were written past the caches.
    fn is_flushed(&self, region: u32, lines: &std::ops::Range<u64>) -> bool {
        let flushed = self.flushed.get(&region);
        flushed.is_some_and(|f| lines.start < f.end && f.start < lines.end)
    }

    /// The root port reads the other socket's memory: its snoop comes before the requests of cores, with
    /// which it conflicts.
    pub(crate) fn read_across(&mut self, range: Range, at: Time) -> Time {
        self.each(range, at, |line, asked, times, _| {
            let Holder::Writer(owner) = line.holder else {
                return Turn::passing(line.under_way(asked, times.transfer));
            };
            let is_wanted = line.free > asked;
            let mut span = times.transfer;
            if line.free > asked + times.transfer {
                span += times.conflict;
            }
            let end = line.under_way(asked, times.transfer) + span;
            line.free = line.free.max(asked) + span;
            if !is_wanted {
                // No socket reads another one's dirty lines: memory gets it too.
                line.holder = Holder::Readers(vec![owner]);
                line.granted = end;
            }
            Turn {
                ready: end,
                end,
                is_lost: !is_wanted,
            }
        })
    }

    /// What the root port does to each line of a range: lines are asked for side by side, each of them
    /// once at a time. Returns when it can go on with all of them.
    fn each(
        &mut self,
        range: Range,
        at: Time,
        act: impl Fn(&mut Line, Time, &LineTimes, Extent) -> Turn,
    ) -> Time {
        let (begin, end) = (range.offset as u64, (range.offset + range.length) as u64);
        let mut last = at;
        for number in lines_of(range) {
            let is_whole = begin <= number * LINE && (number + 1) * LINE <= end;
            let extent = if is_whole {
                Extent::Whole
            } else {
                Extent::Part
            };
            let place = (range.region, number);
            let asked = self.lines.get(&place).map_or(at, |line| at.max(line.root));
            self.advance(asked);
            let is_flushed = self.is_flushed(range.region, &(number..number + 1));
            let line = self.lines.entry(place).or_insert_with(|| {
                let mut line = Line::new();
                if is_flushed {
                    line.holder = Holder::Memory;
                }
                line
            });
            let turn = act(line, asked, &self.times, extent);
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
    use crate::host::load::Access;

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
        };
        let cores = cores.into_iter().map(|core| (Core(core), TIMES.transfer));
        contention.begin(walk, cores);
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

    const WRITES: Access = Access::Bytes { writes: 1.0 };

    /// Mean time between accesses of the root port that follow one another without a pause.
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
    fn nobody_waits_where_nobody_else_is() {
        let mut alone = contention([], 64, WRITES);
        assert_eq!(alone.allocate(bytes(0, 4096), at(5)), at(5));
        assert_eq!(alone.read(bytes(0, 4096), at(6)), at(6));
    }

    #[test]
    fn the_root_port_waits_for_one_turn_of_each_core() {
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
    fn readers_get_their_copies_side_by_side() {
        let share = |writes| writing(&mut contention(0..12, 64, Access::Bytes { writes }));
        assert!(share(0.0) < share(0.5) && share(0.5) < share(0.9));
        assert!(share(0.0) < 3.0 * 20.0, "{}", share(0.0));
    }

    #[test]
    fn a_locked_instruction_keeps_the_line() {
        let swaps = writing(&mut contention(0..8, 64, Access::CompareSwap));
        let stores = writing(&mut contention(0..8, 64, WRITES));
        assert!(swaps > stores * 1.05, "{swaps} and {stores}");
    }

    #[test]
    fn the_more_lines_there_are_the_less_each_is_wanted() {
        let mut last = f64::INFINITY;
        for lines in [1, 2, 8, 64] {
            let pace = writing(&mut contention(0..8, 64 * lines, WRITES));
            assert!(pace < last, "{pace} for {lines} lines, {last} for fewer");
            last = pace;
        }
    }

    #[test]
    fn snoops_from_the_other_socket_come_first() {
        let across = pace(&mut contention(0..12, 64, WRITES), |c, now| {
            c.read_across(bytes(0, 8), now)
        });
        let within = pace(&mut contention(0..12, 64, WRITES), |c, now| {
            c.read(bytes(0, 8), now)
        });
        assert!(across < within, "{across} and {within}");
    }

    #[test]
    fn writes_across_wait_for_no_core_but_for_one_another() {
        let mut fought = contention(0..12, 64, WRITES);
        let begun = fought.invalidate(bytes(0, 8), at(1_000));
        assert_eq!(begun, at(1_000), "cores do not keep it waiting");
        let write = |c: &mut Contention, now| c.invalidate(bytes(0, 8), now);
        let each = pace(&mut fought, write);
        let (snoop, passage) = (TIMES.snoop.as_ns_f64(), TIMES.transfer.as_ns_f64());
        assert!((snoop..snoop + passage).contains(&each), "{each}");
        let mut quiet = contention([], 64, WRITES);
        assert_eq!(pace(&mut quiet, write), 0.0, "nobody wants the line");
    }

    #[test]
    fn parts_of_a_line_pass_memory_one_after_another_and_lines_side_by_side() {
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
        assert_eq!(off.lines.len(), 2, "only parts are looked at one by one");
    }
}
