//! The requester's window: which packets are acknowledged, in flight, and to be sent.

use crate::sequence::{MAX_OUTSTANDING, Seq};

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
    limit: u64,
}

impl Window {
    /// Makes a window of at most `limit` packets in flight, starting at `first`.
    pub(super) fn new(first: Seq, limit: u32) -> Self {
        Window {
            unacked: first,
            next: first,
            sent: first,
            end: first,
            limit: u64::from(limit).clamp(1, MAX_OUTSTANDING),
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
        self.limit
    }

    /// Whether packets are in flight.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.unacked < self.next
    }

    /// Whether the packets before `end` are within the window.
    #[inline]
    pub(super) const fn has_room_to(&self, end: Seq) -> bool {
        end.since(self.unacked) <= self.limit
    }

    /// Reserves the sequence numbers of a request of `packets` packets; returns the first.
    pub(super) fn extend(&mut self, packets: u64) -> Seq {
        let first = self.end;
        self.end += packets;
        first
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
    }
}
