//! A socket's last-level cache, line by line: what is in it, and what has to leave.
//!
//! Cores fill all ways of a set. Writes of devices that miss fill only the ways that are open to them
//! (Intel calls this DDIO), but hit in any way; reads of devices fill none. It knows no times: who
//! asks adds what a hit, a miss or the eviction of a dirty line takes.

use std::ops::Range;

use crate::host::pcie::LINE;
use crate::params::Memory;

/// A line of memory: its address in units of 64 B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(pub u64);

impl Line {
    /// The line that holds the byte at `address`.
    pub fn of(address: u64) -> Self {
        Line(address / LINE)
    }
}

/// What a core does with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it.
    Load,
    /// Writes to it: memory is out of date then.
    Store,
}

/// What left the cache for a line that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// There was room.
    Nothing,
    /// A line that memory has too.
    Clean(Line),
    /// A line that has to be written to memory first.
    Dirty(Line),
}

/// Whether a line was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It was.
    Hit,
    /// It was not, and came in the place of another one.
    Filled(Evicted),
    /// It was not, and still is not.
    Absent,
}

impl Found {
    /// Whether it was there.
    pub fn is_hit(self) -> bool {
        self == Found::Hit
    }
}

/// The cache: sets of ways. A random way of a full set is evicted.
///
/// Intel does not publish what its caches evict. With random replacement a ring that is used in turn
/// keeps a share of what does not fit, where the least recently used would keep nothing.
///
/// Lines are spread over the sets by a hash, as Intel's are over slices, and as physical pages are.
///
/// ```
/// use adverb_hwmodel::Preset;
/// use adverb_hwmodel::llc::{Evicted, Found, Line, Llc};
///
/// let mut llc = Llc::new(&Preset::built_in("cx3")?.params.memory, 7);
/// let line = Line::of(0x1000);
/// assert_eq!(llc.dma_read(line), Found::Absent);
/// assert_eq!(llc.dma_write(line), Found::Filled(Evicted::Nothing));
/// assert_eq!(llc.dma_read(line), Found::Hit);
/// # Ok::<(), adverb_hwmodel::PresetError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Llc {
    sets: u64,
    ways: usize,
    /// The last ways of each set are those that devices may fill.
    device_ways: usize,
    /// Each way of each set.
    held: Vec<Held>,
    /// Of the hash.
    seed: u64,
    random: u64,
}

/// A way: empty (0), or a line and whether it is dirty, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Held(u64);

impl Held {
    const EMPTY: Held = Held(0);
    const VALID: u64 = 1;
    const DIRTY: u64 = 2;

    fn new(line: Line, access: Access) -> Self {
        let mut held = Held(line.0 << 2 | Held::VALID);
        held.access(access);
        held
    }

    fn is(self, line: Line) -> bool {
        self.0 & !Held::DIRTY == line.0 << 2 | Held::VALID
    }

    fn access(&mut self, access: Access) {
        if access == Access::Store {
            self.0 |= Held::DIRTY;
        }
    }

    fn evicted(self) -> Evicted {
        let line = Line(self.0 >> 2);
        match (self.0 & Held::VALID, self.0 & Held::DIRTY) {
            (0, _) => Evicted::Nothing,
            (_, 0) => Evicted::Clean(line),
            _ => Evicted::Dirty(line),
        }
    }
}

impl Llc {
    /// An empty cache of `memory.llc_mib` in `memory.llc_ways` ways, of which devices may fill
    /// `memory.ddio_ways`: all, if it has fewer. `seed` is that of the hash and of what goes.
    pub fn new(memory: &Memory, seed: u64) -> Self {
        let (sets, ways, device_ways) = shape(memory);
        Llc::empty(sets, (ways, device_ways), seed)
    }

    /// The ways of the same cache that devices may fill, alone: for who does not follow what cores use.
    pub(crate) fn of_devices(memory: &Memory, seed: u64) -> Self {
        let (sets, _, device_ways) = shape(memory);
        Llc::empty(sets, (device_ways, device_ways), seed)
    }

    fn empty(sets: u64, (ways, device_ways): (usize, usize), seed: u64) -> Self {
        Llc {
            sets,
            ways,
            device_ways,
            held: vec![Held::default(); sets as usize * ways],
            seed,
            // The generator never leaves zero.
            random: seed | 1,
        }
    }

    /// How many lines it holds.
    pub fn capacity(&self) -> u64 {
        self.sets * self.ways as u64
    }

    /// How many of them devices may fill.
    pub fn device_capacity(&self) -> u64 {
        self.sets * self.device_ways as u64
    }

    /// A core uses a line; it is there afterwards.
    pub fn core(&mut self, line: Line, access: Access) -> Found {
        let set = self.set(line);
        if let Some(place) = self.place(set, line) {
            self.held[place].access(access);
            return Found::Hit;
        }
        Found::Filled(self.fill(set..set + self.ways, line, access))
    }

    /// A device writes to a line. It hits wherever the line is; if it is nowhere, it comes into the ways
    /// that are open to devices. If there are none, memory is written, and the cache holds the line
    /// no more.
    pub fn dma_write(&mut self, line: Line) -> Found {
        if self.device_ways == 0 {
            self.flush(line);
            return Found::Absent;
        }
        let set = self.set(line);
        if let Some(place) = self.place(set, line) {
            self.held[place].access(Access::Store);
            return Found::Hit;
        }
        let end = set + self.ways;
        Found::Filled(self.fill(end - self.device_ways..end, line, Access::Store))
    }

    /// A device reads a line; if it is not there, memory answers and it does not come.
    pub fn dma_read(&self, line: Line) -> Found {
        if self.holds(line) {
            Found::Hit
        } else {
            Found::Absent
        }
    }

    /// The cache holds the line no more: `clflush`, or a write that goes to memory past it.
    pub fn flush(&mut self, line: Line) {
        let set = self.set(line);
        if let Some(place) = self.place(set, line) {
            self.held[place] = Held::EMPTY;
        }
    }

    /// Whether the line is there; asking does not use it.
    pub fn holds(&self, line: Line) -> bool {
        self.place(self.set(line), line).is_some()
    }

    /// Index of the first way of the set that `line` belongs to.
    fn set(&self, line: Line) -> usize {
        let set = (u128::from(mixed(line.0 ^ self.seed)) * u128::from(self.sets)) >> 64;
        set as usize * self.ways
    }

    fn place(&self, set: usize, line: Line) -> Option<usize> {
        (set..set + self.ways).find(|place| self.held[*place].is(line))
    }

    fn fill(&mut self, ways: Range<usize>, line: Line, access: Access) -> Evicted {
        let empty = ways.clone().find(|place| self.held[*place] == Held::EMPTY);
        let place = empty.unwrap_or_else(|| ways.start + self.choose(ways.len()));
        std::mem::replace(&mut self.held[place], Held::new(line, access)).evicted()
    }

    /// A random number below `choices`: xorshift64 (Marsaglia 2003).
    fn choose(&mut self, choices: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((u128::from(self.random) * choices as u128) >> 64) as usize
    }
}

/// The finalizer of splitmix64 (Steele et al. 2014): each bit of the result depends on all bits.
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Sets, ways, and those of the ways that devices may fill.
fn shape(memory: &Memory) -> (u64, usize, usize) {
    let ways = memory.llc_ways as usize;
    let lines = (memory.llc_mib * f64::from(1 << 20)) as u64 / LINE;
    let sets = (lines / ways as u64).max(1);
    (sets, ways, (memory.ddio_ways as usize).min(ways))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One MiB in 16 ways: 1024 sets.
    fn llc(device_ways: u32) -> Llc {
        let memory = Memory {
            llc_mib: 1.0,
            llc_ways: 16,
            ddio_ways: device_ways,
            ..Memory::default()
        };
        Llc::new(&memory, 3)
    }

    /// Share of hits of the second of two rounds over `lines` lines.
    fn second_round(lines: u64, mut access: impl FnMut(Line) -> Found) -> f64 {
        for line in 0..lines {
            access(Line(line));
        }
        let hits = (0..lines).filter(|line| access(Line(*line)).is_hit());
        hits.count() as f64 / lines as f64
    }

    #[test]
    fn cores_use_all_of_it_and_devices_write_into_their_share() {
        let mut all = llc(2);
        assert_eq!((all.capacity(), all.device_capacity()), (16_384, 2_048));
        assert!(second_round(8_192, |line| all.core(line, Access::Load)) > 0.97);
        let mut share = llc(2);
        assert!(second_round(256, |line| share.dma_write(line)) > 0.95);
        // As many lines as places: where the hash puts more than two into a set, some go.
        let some = second_round(2_048, |line| share.dma_write(line));
        assert!((0.5..0.7).contains(&some), "{some}");
        assert!(second_round(16_384, |line| share.dma_write(line)) < 0.05);
        let mut half = llc(8);
        assert!(second_round(4_096, |line| half.dma_write(line)) > 0.9);
    }

    #[test]
    fn device_writes_hit_where_a_core_put_the_line() {
        let mut llc = llc(2);
        for line in 0..8_192 {
            llc.core(Line(line), Access::Load);
        }
        let hits = (0..8_192).filter(|line| llc.dma_write(Line(*line)).is_hit());
        assert!(hits.count() > 7_800);
    }

    #[test]
    fn devices_evict_only_from_their_ways() {
        let mut llc = llc(2);
        for line in 0..65_536 {
            llc.core(Line(line), Access::Load);
        }
        let held = |llc: &Llc| (0..65_536).filter(|line| llc.holds(Line(*line))).count();
        let before = held(&llc);
        for line in 100_000..165_536 {
            llc.dma_write(Line(line));
        }
        assert_eq!(before, 16_384);
        assert_eq!(held(&llc), 14 * 1_024);
    }

    #[test]
    fn reads_of_devices_bring_nothing_and_without_ways_writes_take_the_line_away() {
        let mut llc = llc(0);
        assert_eq!(llc.dma_read(Line(5)), Found::Absent);
        assert!(!llc.holds(Line(5)));
        llc.core(Line(5), Access::Load);
        assert_eq!(llc.dma_read(Line(5)), Found::Hit);
        assert_eq!(llc.dma_write(Line(5)), Found::Absent);
        assert_eq!(llc.dma_read(Line(5)), Found::Absent);
    }

    #[test]
    fn what_was_written_leaves_dirty_and_what_was_read_clean() {
        let memory = Memory {
            llc_mib: 64.0 / f64::from(1 << 20),
            llc_ways: 1,
            ddio_ways: 1,
            ..Memory::default()
        };
        // One line.
        let mut llc = Llc::new(&memory, 0);
        assert_eq!(
            llc.core(Line(1), Access::Load),
            Found::Filled(Evicted::Nothing)
        );
        assert_eq!(
            llc.dma_write(Line(2)),
            Found::Filled(Evicted::Clean(Line(1)))
        );
        assert_eq!(
            llc.core(Line(3), Access::Load),
            Found::Filled(Evicted::Dirty(Line(2)))
        );
        assert_eq!(llc.core(Line(3), Access::Store), Found::Hit);
        assert_eq!(
            llc.core(Line(4), Access::Load),
            Found::Filled(Evicted::Dirty(Line(3)))
        );
        llc.flush(Line(4));
        assert_eq!(
            llc.core(Line(5), Access::Load),
            Found::Filled(Evicted::Nothing)
        );
    }
}
