//! Cache lines that cores and the NIC want at the same time: who has one, and who gets it when.
//!
//! A line passes from one to the next; each passage takes `memory.line_transfer_ns`. Whoever asks for
//! it gets it after those that asked before, and keeps it until the next one has it. Cores that
//! only read get their copies side by side. The root port asks for a line once at a time, and its
//! writes keep their order: while one waits for its line the next ones could ask for theirs, but a
//! line that others fight for would be gone again when it is their turn.
//!
//! Threads of the load walk from byte to byte. They are not roles: nothing waits for them, so they
//! are brought up to date when the NIC comes.

use std::collections::HashMap;

use adverb_sim::Random;
use adverb_units::{Span, Time};

use super::memory::Range;
use crate::load::Access;
use crate::pcie::LINE;

/// A physical core of a machine; its hyper-threads share its caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Core(pub(crate) u32);

/// A line: its region and its number in it.
type Place = (u32, u64);

/// What passing lines on takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineTimes {
    /// From core to core, or between a core and the NIC.
    pub(crate) transfer: Span,
    /// Fetching a line from memory, or writing it back, beyond that.
    pub(crate) memory: Span,
    /// Looking for a line in all caches of a socket, for the root port.
    pub(crate) snoop: Span,
    /// Settling a conflict between sockets about a line: a round trip more between them.
    pub(crate) conflict: Span,
}

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

/// Who has a line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    /// No core; the last-level cache has it.
    Cache,
    /// Nobody; it is in memory alone.
    Memory,
    /// The core that writes it.
    Writer(Core),
    /// Cores that read it.
    Readers(Vec<Core>),
}

/// A line that is, or was, wanted by several.
#[derive(Debug)]
struct Line {
    /// Who has it, once all that is settled has happened.
    holder: Holder,
    /// Since when.
    granted: Time,
    /// When the last settled passage begins.
    begun: Time,
    /// When the next one may begin.
    free: Time,
    /// When the root port has got what it asked for last.
    root: Time,
}

impl Line {
    fn new() -> Self {
        Line {
            holder: Holder::Cache,
            granted: Time::ZERO,
            begun: Time::ZERO,
            free: Time::ZERO,
            root: Time::ZERO,
        }
    }

    /// Passes the line on, to somebody who asks at `at`; returns when it is there.
    fn pass(&mut self, at: Time, span: Span) -> Time {
        self.begun = at.max(self.free);
        self.free = self.begun + span;
        self.granted = self.free;
        self.free
    }

    fn fetch(&self, times: &LineTimes) -> Span {
        if self.holder == Holder::Memory {
            times.memory
        } else {
            Span::ZERO
        }
    }

    fn is_at_rest(&self, at: Time) -> bool {
        self.free <= at && matches!(self.holder, Holder::Cache | Holder::Memory)
    }

    /// When the passage ends that is under way at `at`, of those that are settled.
    fn under_way(&self, at: Time, transfer: Span) -> Time {
        let queue = self.free.max(at) - at;
        at + Span::from_ps(queue.as_ps() % transfer.as_ps().max(1))
    }
}

/// How threads walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// Through so many bytes.
    pub(crate) bytes: u64,
    /// Doing this.
    pub(crate) access: Access,
    /// One access to a line that the core has.
    pub(crate) each: Span,
}

impl Walk {
    fn stride(&self) -> u64 {
        match self.access {
            Access::Bytes { .. } => 1,
            Access::CompareSwap => 8,
        }
    }

    fn writes(&self) -> f64 {
        match self.access {
            Access::Bytes { writes } => writes,
            Access::CompareSwap => 1.0,
        }
    }

    /// How long nobody can take a line away from who has got it: a locked instruction holds it.
    fn locked(&self) -> Span {
        match self.access {
            Access::Bytes { .. } => Span::ZERO,
            Access::CompareSwap => self.each,
        }
    }
}

/// A thread that walks.
#[derive(Clone, Copy, Debug)]
struct Walker {
    core: Core,
    /// What getting a line takes there.
    transfer: Span,
    /// The byte it is at.
    place: u64,
    /// Since when it has the right to access it.
    since: Time,
    /// It may write.
    writes: bool,
    /// When it has to ask again.
    next: Time,
    /// The access that it asks for then is a write.
    must_write: bool,
}

/// The lines of a machine that are fought for.
#[derive(Debug)]
pub(crate) struct Contest {
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

impl Contest {
    pub(crate) fn new(times: LineTimes, random: Random) -> Self {
        Contest {
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

    /// Lets the threads walk on until `until`.
    fn advance(&mut self, until: Time) {
        let Some(walk) = self.walk else { return };
        loop {
            let walkers = self.walkers.iter().enumerate();
            let next = walkers.min_by_key(|(_, walker)| walker.next);
            match next {
                Some((index, walker)) if walker.next <= until => self.step(index, &walk),
                _ => return,
            }
        }
    }

    /// A thread goes on to where it needs a right that it lacks, and asks for it.
    fn step(&mut self, index: usize, walk: &Walk) {
        let walker = &mut self.walkers[index];
        let (now, stride) = (walker.next, walk.stride());
        let made = ((now - walker.since).as_ps() / walk.each.as_ps().max(1)).max(1);
        walker.place = (walker.place + made * stride) % walk.bytes;
        let number = walker.place / LINE;
        let left = (walk.bytes.min((number + 1) * LINE) - walker.place).div_ceil(stride);
        let (core, transfer) = (walker.core, walker.transfer);
        let is_write = walker.must_write || self.random.unit() < walk.writes();
        if let Some(sibling) = self.asked_already(index, number) {
            let walker = &mut self.walkers[index];
            (walker.since, walker.writes) = (sibling.since, true);
            walker.next = sibling.next.min(sibling.since + walk.each * left);
            walker.must_write = false;
            return;
        }
        let line = self.lines.entry((WALKED, number)).or_insert_with(Line::new);
        let span = transfer + line.fetch(&self.times);
        let (since, count) = if is_write {
            let (since, is_taken) = line.grant_write(core, now, span);
            if is_taken {
                line.free = since + walk.locked();
                self.lose(number, since, Some(core));
            }
            (since, left)
        } else {
            let (since, is_taken) = line.grant_read(core, now, span);
            if is_taken {
                self.lose(number, since, Some(core));
            }
            (since, self.reads(walk, left))
        };
        let walker = &mut self.walkers[index];
        (walker.since, walker.writes) = (since, is_write);
        walker.next = since + walk.each * count;
        walker.must_write = count < left;
    }

    /// A thread of the same core that waits to write the same line: the core asks but once.
    fn asked_already(&self, index: usize, number: u64) -> Option<Walker> {
        let (core, now) = (self.walkers[index].core, self.walkers[index].next);
        let mut others = self.walkers.iter().enumerate();
        let found = others.find(|(other, w)| {
            *other != index
                && w.core == core
                && w.place / LINE == number
                && w.writes
                && w.since > now
        });
        found.map(|(_, walker)| *walker)
    }

    /// How many accesses a thread makes until its next write, of at most `left`.
    fn reads(&mut self, walk: &Walk, left: u64) -> u64 {
        let mut count = 1;
        while count < left && self.random.unit() >= walk.writes() {
            count += 1;
        }
        count
    }

    /// All but `keeper` lose a line at `at`, or their right to write it: they ask again.
    fn lose(&mut self, number: u64, at: Time, keeper: Option<Core>) {
        let Some(walk) = self.walk else { return };
        for walker in &mut self.walkers {
            let is_there = walker.place / LINE == number;
            if is_there && keeper != Some(walker.core) && walker.since < at && at < walker.next {
                walker.next = at.max(walker.since + walk.each);
                walker.must_write = false;
            }
        }
    }
}

impl Line {
    /// A core asks at `at` for the right to write; returns when it has it, and whether others lose the
    /// line then.
    fn grant_write(&mut self, core: Core, at: Time, span: Span) -> (Time, bool) {
        if self.holder == Holder::Writer(core) {
            return (at.max(self.granted), false);
        }
        let since = self.pass(at, span);
        self.holder = Holder::Writer(core);
        (since, true)
    }

    /// The same for the right to read.
    fn grant_read(&mut self, core: Core, at: Time, span: Span) -> (Time, bool) {
        match &mut self.holder {
            Holder::Writer(writer) if *writer == core => (at.max(self.granted), false),
            Holder::Readers(cores) if cores.contains(&core) => (at.max(self.granted), false),
            Holder::Readers(cores) => {
                cores.push(core);
                let since = at.max(self.begun) + span;
                self.free = self.free.max(since);
                self.granted = self.free;
                (since, false)
            }
            Holder::Writer(writer) => {
                let cores = vec![*writer, core];
                let since = self.pass(at, span);
                self.holder = Holder::Readers(cores);
                (since, true)
            }
            Holder::Cache | Holder::Memory => {
                let since = self.pass(at, span);
                self.holder = Holder::Readers(vec![core]);
                (since, false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use adverb_sim::Seed;

    use super::*;

    const TIMES: LineTimes = LineTimes {
        transfer: Span::from_ns(20),
        memory: Span::from_ns(90),
        snoop: Span::from_ns(60),
        conflict: Span::from_ns(100),
    };

    fn contest(cores: impl IntoIterator<Item = u32>, bytes: u64, access: Access) -> Contest {
        let mut contest = Contest::new(TIMES, Seed(1).stream("load", 0));
        let walk = Walk {
            bytes,
            access,
            each: Span::from_ns(2),
        };
        let cores = cores.into_iter().map(|core| (Core(core), TIMES.transfer));
        contest.begin(walk, cores);
        contest
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
    fn pace(contest: &mut Contest, access: impl Fn(&mut Contest, Time) -> Time) -> f64 {
        let mut now = at(1_000);
        for _ in 0..100 {
            now = access(contest, now);
        }
        (now - at(1_000)).as_ns_f64() / 100.0
    }

    fn writing(contest: &mut Contest) -> f64 {
        pace(contest, |c, now| c.allocate(bytes(0, 8), now))
    }

    #[test]
    fn nobody_waits_where_nobody_else_is() {
        let mut alone = contest([], 64, WRITES);
        assert_eq!(alone.allocate(bytes(0, 4096), at(5)), at(5));
        assert_eq!(alone.read(bytes(0, 4096), at(6)), at(6));
    }

    #[test]
    fn the_root_port_waits_for_one_turn_of_each_core() {
        for cores in [1, 2, 4, 12] {
            let turns = writing(&mut contest(0..cores, 64, WRITES)) / 20.0;
            let expected = f64::from(cores + 1);
            assert!((turns - expected).abs() < 0.3, "{turns} turns of {cores}");
        }
    }

    #[test]
    fn hyper_threads_of_a_core_share_its_turn() {
        let cores = writing(&mut contest(0..4, 64, WRITES));
        let threads = writing(&mut contest((0..8).map(|t| t % 4), 64, WRITES));
        assert!(
            (threads / cores - 1.0).abs() < 0.15,
            "{threads} and {cores}"
        );
    }

    #[test]
    fn readers_get_their_copies_side_by_side() {
        let share = |writes| writing(&mut contest(0..12, 64, Access::Bytes { writes }));
        assert!(share(0.0) < share(0.5) && share(0.5) < share(0.9));
        assert!(share(0.0) < 3.0 * 20.0, "{}", share(0.0));
    }

    #[test]
    fn a_locked_instruction_keeps_the_line() {
        let swaps = writing(&mut contest(0..8, 64, Access::CompareSwap));
        let stores = writing(&mut contest(0..8, 64, WRITES));
        assert!(swaps > stores * 1.05, "{swaps} and {stores}");
    }

    #[test]
    fn the_more_lines_there_are_the_less_each_is_wanted() {
        let mut last = f64::INFINITY;
        for lines in [1, 2, 8, 64] {
            let pace = writing(&mut contest(0..8, 64 * lines, WRITES));
            assert!(pace < last, "{pace} for {lines} lines, {last} for fewer");
            last = pace;
        }
    }

    #[test]
    fn snoops_from_the_other_socket_come_first() {
        let across = pace(&mut contest(0..12, 64, WRITES), |c, now| {
            c.read_across(bytes(0, 8), now)
        });
        let within = pace(&mut contest(0..12, 64, WRITES), |c, now| {
            c.read(bytes(0, 8), now)
        });
        assert!(across < within, "{across} and {within}");
    }

    #[test]
    fn writes_across_wait_for_no_core_but_for_one_another() {
        let mut fought = contest(0..12, 64, WRITES);
        let begun = fought.invalidate(bytes(0, 8), at(1_000));
        assert_eq!(begun, at(1_000), "cores do not keep it waiting");
        let write = |c: &mut Contest, now| c.invalidate(bytes(0, 8), now);
        let each = pace(&mut fought, write);
        let (snoop, passage) = (TIMES.snoop.as_ns_f64(), TIMES.transfer.as_ns_f64());
        assert!((snoop..snoop + passage).contains(&each), "{each}");
        let mut quiet = contest([], 64, WRITES);
        assert_eq!(pace(&mut quiet, write), 0.0, "nobody wants the line");
    }

    #[test]
    fn parts_of_a_line_pass_memory_one_after_another_and_lines_side_by_side() {
        let mut off = contest([], 64, WRITES);
        let merged = pace(&mut off, |c, now| c.bypass(bytes(0, 8), now));
        assert!((merged - 240.0).abs() < 5.0, "{merged}");
        let mut off = contest([], 64, WRITES);
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
