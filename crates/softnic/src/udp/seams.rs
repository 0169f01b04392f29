//! Where a packet ends, and the next one begins, in what the kernel has joined.
//!
//! The kernel tells it, to who receives with room for its message; receiving costs a fifth more so. The
//! ICRC says it, too, for it covers the length: joined packets read as one have a wrong one. So while
//! what comes is short and regular (a message alone, or with the acknowledgement of the last one), the
//! first packet's end is looked for where it was last time, then at the end of all. Elsewhere it has to
//! be searched for, and is told from then on until all is regular again.
//!
//! Whether joined packets pass for one, because all 32 bits of an ICRC agree by chance, depends on
//! addresses and lengths alone. With an identification that is not known it would be 16 bits, too few:
//! so an end is looked for only of packets whose identification is that of this device's. Other makes
//! count theirs up. The first packet of theirs is taken as it came; from then on the kernel tells.

use adverb_transport::PACKET_SPACE;
use adverb_wire::frame::Flow;
use adverb_wire::{bth, icrc};

use super::outbox::unseen;
use super::socket::MOST_SEGMENTS;

/// What comes in one call while packets' ends are looked for. Longer messages are cut into packets of
/// several lengths.
const LONGEST_FOUND: usize = 2048;
/// The shortest packet: its base transport header and its ICRC.
const SHORTEST: usize = bth::LEN + icrc::LEN;
/// So much has to be regular before ends are looked for; twice as much after each irregularity, because
/// a search takes as long as many messages.
const FEW: u32 = 16;
const MANY: u32 = 1 << 20;

/// How it is known where packets end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The kernel says it.
    Told,
    /// By their ICRCs.
    Found,
}

/// Packets' ends, at one socket.
#[derive(Debug)]
pub(super) struct Seams {
    /// Length of the first of the packets that were joined last.
    usual: usize,
    /// What was regular in a row, while the kernel tells.
    regular: u32,
    /// As much of that is enough.
    enough: u32,
    peers: Peers,
    fronts: icrc::Fronts,
}

/// Whose packets have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peers {
    /// Of this device's make.
    Own,
    /// Of other makes, too.
    Others,
}

impl Seams {
    pub(super) fn new() -> Self {
        Seams {
            usual: 0,
            regular: 0,
            enough: FEW,
            peers: Peers::Own,
            fronts: icrc::Fronts::default(),
        }
    }

    #[inline]
    pub(super) fn way(&self) -> Way {
        if self.regular < self.enough || self.peers == Peers::Others {
            Way::Told
        } else {
            Way::Found
        }
    }

    /// A connection begins: nothing is known of its peer.
    pub(super) fn begin(&mut self) {
        *self = Seams {
            peers: self.peers,
            ..Seams::new()
        };
    }

    /// Packets of another make than this device's come.
    #[cold]
    pub(super) fn meet_others(&mut self) {
        self.peers = Peers::Others;
    }

    /// Whether a packet of this identification may be of this device's make.
    #[inline]
    pub(super) const fn is_own(identification: u16) -> bool {
        (identification as usize) < MOST_SEGMENTS
    }

    /// The kernel told that `length` bytes are packets of `each`.
    pub(super) fn told(&mut self, length: usize, each: usize) {
        let is_joined = each < length;
        let is_regular = length <= LONGEST_FOUND && (!is_joined || each == self.usual);
        self.regular = if is_regular { self.regular + 1 } else { 0 };
        if is_joined {
            self.usual = each;
        }
    }

    /// The length of the first of the packets of which `bytes` are joined, and its identification. None
    /// where no length makes its ICRC right.
    #[inline]
    pub(super) fn find(&mut self, flow: &Flow, bytes: &[u8]) -> Option<(usize, u16)> {
        let all = bytes.len();
        if self.usual < all && self.is_packet(flow, bytes, self.usual) {
            return Some((self.usual, 0));
        }
        if self.is_packet(flow, bytes, all) {
            return Some((all, 0));
        }
        self.search(flow, bytes)
    }

    /// Whether the first `length` of `bytes` are a packet, the first of its batch.
    #[inline]
    fn is_packet(&mut self, flow: &Flow, bytes: &[u8], length: usize) -> bool {
        let packet = bytes.get(..length);
        packet.is_some_and(|packet| self.fronts.check(flow, unseen(0), packet).is_ok())
    }

    /// The packet of a datagram that is the one at `place` of those that were joined, and its
    /// identification. None where its ICRC is wrong.
    #[inline]
    pub(super) fn packet<'a>(
        &mut self,
        flow: &Flow,
        place: u16,
        bytes: &'a [u8],
    ) -> Option<(&'a [u8], u16)> {
        let found = self.fronts.find_identification(flow, unseen(place), bytes);
        found.ok()
    }

    #[cold]
    fn search(&mut self, flow: &Flow, bytes: &[u8]) -> Option<(usize, u16)> {
        self.regular = 0;
        self.enough = (2 * self.enough).min(MANY);
        let longest = bytes.len().min(PACKET_SPACE);
        let mut lengths = (SHORTEST..=longest).step_by(4);
        if let Some(found) = lengths.find(|length| self.is_packet(flow, bytes, *length)) {
            self.usual = found;
            return Some((found, 0));
        }
        // The network may have taken a batch apart, or it is the first packet of another make.
        let (_, identification) = icrc::find_identification(flow, unseen(0), bytes).ok()?;
        Some((bytes.len(), identification))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use adverb_wire::frame::Addresses;

    use super::*;

    fn flow() -> Flow {
        let [from, to] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        Flow {
            addresses: Addresses::of(from, to).unwrap(),
            source_port: 4791,
            destination_port: 4791,
        }
    }

    /// Packets of these lengths, joined.
    fn joined(lengths: &[usize]) -> Vec<u8> {
        let packet = |(place, length): (usize, &usize)| {
            let mut packet = vec![*length as u8; *length];
            icrc::seal(
                &flow(),
                unseen(place as u16),
                &mut packet,
                length - icrc::LEN,
            )
            .unwrap();
            packet
        };
        lengths.iter().enumerate().flat_map(packet).collect()
    }

    /// One that has seen enough packets of 80 B with acknowledgements.
    fn ready() -> Seams {
        let mut seams = Seams::new();
        seams.told(100, 80);
        (0..FEW).for_each(|_| seams.told(100, 80));
        assert_eq!(seams.way(), Way::Found);
        seams
    }

    #[test]
    fn what_is_irregular_is_told() {
        let mut seams = Seams::new();
        for _ in 0..FEW {
            seams.told(100, 80);
            seams.told(120, 100);
        }
        (0..FEW).for_each(|_| seams.told(LONGEST_FOUND + 1, LONGEST_FOUND + 1));
        assert_eq!(seams.way(), Way::Told);
        (0..FEW - 1).for_each(|_| seams.told(80, 80));
        seams.begin();
        seams.told(80, 80);
        assert_eq!(seams.way(), Way::Told);
    }

    #[test]
    fn where_others_have_been_met_the_kernel_tells() {
        let mut seams = ready();
        let mut other = vec![7; 80];
        icrc::seal(&flow(), unseen(MOST_SEGMENTS as u16), &mut other, 76).unwrap();
        let found = seams.find(&flow(), &other);
        assert_eq!(found, Some((80, MOST_SEGMENTS as u16)), "none is lost");
        seams.meet_others();
        seams.begin();
        (0..4 * FEW).for_each(|_| seams.told(80, 80));
        assert_eq!(seams.way(), Way::Told);
    }

    #[test]
    fn what_is_regular_is_found_without_a_search() {
        let mut seams = ready();
        for (lengths, first) in [
            (&[80, 20][..], 80),
            (&[80, 80, 80], 80),
            (&[20], 20),
            (&[80], 80),
            (&[1044], 1044),
        ] {
            assert_eq!(seams.find(&flow(), &joined(lengths)), Some((first, 0)));
            assert_eq!(seams.way(), Way::Found, "{lengths:?}");
        }
    }

    #[test]
    fn other_lengths_are_searched_for_and_told_from_then_on() {
        for (lengths, first) in [
            (&[20, 20][..], 20),
            (&[100, 20], 100),
            (&[100, 80], 100),
            (&[4112, 4112, 300], 4112),
            (&[PACKET_SPACE, 1000], PACKET_SPACE),
        ] {
            let mut seams = ready();
            assert_eq!(seams.find(&flow(), &joined(lengths)), Some((first, 0)));
            assert_eq!(seams.way(), Way::Told, "{lengths:?}");
            (0..2 * FEW).for_each(|_| seams.told(20, 20));
            assert_eq!(seams.way(), Way::Found);
        }
    }

    #[test]
    fn packets_of_a_batch_that_the_network_took_apart_are_found() {
        let mut seams = ready();
        let batch = joined(&[80, 80, 20]);
        assert_eq!(seams.find(&flow(), &batch[160..]), Some((20, 2)));
        assert_eq!(seams.way(), Way::Told);
    }

    #[test]
    fn damaged_packets_are_not_found() {
        let mut damaged = joined(&[80, 20]);
        damaged[30] ^= 1;
        for bytes in [&damaged[..], &[], &[0; 3]] {
            let mut seams = ready();
            assert_eq!(seams.find(&flow(), bytes), None);
            assert_eq!(seams.way(), Way::Told);
        }
    }
}
