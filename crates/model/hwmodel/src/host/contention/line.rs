//! One cache line: its holder, and those that wait for it.

use adverb_units::{Span, Time};

/// A physical core of a machine; its hyper-threads share its caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Core(pub(crate) u32);

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

/// Who has a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
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
pub(super) struct Line {
    /// Who has it, once all that is settled has happened.
    pub(super) holder: Holder,
    /// Since when.
    pub(super) granted: Time,
    /// When the last settled passage begins.
    pub(super) begun: Time,
    /// When the next one may begin.
    pub(super) free: Time,
    /// When the root port has got what it asked for last.
    pub(super) root: Time,
}

impl Line {
    pub(super) fn new() -> Self {
        Line {
            holder: Holder::Cache,
            granted: Time::ZERO,
            begun: Time::ZERO,
            free: Time::ZERO,
            root: Time::ZERO,
        }
    }

    /// Passes the line on to an agent that asks at `at`; returns when it arrives.
    pub(super) fn pass(&mut self, at: Time, span: Span) -> Time {
        self.begun = at.max(self.free);
        self.free = self.begun + span;
        self.granted = self.free;
        self.free
    }

    pub(super) fn fetch(&self, times: &LineTimes) -> Span {
        if self.holder == Holder::Memory {
            times.memory
        } else {
            Span::ZERO
        }
    }

    pub(super) fn is_at_rest(&self, at: Time) -> bool {
        self.free <= at && matches!(self.holder, Holder::Cache | Holder::Memory)
    }

    /// When the passage ends that is under way at `at`, of those that are settled.
    pub(super) fn under_way(&self, at: Time, transfer: Span) -> Time {
        let queue = self.free.max(at) - at;
        at + Span::from_ps(queue.as_ps() % transfer.as_ps().max(1))
    }

    /// A core asks at `at` for the right to write; returns when it has it, and whether others lose the
    /// line then.
    pub(super) fn grant_write(&mut self, core: Core, at: Time, span: Span) -> (Time, bool) {
        if self.holder == Holder::Writer(core) {
            return (at.max(self.granted), false);
        }
        let since = self.pass(at, span);
        self.holder = Holder::Writer(core);
        (since, true)
    }

    /// The same for the right to read.
    pub(super) fn grant_read(&mut self, core: Core, at: Time, span: Span) -> (Time, bool) {
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
