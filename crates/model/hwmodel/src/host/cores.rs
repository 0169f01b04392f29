//! The costs of a program's own work on a core, and of words that cores share.

use std::collections::HashMap;

use adverb_units::{Span, Time};
use adverb_verbs::{Level, Work};

use crate::host::root::Root;
use crate::params::{CpuParams, MemoryParams, Params};
use crate::resource::Server;

#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreTimes {
    pub(crate) cpu: CpuParams,
    memory: MemoryParams,
    /// Loading a line that the NIC has just written.
    pub(crate) fresh_line: Span,
}

impl CoreTimes {
    pub(crate) fn new(p: &Params, root: &Root) -> Self {
        CoreTimes {
            cpu: p.cpu,
            memory: p.memory,
            fresh_line: if root.allocates() {
                p.memory.llc_ns
            } else {
                p.memory.dram_ns
            },
        }
    }

    /// Additional time of loading a line from the other socket.
    pub(crate) fn hop(&self) -> Span {
        self.memory.numa_extra_ns
    }

    /// Returns the cost of work that involves no other core.
    pub(crate) fn time(&self, work: Work) -> Span {
        match work {
            Work::Load { lines, from } => self.load(lines.into(), from),
            Work::Decode { requests } => self.cpu.request_ns * u64::from(requests),
            Work::Lookup { keys } => self.cpu.lookup_ns * u64::from(keys),
            _ => self.cpu.atomic_ns,
        }
    }

    /// Cache misses overlap, up to the number of line fill buffers, and not beyond the bandwidth of memory.
    fn load(&self, lines: u64, from: Level) -> Span {
        let one = match from {
            Level::Cache => self.memory.llc_ns,
            Level::Memory => self.memory.dram_ns,
        };
        let line_fills = self.cpu.line_fills.into();
        let overlapped = match lines {
            0 => Span::ZERO,
            n if n <= line_fills => one,
            n => one * n / line_fills,
        };
        match from {
            Level::Cache => overlapped,
            Level::Memory => overlapped.max(self.memory.line_ns * lines),
        }
    }
}

/// The cache line of a shared word: its last owner, and when the next core may take it.
#[derive(Clone, Copy, Debug, Default)]
struct WordLine {
    owner: Option<u32>,
    turns: Server,
}

#[derive(Clone, Debug)]
pub(crate) struct Words {
    lines: HashMap<u64, WordLine>,
    /// Moving a line that another core has modified.
    hand_over: Span,
    /// An atomic instruction on a line that the core owns.
    own: Span,
}

impl Words {
    pub(crate) fn new(p: &Params) -> Self {
        Words {
            lines: HashMap::new(),
            hand_over: p.memory.hand_over(),
            own: p.cpu.atomic_ns,
        }
    }

    /// Returns how long the busiest line was being moved or changed.
    pub(crate) fn busy(&self) -> Span {
        let lines = self.lines.values().map(|line| line.turns.busy());
        lines.max().unwrap_or_default()
    }

    /// Executes an atomic instruction of `core` at `at`; returns when it is complete.
    ///
    /// The line moves from core to core in the order of their requests: to the next one when the core before has received
    /// it and executed its instruction. A core that still owns it need not request it.
    pub(crate) fn atomic(&mut self, word: u64, core: u32, at: Time) -> Time {
        let line = self.lines.entry(word).or_default();
        let owns_it = line.owner == Some(core) && line.turns.free() <= at;
        let span = match owns_it || line.owner.is_none() {
            true => self.own,
            false => self.hand_over + self.own,
        };
        line.owner = Some(core);
        line.turns.serve(at, span)
    }
}

#[cfg(test)]
mod tests {
    use adverb_sim::Seed;

    use super::*;
    use crate::host::placement::Placement;
    use crate::preset::Preset;

    fn params() -> Params {
        Preset::built_in("connect_ib").unwrap().params
    }

    #[test]
    fn cache_misses_overlap() {
        let p = params();
        let root = Root::new(&p, Placement::Cached, |name| Seed(1).stream(name, 0));
        let core = CoreTimes::new(&p, &root);
        let load = |lines| {
            let from = Level::Memory;
            core.time(Work::Load { lines, from })
        };
        let fills = p.cpu.line_fills;
        assert_eq!(load(0), Span::ZERO);
        assert_eq!(load(1), p.memory.dram_ns);
        assert_eq!(load(fills), load(1));
        assert_eq!(load(3 * fills), load(1) * 3);
    }

    #[test]
    fn a_core_does_not_exceed_the_bandwidth_of_memory() {
        let mut p = params();
        p.memory.line_ns = p.memory.dram_ns;
        let root = Root::new(&p, Placement::Cached, |name| Seed(1).stream(name, 0));
        let core = CoreTimes::new(&p, &root);
        let load = |from| core.time(Work::Load { lines: 100, from });
        assert_eq!(load(Level::Memory), p.memory.line_ns * 100);
        assert_eq!(load(Level::Cache), p.memory.llc_ns * 10);
    }

    #[test]
    fn a_word_is_cheap_for_its_owner_and_moves_to_others_one_after_another() {
        let p = params();
        let mut words = Words::new(&p);
        let at = |ns| Time::ZERO + Span::from_ns(ns);
        let first = words.atomic(1, 0, at(0));
        assert_eq!(first - at(0), p.cpu.atomic_ns);
        assert_eq!(words.atomic(1, 0, at(100)) - at(100), first - at(0));
        let moved = p.memory.hand_over() + p.cpu.atomic_ns;
        assert_eq!(words.atomic(1, 1, at(200)) - at(200), moved);
        // It was one transfer, before the first core had the line. Other words are not affected.
        assert_eq!(words.atomic(1, 2, at(200)) - at(200), moved * 2);
        assert_eq!(words.atomic(2, 2, at(200)) - at(200), first - at(0));
    }
}
