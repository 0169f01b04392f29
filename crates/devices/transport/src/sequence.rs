//! Packet sequence numbers without their wrap: inside, packets are counted in 64 bits, so that
//! comparing them is comparing numbers; 24 bits of it are on the wire (IBTA vol. 1, 9.7.1).

use std::ops::{Add, AddAssign};

use adverb_verbs::Psn;

/// Packets that may be in flight, of the 2^24 numbers: below half of them, so that older and newer
/// ones can be told apart (IBTA vol. 1, 9.7.2).
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

    /// The one before.
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
    /// Counting starts this far above zero: numbers before the first packet are negative on the wire
    /// only.
    const FIRST: u64 = 1 << 24;

    /// Numbers whose first packet is `first`.
    pub(crate) const fn new(first: Psn) -> Self {
        // FIRST is a multiple of 2^24.
        Numbering { zero: first }
    }

    /// The first packet.
    pub(crate) const fn first(&self) -> Seq {
        Seq(Self::FIRST)
    }

    /// As it is on the wire.
    #[inline]
    pub(crate) const fn psn(&self, seq: Seq) -> Psn {
        self.zero.advance(seq.0 as u32)
    }

    /// The number near `near` that is `psn` on the wire: less than half the circle away.
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
    fn numbers_come_back_over_the_wrap() {
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
