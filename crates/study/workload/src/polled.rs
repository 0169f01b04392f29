//! Destination memory of READs, for members that poll it instead of their completion queue.
//!
//! It is a window of places, used in turn. A place is marked before its READ is posted; the data, which are
//! all zero, overwrite the mark.

use adverb_verbs::{Context, MemoryRegion, Station};

use crate::attend::{Attend, Awaited, attentively};
use crate::error::Fault;
use crate::load::{Load, Seen};

/// Mark in the last byte of a place until the data arrive.
const MARK: u8 = 0xa5;
/// The clock is read once in this many READs: a reading costs a noticeable part of a READ.
const LOOK: u64 = 16;

/// Places for the data of READs.
pub(crate) struct Polled {
    base: u64,
    /// Distance of places, which do not share cache lines.
    distance: u64,
    /// Bytes of a READ.
    size: u64,
    places: u64,
    posted: u64,
    done: u64,
}

fn distance(load: &Load) -> u64 {
    u64::from(load.payload()).next_multiple_of(64)
}

/// Returns the bytes that the places of a load need.
pub(crate) fn bytes(load: &Load) -> u64 {
    match load.seen {
        Seen::Memory => u64::from(load.limits.per_member) * distance(load),
        _ => 0,
    }
}

impl Polled {
    /// Returns the places of a load, from `base` on, if it polls.
    pub(crate) fn of(load: &Load, base: u64) -> Option<Self> {
        (load.seen == Seen::Memory).then(|| Polled {
            base,
            distance: distance(load),
            size: load.payload().into(),
            places: load.limits.per_member.max(1).into(),
            posted: 0,
            done: 0,
        })
    }

    fn place(&self, number: u64) -> u64 {
        self.base + number % self.places * self.distance
    }

    /// Returns the offsets of the places, in turn.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = u64> {
        (0..self.places).map(|place| self.place(place))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.posted - self.done >= self.places
    }

    /// Returns the number of READs whose data have arrived.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Marks the place of the next READ.
    pub(crate) fn mark<M: MemoryRegion>(&self, mr: &M) -> Result<(), Fault> {
        Ok(mr.write(self.place(self.posted) + self.size - 1, &[MARK])?)
    }

    /// Returns the place of the next READ, which is posted now.
    pub(crate) fn post(&mut self) -> usize {
        self.posted += 1;
        ((self.posted - 1) % self.places) as usize
    }

    /// Polls until the oldest READ's data arrive; returns whether to read the clock.
    pub(crate) fn wait_for_oldest<S: Station, A: Attend>(
        &mut self,
        station: &S,
        attend: &A,
        mr: &<S::Context as Context>::Mr,
    ) -> Result<bool, Fault> {
        let last = self.place(self.done) + self.size - 1;
        attentively(attend, Awaited::OwnRequest, |timeout| {
            station.spin_memory(mr, last, 0, timeout)
        })?;
        self.done += 1;
        Ok(self.done.is_multiple_of(LOOK))
    }
}
