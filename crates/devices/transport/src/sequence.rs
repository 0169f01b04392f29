//! Sequence numbers: packets are counted in 64 bits, which do not wrap, so numbers can be compared. A PSN on the wire is
//! the lower 24 bits (IBTA vol. 1, 9.7.1).

use std::ops::{Add, AddAssign};

use adverb_verbs::Psn;

/// Maximum number of packets in flight: less than half of the 2^24 PSNs, so that older and newer PSNs can be
/// distinguished (IBTA vol. 1, 9.7.2).
pub(crate) const MAX_OUTSTANDING: u64 = (1 << 23) - 1;

/// A packet's number, counted from the first of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Seq(u64);

impl Seq {
    /// Returns how far `self` is ahead of `earlier`; 0 if it is not.
    #[inline]
    pub(crate) const fn since(self, earlier: Seq) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the number before.
    #[inline]
    pub(crate) const fn before(self) -> Seq {
        Seq(self.0 - 1)
    }
}

impl Add<u64> for Seq {
    type Output = Seq;
    #[inline]
    fn add(self, packets: u64) -> Seq {
        Seq(self.0 + packets)
    }
}

impl AddAssign<u64> for Seq {
    #[inline]
    fn add_assign(&mut self, packets: u64) {
        self.0 += packets;
    }
}

/// Converts the PSNs of one direction of a connection to sequence numbers that do not wrap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbering {
    /// `Psn` of `Seq(0)`.
    zero: Psn,
}

impl Numbering {
    /// Number of the first packet. It leaves room for the PSNs before the first packet.
    const FIRST: u64 = 1 << 24;

    /// Makes a conversion whose first packet has PSN `first`.
    pub(crate) const fn new(first: Psn) -> Self {
        // FIRST is a multiple of 2^24.
        Numbering { zero: first }
    }

    /// Returns the number of the first packet.
    pub(crate) const fn first(&self) -> Seq {
        Seq(Self::FIRST)
    }

    /// Returns the PSN of a packet.
    #[inline]
    pub(crate) const fn psn(&self, seq: Seq) -> Psn {
        self.zero.advance(seq.0 as u32)
    }

    /// Returns the number with this PSN that is nearest to `near`.
    #[inline]
    pub(crate) const fn seq(&self, psn: Psn, near: Seq) -> Seq {
        let ahead = psn.distance_from(self.psn(near)) as u64;
        if ahead < 1 << 23 {
            Seq(near.0 + ahead)
        } else {
            // `near` is at least FIRST = 2^24.
            Seq(near.0 + ahead - (1 << 24))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_across_the_wrap() {
        let numbering = Numbering::new(Psn::new(0xff_fff0));
        let mut near = numbering.first();
        for step in [0u64, 1, 15, 16, 17, 1 << 22, 1 << 23, (1 << 24) + 5] {
            near += step;
            for away in [0, 1, 1000, (1 << 23) - 1] {
                let ahead = near + away;
                assert_eq!(numbering.seq(numbering.psn(ahead), near), ahead);
                let behind = Seq(near.0 - away);
                assert_eq!(numbering.seq(numbering.psn(behind), near), behind);
            }
        }
    }
}
