//! A socket's last-level cache: which lines it holds, and which it evicts.
//!
//! Cores fill all ways of a set. A device write that misses fills one of the ways that are open to devices
//! (Intel calls this DDIO), but may hit in any way. Device reads fill none. The cache has no notion of
//! time: callers add the cost of a hit, a miss, or the eviction of a dirty line.

use std::ops::Range;

use crate::host::pcie::LINE;
use crate::params::MemoryParams;
use crate::resource::xorshift;

/// A line of memory: its address in units of 64 B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Line(pub(crate) u64);

impl Line {
    /// The line that holds the byte at `address`.
    pub(crate) fn of(address: u64) -> Self {
        Line(address / LINE)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Load,
    /// It writes to the line, which makes it dirty.
    Store,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Hit,
    /// The line was missing, and was filled.
    Filled,
    /// The same, and it replaced a dirty line, which must be written to memory first.
    FilledOverDirty,
    /// The line was missing, and was not filled.
    Absent,
}

impl Found {
    pub(crate) fn is_hit(self) -> bool {
        self == Found::Hit
    }
}

/// A set-associative cache with random replacement.
///
/// Intel does not publish the replacement of its caches. With random replacement, part of a ring that does
/// not fit still hits; with LRU, nothing would.
///
/// A hash spreads lines over the sets, as Intel's slices and physical page numbers do.
#[derive(Clone, Debug)]
pub(crate) struct Llc {
    sets: u64,
    ways: usize,
    /// Number of ways that devices may fill: the last ones of each set.
    device_ways: usize,
    /// The ways of all sets.
    all_ways: Vec<Way>,
    /// Seed of the hash.
    seed: u64,
    random: u64,
}

/// A way: empty (0), or a line and whether it is dirty, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Way(u64);

impl Way {
    const EMPTY: Way = Way(0);
    const VALID: u64 = 1;
    const DIRTY: u64 = 2;

    fn new(line: Line, access: AccessKind) -> Self {
        let mut held = Way(line.0 << 2 | Way::VALID);
        held.access(access);
        held
    }

    fn is(self, line: Line) -> bool {
        self.0 & !Way::DIRTY == line.0 << 2 | Way::VALID
    }

    fn access(&mut self, access: AccessKind) {
        if access == AccessKind::Store {
            self.0 |= Way::DIRTY;
        }
    }

    fn is_dirty(self) -> bool {
        self.0 & Way::DIRTY != 0
    }
}

impl Llc {
    /// An empty cache of `memory.llc_mib` with `memory.llc_ways` ways; devices may fill `memory.ddio_ways`
    /// of them, or all if there are fewer. `seed` determines the hash and the replacement.
    pub(crate) fn new(memory: &MemoryParams, seed: u64) -> Self {
        let (sets, ways, device_ways) = shape(memory);
        Llc::empty(sets, (ways, device_ways), seed)
    }

    /// Only the ways that devices may fill, for callers that do not track the accesses of cores.
    pub(crate) fn of_devices(memory: &MemoryParams, seed: u64) -> Self {
        let (sets, _, device_ways) = shape(memory);
        Llc::empty(sets, (device_ways, device_ways), seed)
    }

    fn empty(sets: u64, (ways, device_ways): (usize, usize), seed: u64) -> Self {
        Llc {
            sets,
            ways,
            device_ways,
            all_ways: vec![Way::default(); sets as usize * ways],
            seed,
            // xorshift maps 0 to 0.
            random: seed | 1,
        }
    }

    /// Its capacity in lines.
    pub(crate) fn capacity(&self) -> u64 {
        self.sets * self.ways as u64
    }

    /// The part of it that devices may fill.
    pub(crate) fn device_capacity(&self) -> u64 {
        self.sets * self.device_ways as u64
    }

    /// A core accesses a line, which is cached afterwards.
    pub(crate) fn core(&mut self, line: Line, access: AccessKind) -> Found {
        let set = self.set(line);
        if let Some(place) = self.place(set, line) {
            self.all_ways[place].access(access);
            return Found::Hit;
        }
        self.fill(set..set + self.ways, line, access)
    }

    /// A device writes a line. It may hit in any way; if it misses, it fills a way that is open to devices.
    /// If no way is, it writes memory, and invalidates a cached copy.
    pub(crate) fn dma_write(&mut self, line: Line) -> Found {
        if self.device_ways == 0 {
            self.flush(line);
            return Found::Absent;
        }
        let set = self.set(line);
        if let Some(place) = self.place(set, line) {
            self.all_ways[place].access(AccessKind::Store);
            return Found::Hit;
        }
        let end = set + self.ways;
        self.fill(end - self.device_ways..end, line, AccessKind::Store)
    }

    /// Invalidates a line, as `clflush` does, or a write to memory past the cache.
    pub(crate) fn flush(&mut self, line: Line) {
        let set = self.set(line);
        if let Some(place) = self.place(set, line) {
            self.all_ways[place] = Way::EMPTY;
        }
    }

    /// Whether the line is cached. Reads of devices change nothing, hit or not.
    pub(crate) fn holds(&self, line: Line) -> bool {
        self.place(self.set(line), line).is_some()
    }

    /// Index of the first way of the line's set.
    fn set(&self, line: Line) -> usize {
        let set = (u128::from(mixed(line.0 ^ self.seed)) * u128::from(self.sets)) >> 64;
        set as usize * self.ways
    }

    fn place(&self, set: usize, line: Line) -> Option<usize> {
        (set..set + self.ways).find(|place| self.all_ways[*place].is(line))
    }

    fn fill(&mut self, ways: Range<usize>, line: Line, access: AccessKind) -> Found {
        let empty = ways
            .clone()
            .find(|place| self.all_ways[*place] == Way::EMPTY);
        let place = empty.unwrap_or_else(|| ways.start + xorshift(&mut self.random, ways.len()));
        let evicted = std::mem::replace(&mut self.all_ways[place], Way::new(line, access));
        match evicted.is_dirty() {
            true => Found::FilledOverDirty,
            false => Found::Filled,
        }
    }
}

/// The finalizer of splitmix64 (Steele et al. 2014): each bit of the result depends on all bits.
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns the number of sets, of ways, and of ways that devices may fill.
fn shape(memory: &MemoryParams) -> (u64, usize, usize) {
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
        let memory = MemoryParams {
            llc_mib: 1.0,
            llc_ways: 16,
            ddio_ways: device_ways,
            ..MemoryParams::default()
        };
        Llc::new(&memory, 3)
    }

    /// Hit rate of the second of two rounds over `lines` lines.
    fn second_round(lines: u64, mut access: impl FnMut(Line) -> Found) -> f64 {
        for line in 0..lines {
            access(Line(line));
        }
        let hits = (0..lines).filter(|line| access(Line(*line)).is_hit());
        hits.count() as f64 / lines as f64
    }

    #[test]
    fn cores_fill_all_ways_and_devices_fill_theirs() {
        let mut all = llc(2);
        assert_eq!((all.capacity(), all.device_capacity()), (16_384, 2_048));
        assert!(second_round(8_192, |line| all.core(line, AccessKind::Load)) > 0.97);
        let mut share = llc(2);
        assert!(second_round(256, |line| share.dma_write(line)) > 0.95);
        // As many lines as places: sets that the hash gives more than two lines evict some.
        let some = second_round(2_048, |line| share.dma_write(line));
        assert!((0.5..0.7).contains(&some), "{some}");
        assert!(second_round(16_384, |line| share.dma_write(line)) < 0.05);
        let mut half = llc(8);
        assert!(second_round(4_096, |line| half.dma_write(line)) > 0.9);
    }

    #[test]
    fn device_writes_hit_lines_that_a_core_filled() {
        let mut llc = llc(2);
        for line in 0..8_192 {
            llc.core(Line(line), AccessKind::Load);
        }
        let hits = (0..8_192).filter(|line| llc.dma_write(Line(*line)).is_hit());
        assert!(hits.count() > 7_800);
    }

    #[test]
    fn devices_evict_only_from_their_ways() {
        let mut llc = llc(2);
        for line in 0..65_536 {
            llc.core(Line(line), AccessKind::Load);
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
    fn writes_without_ways_invalidate() {
        let mut llc = llc(0);
        assert!(!llc.holds(Line(5)));
        llc.core(Line(5), AccessKind::Load);
        assert!(llc.holds(Line(5)));
        assert_eq!(llc.dma_write(Line(5)), Found::Absent);
        assert!(!llc.holds(Line(5)));
    }

    #[test]
    fn written_lines_are_evicted_dirty_and_read_ones_clean() {
        let memory = MemoryParams {
            llc_mib: 64.0 / f64::from(1 << 20),
            llc_ways: 1,
            ddio_ways: 1,
            ..MemoryParams::default()
        };
        // One line.
        let mut llc = Llc::new(&memory, 0);
        let load = |llc: &mut Llc, line| llc.core(Line(line), AccessKind::Load);
        assert_eq!(load(&mut llc, 1), Found::Filled);
        assert_eq!(llc.dma_write(Line(2)), Found::Filled);
        assert_eq!(load(&mut llc, 3), Found::FilledOverDirty);
        assert_eq!(llc.core(Line(3), AccessKind::Store), Found::Hit);
        assert_eq!(load(&mut llc, 4), Found::FilledOverDirty);
        llc.flush(Line(4));
        assert_eq!(load(&mut llc, 5), Found::Filled);
    }
}
