//! A contended cache line: its holder, and when it is transferred.

use adverb_units::{Span, Time};

/// A physical core of a machine; its hyper-threads share its caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Core(pub(crate) u32);

#[derive(Clone, Copy, Debug)]
pub(crate) struct LineTimes {
    /// From core to core, or between a core and the root port.
    pub(crate) transfer: Span,
    /// Additional time of fetching a line from memory, or writing it back.
    pub(crate) memory: Span,
    /// Snooping all caches of a socket for the root port.
    pub(crate) snoop: Span,
    /// Resolving a conflict between sockets about a line: another round trip between them.
    pub(crate) conflict: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// In the last-level cache, and in no core's cache.
    Cache,
    /// In memory only.
    Memory,
    /// In the cache of the core that writes it.
    Writer(Core),
    /// In the caches of cores that read it.
    Readers(Vec<Core>),
}

/// A line that several agents access, or have accessed.
#[derive(Debug)]
pub(super) struct ContendedLine {
    /// Where it is after the last scheduled transfer.
    pub(super) holder: Holder,
    /// When it arrived there.
    pub(super) granted: Time,
    /// When the last scheduled transfer begins.
    pub(super) begun: Time,
    /// When the next one may begin.
    pub(super) free: Time,
    /// When the root port's last request for the line ends.
    pub(super) root: Time,
}

impl ContendedLine {
    pub(super) fn new() -> Self {
        ContendedLine {
            holder: Holder::Cache,
            granted: Time::ZERO,
            begun: Time::ZERO,
            free: Time::ZERO,
            root: Time::ZERO,
        }
    }

    /// Transfers the line to an agent that requests it at `at`; returns when it arrives.
    pub(super) fn transfer(&mut self, at: Time, span: Span) -> Time {
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

    /// Returns when the transfer ends that is in progress at `at`, if those that are scheduled follow each other.
    pub(super) fn in_progress(&self, at: Time, transfer: Span) -> Time {
        let queue = self.free.max(at) - at;
        at + Span::from_ps(queue.as_ps() % transfer.as_ps().max(1))
    }

    /// A core requests the line for writing at `at`; returns when it has the line, and whether other agents
    /// lose it then.
    pub(super) fn grant_write(&mut self, core: Core, at: Time, span: Span) -> (Time, bool) {
        if self.holder == Holder::Writer(core) {
            return (at.max(self.granted), false);
        }
        let since = self.transfer(at, span);
        self.holder = Holder::Writer(core);
        (since, true)
    }

    /// As [`ContendedLine::grant_write`], for reading.
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
                let since = self.transfer(at, span);
                self.holder = Holder::Readers(cores);
                (since, true)
            }
            Holder::Cache | Holder::Memory => {
                let since = self.transfer(at, span);
                self.holder = Holder::Readers(vec![core]);
                (since, false)
            }
        }
    }
}
