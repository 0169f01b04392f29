//! READs and atomics in flight (IBTA vol. 1, 9.4.4, 11.2.5.2: initiator depth). A READ is asked for in
//! parts that are answered one after the other: the next ones are asked for while the first is on its
//! way, so that a long READ streams, and what is asked for fits the window.

use super::Entry;
use crate::sequence::Seq;

/// Parts that share the window. With fewer the window is emptier when the next one is asked for, with
/// more there are more requests.
const PARTS: u64 = 4;

#[derive(Debug)]
pub(super) struct Reads {
    /// Requests that are sent and not wholly answered.
    in_flight: u8,
    most: u8,
    /// Packets of a part's answer, at most.
    part: u64,
}

impl Reads {
    /// At most so many requests in flight, whose answers share a window of so many packets.
    pub(super) fn new(most: u8, window: u64) -> Self {
        let parts = PARTS.min(most.into()).max(1);
        Reads {
            in_flight: 0,
            most,
            part: (window / parts).max(1),
        }
    }

    /// Changes how many requests may be in flight. The parts stay: the responder knows those of requests
    /// that are in flight.
    pub(super) const fn set_most(&mut self, most: u8) {
        self.most = most;
    }

    /// Whether READs and atomics are allowed at all.
    pub(super) const fn are_allowed(&self) -> bool {
        self.most != 0
    }

    /// Requests that are sent and not wholly answered.
    #[inline]
    pub(super) const fn in_flight(&self) -> u8 {
        self.in_flight
    }

    /// Whether one more may be sent while `in_flight` are in flight.
    #[inline]
    pub(super) const fn may_follow(&self, in_flight: u8) -> bool {
        in_flight < self.most
    }

    /// One behind the last packet of the answer that the request at `seq` brings. Parts end at the same
    /// packets when they are asked for again, because the responder knows them so.
    #[inline]
    pub(super) fn part_end(&self, entry: &Entry, seq: Seq) -> Seq {
        let index = seq.since(entry.first);
        let end = entry.first + (index / self.part + 1) * self.part;
        end.min(entry.end)
    }

    /// One is sent.
    #[inline]
    pub(super) const fn begin(&mut self) {
        self.in_flight += 1;
    }

    /// One is wholly answered.
    #[inline]
    pub(super) const fn finish(&mut self) {
        self.in_flight -= 1;
    }

    /// All are to be sent again.
    pub(super) const fn forget(&mut self) {
        self.in_flight = 0;
    }
}
