//! The requester's window: which packets are acknowledged, in flight, and to be sent.

use adverb_units::Time;

use super::congestion::Congestion;
use crate::sequence::Seq;

/// The window.
///
/// ```text
///  … acknowledged │ in flight │ to be sent (again) │ posted …
///                 unacked     next        sent     end
/// ```
/// `unacked ≤ next ≤ sent ≤ end`; going back makes `next` smaller than `sent`.
#[derive(Debug)]
pub(super) struct Window {
    unacked: Seq,
    next: Seq,
    sent: Seq,
    end: Seq,
    congestion: Congestion,
}

impl Window {
    /// Makes a window that starts at `first`.
    pub(super) fn new(first: Seq, congestion: Congestion) -> Self {
        Window {
            unacked: first,
            next: first,
            sent: first,
            end: first,
            congestion,
        }
    }

    /// Returns the first packet that is not acknowledged.
    #[inline]
    pub(super) const fn unacked(&self) -> Seq {
        self.unacked
    }

    /// Returns the next packet to send.
    #[inline]
    pub(super) const fn next(&self) -> Seq {
        self.next
    }

    /// Returns the packet after the last one that was ever sent.
    #[inline]
    pub(super) const fn sent(&self) -> Seq {
        self.sent
    }

    /// Returns the maximum number of packets in flight.
    #[inline]
    pub(super) const fn limit(&self) -> u64 {
        self.congestion.size()
    }

    /// Whether packets are in flight.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.unacked < self.next
    }

    /// Whether the packets from `begin` to before `end` are within the window. If nothing else is in flight, they are: the
    /// window may have become smaller than the part of a READ that was requested before.
    #[inline]
    pub(super) fn has_room_for(&self, begin: Seq, end: Seq) -> bool {
        end.since(self.unacked) <= self.limit() || begin == self.unacked
    }

    /// Reserves the sequence numbers of a request of `packets` packets; returns the first.
    pub(super) fn extend(&mut self, packets: u64) -> Seq {
        let first = self.end;
        self.end += packets;
        first
    }

    /// Records that the next packet, which the peer acknowledges at once, is sent.
    #[inline]
    pub(super) fn requested_ack(&mut self, now: Time) {
        // The response to a packet that was sent before does not show which of the two it belongs to.
        if self.next == self.sent {
            self.congestion.sent(now, self.next, self.unacked);
        }
    }

    /// Adapts the window to the path after an acknowledgement.
    #[inline]
    pub(super) fn adapt(&mut self, now: Time) {
        self.congestion.acknowledged(now, self.unacked);
    }

    /// Records that the packets before `to` were sent.
    #[inline]
    pub(super) fn advance_next(&mut self, to: Seq) {
        self.next = to;
        self.sent = self.sent.max(to);
    }

    /// Records that the packets before `to` were acknowledged. They need not be sent again.
    #[inline]
    pub(super) fn acknowledge(&mut self, to: Seq) {
        self.unacked = to;
        self.next = self.next.max(to);
    }

    /// Makes all packets that are not acknowledged be sent again.
    pub(super) fn go_back(&mut self) {
        self.next = self.unacked;
        self.congestion.lost();
    }
}
