//! Threads that walk through memory and contend for its lines, with each other and with the root port.

use adverb_units::{Span, Time};
use adverb_verbs::Access;

use super::line::{ContendedLine, Core};
use super::{Contention, WALKED};
use crate::host::pcie::LINE;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    pub(crate) bytes: u64,
    pub(crate) access: Access,
    /// Time of an access to a line that the core has.
    pub(crate) each: Span,
    /// Time for which a thread computes after an access.
    pub(crate) think: Span,
}

impl Walk {
    fn stride(&self) -> u64 {
        match self.access {
            Access::Mixed { .. } => 1,
            Access::CompareSwap | Access::FetchAdd | Access::Increment => 8,
        }
    }

    fn writes(&self) -> f64 {
        match self.access {
            Access::Mixed { writes } => writes.get(),
            Access::CompareSwap | Access::FetchAdd | Access::Increment => 1.0,
        }
    }

    /// Time from one access to the next one of a thread that has the line.
    pub(super) fn pace(&self) -> Span {
        self.each + self.think
    }

    /// How long a core holds a line that it got: a locked instruction keeps it until it is complete.
    fn locked(&self) -> Span {
        match self.access {
            Access::Mixed { .. } | Access::Increment => Span::ZERO,
            Access::CompareSwap | Access::FetchAdd => self.each,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Walker {
    pub(super) core: Core,
    /// Time of transferring a line to its core.
    pub(super) transfer: Span,
    /// The byte it is at.
    pub(super) place: u64,
    /// Since when it may access that byte.
    pub(super) since: Time,
    pub(super) writes: bool,
    /// When it has to request a line again.
    pub(super) next: Time,
    /// Whether it requests that line for writing.
    pub(super) must_write: bool,
}

impl Contention {
    /// Advances the threads to `until`.
    pub(super) fn advance(&mut self, until: Time) {
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

    /// A thread proceeds to the next line that it may not access yet, and requests it.
    fn step(&mut self, index: usize, walk: &Walk) {
        let walker = &mut self.walkers[index];
        let (now, stride) = (walker.next, walk.stride());
        let made = ((now - walker.since).as_ps() / walk.pace().as_ps().max(1)).max(1);
        walker.place = (walker.place + made * stride) % walk.bytes;
        let number = walker.place / LINE;
        let left = (walk.bytes.min((number + 1) * LINE) - walker.place).div_ceil(stride);
        let (core, transfer) = (walker.core, walker.transfer);
        let is_write = walker.must_write || self.random.unit() < walk.writes();
        if let Some(sibling) = self.pending_write(index, number) {
            let walker = &mut self.walkers[index];
            (walker.since, walker.writes) = (sibling.since, true);
            walker.next = sibling.next.min(sibling.since + walk.pace() * left);
            walker.must_write = false;
            return;
        }
        let line = self
            .lines
            .entry((WALKED, number))
            .or_insert_with(ContendedLine::new);
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
        walker.next = since + walk.pace() * count;
        walker.must_write = count < left;
    }

    /// A thread of the same core that waits to write the same line: the core requests it only once.
    fn pending_write(&self, index: usize, number: u64) -> Option<Walker> {
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

    /// Number of accesses until the thread's next write, at most `left`.
    fn reads(&mut self, walk: &Walk, left: u64) -> u64 {
        let mut count = 1;
        while count < left && self.random.unit() >= walk.writes() {
            count += 1;
        }
        count
    }

    /// All cores except `keeper` lose a line at `at`, or the right to write it, and request it again.
    pub(super) fn lose(&mut self, number: u64, at: Time, keeper: Option<Core>) {
        let Some(walk) = self.walk else { return };
        for walker in &mut self.walkers {
            let is_there = walker.place / LINE == number;
            if is_there && keeper != Some(walker.core) && walker.since < at && at < walker.next {
                walker.next = at.max(walker.since + walk.pace());
                walker.must_write = false;
            }
        }
    }
}
