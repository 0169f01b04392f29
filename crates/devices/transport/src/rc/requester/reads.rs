//! READs and atomics in flight (IBTA vol. 1, 9.4.4, 11.2.5.2: initiator depth). A long READ is requested in parts, whose
//! responses fit into the window. Further parts are requested while the response to the first arrives, so the data
//! streams without pauses.

use super::Entry;
use crate::sequence::Seq;

/// Number of parts that share the window. With fewer, more of the window is empty when the next part is requested; with
/// more, there are more requests.
const PARTS: u64 = 4;

#[derive(Debug)]
pub(super) struct Reads {
    /// Number of requests that were sent and whose response is not complete.
    in_flight: u8,
    most: u8,
}

impl Reads {
    /// At most `most` requests may be in flight.
    pub(super) const fn new(most: u8) -> Self {
        Reads { in_flight: 0, most }
    }

    /// Returns the maximum number of packets in the response to a part, if the responses to several parts share a window
    /// of `window` packets. A READ keeps it, because the responder has recorded the parts that are in flight.
    pub(super) fn part(&self, window: u64) -> u64 {
        let parts = PARTS.min(self.most.into()).max(1);
        (window / parts).max(1)
    }

    /// Changes how many requests may be in flight.
    pub(super) const fn set_most(&mut self, most: u8) {
        self.most = most;
    }

    /// Whether READs and atomics are allowed at all.
    pub(super) const fn are_allowed(&self) -> bool {
        self.most != 0
    }

    /// Returns the number of requests that were sent and whose response is not complete.
    #[inline]
    pub(super) const fn in_flight(&self) -> u8 {
        self.in_flight
    }

    /// Whether another may be sent while `in_flight` are in flight.
    #[inline]
    pub(super) const fn may_follow(&self, in_flight: u8) -> bool {
        in_flight < self.most
    }

    /// Returns the packet after the last one of the response to the request at `seq`. A repeated part ends at the same
    /// packet, because the responder compares it with the recorded part.
    #[inline]
    pub(super) fn part_end(entry: &Entry, seq: Seq) -> Seq {
        let index = seq.since(entry.first);
        let end = entry.first + (index / entry.part + 1) * entry.part;
        end.min(entry.end)
    }

    /// Records that one was sent.
    #[inline]
    pub(super) const fn begin(&mut self) {
        self.in_flight += 1;
    }

    /// Records that the response to one is complete.
    #[inline]
    pub(super) const fn finish(&mut self) {
        self.in_flight -= 1;
    }

    /// Records that all are sent again.
    pub(super) const fn forget(&mut self) {
        self.in_flight = 0;
    }
}
