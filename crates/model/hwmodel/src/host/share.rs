//! The ways of the last-level cache that the NIC's writes may allocate in (DDIO), line by line.

use adverb_units::Span;

use crate::host::llc::{Found, Line, Llc};
use crate::host::memory::Range;
use crate::host::pcie::LINE;
use crate::params::MemoryParams;

/// Address bits of a line within its region, enough for 64 GiB.
const REGION_LINES_LOG2: u32 = 30;

/// The lines of buffers in memory that the NIC's writes have brought into the ways for devices.
#[derive(Debug)]
pub(super) struct Share {
    llc: Llc,
    /// Fetching a line from memory, or writing it back.
    memory: Span,
}

/// The cost of a write into the share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Filling {
    /// Time until the lines are filled.
    pub(super) wait: Span,
    /// Lines that were read from memory, or written back.
    pub(super) in_memory: u64,
}

impl Share {
    /// An empty share of the cache; `seed` is of its replacement.
    pub(super) fn new(memory: &MemoryParams, seed: u64) -> Self {
        Share {
            llc: Llc::of_devices(memory, seed),
            memory: memory.dma_dram_extra_ns,
        }
    }

    fn lines(range: Range) -> impl Iterator<Item = (Line, bool)> {
        let (begin, end) = (range.offset as u64, (range.offset + range.length) as u64);
        let region = u64::from(range.region) << REGION_LINES_LOG2;
        (begin / LINE..end.div_ceil(LINE)).map(move |number| {
            let is_whole = begin <= number * LINE && (number + 1) * LINE <= end;
            (Line(region | number), is_whole)
        })
    }

    /// The NIC writes a range. A filled line waits until a dirty one is written back, and until the rest of
    /// a partly written line is fetched; all lines of the range do so concurrently.
    pub(super) fn write(&mut self, range: Range) -> Filling {
        let mut filling = Filling::default();
        for (line, is_whole) in Share::lines(range) {
            let written_back = match self.llc.dma_write(line) {
                Found::Filled => 0,
                Found::FilledOverDirty => 1,
                Found::Hit | Found::Absent => continue,
            };
            let needed = written_back + u64::from(!is_whole);
            filling.in_memory += needed;
            if needed > 0 {
                filling.wait = self.memory;
            }
        }
        filling
    }

    pub(super) fn holds(&self, range: Range) -> bool {
        Share::lines(range).all(|(line, _)| self.llc.holds(line))
    }
}
