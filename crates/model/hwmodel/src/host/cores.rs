//! What a core takes for a program's own work, and how cores share words.

use std::collections::HashMap;

use adverb_units::{Span, Time};
use adverb_verbs::{Level, Work};

use crate::params::Params;
use crate::rate::ns;
use crate::resource::Server;

/// A core's times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Core {
    llc: Span,
    dram: Span,
    line_fills: u64,
    request: Span,
    lookup: Span,
    atomic: Span,
}

impl Core {
    pub(crate) fn new(p: &Params) -> Self {
        Core {
            llc: ns(p.memory.llc_ns),
            dram: ns(p.memory.dram_ns),
            line_fills: p.cpu.line_fills.into(),
            request: ns(p.cpu.request_ns),
            lookup: ns(p.cpu.lookup_ns),
            atomic: ns(p.cpu.atomic_ns),
        }
    }

    /// What work takes that concerns no other core.
    pub(crate) fn time(&self, work: Work) -> Span {
        match work {
            Work::Load { lines, from } => self.load(lines.into(), from),
            Work::Decode { requests } => self.request * u64::from(requests),
            Work::Lookup { keys } => self.lookup * u64::from(keys),
            _ => self.atomic,
        }
    }

    /// A core waits for several lines at a time; the first of them takes its whole time.
    fn load(&self, lines: u64, from: Level) -> Span {
        let one = match from {
            Level::Cache => self.llc,
            Level::Memory => self.dram,
        };
        match lines {
            0 => Span::ZERO,
            n if n <= self.line_fills => one,
            n => one * n / self.line_fills,
        }
    }
}

/// The cache line of a shared word: the core that had it last, and when the next one may have it.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    owner: Option<u32>,
    turns: Server,
}

/// The words that cores of a machine share.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    lines: HashMap<u64, Line>,
    /// Getting a line that another core has: through the last-level cache.
    fetch: Span,
    /// How long a line stays with the core that it came to.
    transfer: Span,
    /// An atomic instruction on a line that the core has.
    own: Span,
}

impl Words {
    pub(crate) fn new(p: &Params) -> Self {
        Words {
            lines: HashMap::new(),
            fetch: ns(p.memory.llc_ns),
            transfer: ns(p.memory.line_transfer_ns),
            own: ns(p.cpu.atomic_ns),
        }
    }

    /// An atomic instruction of `core` at `at`; returns when it has been carried out.
    ///
    /// The line goes from core to core in the order of their asking; a core that still has it does
    /// not ask.
    pub(crate) fn atomic(&mut self, word: u64, core: u32, at: Time) -> Time {
        let line = self.lines.entry(word).or_default();
        let has_it = line.owner == Some(core) && line.turns.free() <= at;
        if has_it || line.owner.is_none() {
            line.owner = Some(core);
            return line.turns.serve(at, self.own);
        }
        line.owner = Some(core);
        line.turns.serve(at, self.transfer) + self.fetch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;

    fn params() -> Params {
        Preset::built_in("connect_ib").unwrap().params
    }

    #[test]
    fn lines_are_waited_for_together() {
        let p = params();
        let core = Core::new(&p);
        let load = |lines| {
            let from = Level::Memory;
            core.time(Work::Load { lines, from })
        };
        let fills = p.cpu.line_fills;
        assert_eq!(load(0), Span::ZERO);
        assert_eq!(load(1), ns(p.memory.dram_ns));
        assert_eq!(load(fills), load(1));
        assert_eq!(load(3 * fills), load(1) * 3);
    }

    #[test]
    fn a_word_is_cheap_for_who_has_it_and_passed_on_among_others() {
        let p = params();
        let mut words = Words::new(&p);
        let at = |ns| Time::ZERO + Span::from_ns(ns);
        let first = words.atomic(1, 0, at(0));
        assert_eq!(first - at(0), ns(p.cpu.atomic_ns));
        assert_eq!(words.atomic(1, 0, at(100)) - at(100), first - at(0));
        let passed = ns(p.memory.llc_ns + p.memory.line_transfer_ns);
        assert_eq!(words.atomic(1, 1, at(200)) - at(200), passed);
        // Another one that asks at the same time has it one transfer later; other words are free.
        let behind = passed + ns(p.memory.line_transfer_ns);
        assert_eq!(words.atomic(1, 2, at(200)) - at(200), behind);
        assert_eq!(words.atomic(2, 2, at(200)) - at(200), first - at(0));
    }
}
