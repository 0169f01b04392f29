//! Threads that walk through memory, and take lines from one another and from the root port.

use adverb_units::{Span, Time};

use super::line::{Core, Line};
use super::{Contention, WALKED};
use crate::host::load::Access;
use crate::host::pcie::LINE;

/// How threads walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// The bytes that the threads walk through.
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
pub(super) struct Walker {
    pub(super) core: Core,
    /// What getting a line takes there.
    pub(super) transfer: Span,
    /// The byte it is at.
    pub(super) place: u64,
    /// Since when it has the right to access it.
    pub(super) since: Time,
    /// It may write.
    pub(super) writes: bool,
    /// When it has to ask again.
    pub(super) next: Time,
    /// The access that it asks for then is a write.
    pub(super) must_write: bool,
}

impl Contention {
    /// Lets the threads walk on until `until`.
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
    pub(super) fn lose(&mut self, number: u64, at: Time, keeper: Option<Core>) {
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
