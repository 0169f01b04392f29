//! Where a packet ends, and the next one begins, in what the kernel has joined.
//!
//! The kernel tells it, to who receives with room for its message; receiving costs a fifth more so. The
//! ICRC says it, too, for it covers the length: joined packets read as one have a wrong one. So while
//! what comes is short and regular (a message alone, or with the acknowledgement of the last one), the
//! first packet's end is looked for where it was last time, then at the end of all. Elsewhere it has to
//! be searched for, and is told from then on until all is regular again.
//!
//! Whether joined packets pass for one, because all 32 bits of an ICRC agree by chance, depends on
//! addresses and lengths alone. With an identification that is not known it would be 16 bits, too few. So
//! an end is looked for only while identifications are foreseen: this device's packets, and those of a few
//! other makes, begin a batch with 0 or with one more than the last ([`super::numbering`]). Where some are
//! lost, that of the next is a little more.

use adverb_transport::PACKET_SPACE;
use adverb_wire::frame::Flow;
use adverb_wire::{bth, icrc};

use super::outbox::unseen;

/// What comes in one call while packets' ends are looked for. Longer messages are cut into packets of
/// several lengths.
const LONGEST_FOUND: usize = 2048;
/// The shortest packet: its base transport header and its ICRC.
const SHORTEST: usize = bth::LEN + icrc::LEN;
/// So much has to be regular before ends are looked for; twice as much after each irregularity, because
/// a search takes as long as many messages.
const FEW: u32 = 16;
const MANY: u32 = 1 << 20;
/// Calls of a flow that may be lost in a row without its being irregular: 8 of the 16 bits that are in
/// doubt then.
const NEAR: u16 = 1 << 8;

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
    foreseen: Foreseen,
    fronts: icrc::Fronts,
}

/// The identifications that some flows' next packets will have.
#[derive(Debug)]
struct Foreseen(Box<[Option<(Flow, u16)>; FLOWS]>);

/// Flows whose numbers are known at a time, each at the place that its source port says.
const FLOWS: usize = 256;

impl Default for Foreseen {
    fn default() -> Self {
        Foreseen(Box::new([None; FLOWS]))
    }
}

impl Foreseen {
    #[inline]
    const fn place(flow: &Flow) -> usize {
        flow.source_port as usize % FLOWS
    }

    #[inline]
    fn next(&self, flow: &Flow) -> Option<u16> {
        match &self.0[Self::place(flow)] {
            Some((known, next)) if known == flow => Some(*next),
            _ => None,
        }
    }

    /// A call's first packet had this one.
    #[inline]
    fn note(&mut self, flow: &Flow, identification: u16) {
        // Who does not count begins with 0 again.
        let next = match identification {
            0 => 0,
            counted => counted.wrapping_add(1),
        };
        match &mut self.0[Self::place(flow)] {
            Some((known, known_next)) if known == flow => *known_next = next,
            place => *place = Some((*flow, next)),
        }
    }
}

impl Seams {
    pub(super) fn new() -> Self {
        Seams {
            usual: 0,
            regular: 0,
            enough: FEW,
            foreseen: Foreseen::default(),
            fronts: icrc::Fronts::default(),
        }
    }

    #[inline]
    pub(super) fn way(&self) -> Way {
        match self.regular < self.enough {
            true => Way::Told,
            false => Way::Found,
        }
    }

    /// A connection begins: nothing is known of its peer.
    pub(super) fn begin(&mut self) {
        *self = Seams::new();
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
        let (all, next) = (bytes.len(), self.foreseen.next(flow).unwrap_or(0));
        let found = if self.usual < all && self.is_packet(flow, next, bytes, self.usual) {
            (self.usual, next)
        } else if self.is_packet(flow, next, bytes, all) {
            (all, next)
        } else {
            self.search(flow, bytes)?
        };
        self.foreseen.note(flow, found.1);
        Some(found)
    }

    /// Whether the first `length` of `bytes` are a packet of this identification.
    #[inline]
    fn is_packet(&mut self, flow: &Flow, number: u16, bytes: &[u8], length: usize) -> bool {
        let packet = bytes.get(..length);
        packet.is_some_and(|packet| self.fronts.check(flow, unseen(number), packet).is_ok())
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
        // Behind the first one that is of the same call, which is noted already.
        let next = self.foreseen.next(flow).unwrap_or(0);
        let first = match (place, next) {
            (0, _) | (_, 0) => next,
            _ => next.wrapping_sub(1),
        };
        let assumed = first.wrapping_add(place);
        let found = (self.fronts).find_identification(flow, unseen(assumed), bytes);
        let (packet, number) = found.ok()?;
        if number != assumed {
            self.regular = 0;
        }
        if place == 0 {
            self.foreseen.note(flow, number);
        }
        Some((packet, number))
    }

    #[cold]
    fn search(&mut self, flow: &Flow, bytes: &[u8]) -> Option<(usize, u16)> {
        let foreseen = self.foreseen.next(flow);
        let farther = self.find_farther(flow, foreseen, bytes);
        if foreseen.is_some() && farther.is_some() {
            return farther;
        }
        self.regular = 0;
        self.enough = (2 * self.enough).min(MANY);
        if farther.is_some() {
            return farther;
        }
        let next = foreseen.unwrap_or(0);
        let longest = bytes.len().min(PACKET_SPACE);
        let mut lengths = (SHORTEST..=longest).step_by(4);
        if let Some(found) = lengths.find(|length| self.is_packet(flow, next, bytes, *length)) {
            self.usual = found;
            return Some((found, next));
        }
        // The network may have taken a batch apart.
        let (_, number) = icrc::find_identification(flow, unseen(next), bytes).ok()?;
        Some((bytes.len(), number))
    }

    /// What is regular but for its identification: a little farther than foreseen, or a flow's first.
    fn find_farther(
        &self,
        flow: &Flow,
        foreseen: Option<u16>,
        bytes: &[u8],
    ) -> Option<(usize, u16)> {
        let next = foreseen.unwrap_or(0);
        let is_near = |number: u16| match foreseen {
            Some(next) => next != 0 && number.wrapping_sub(next) < NEAR,
            None => true,
        };
        let all = bytes.len();
        [self.usual.min(all), all].into_iter().find_map(|length| {
            let found = icrc::find_identification(flow, unseen(next), &bytes[..length]);
            let (_, number) = found.ok()?;
            is_near(number).then_some((length, number))
        })
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

    /// Packets of these lengths, joined, of somebody who does not count.
    fn joined(lengths: &[usize]) -> Vec<u8> {
        numbered(lengths, 0)
    }

    /// The same, the first of this identification.
    fn numbered(lengths: &[usize], first: u16) -> Vec<u8> {
        let packet = |(place, length): (usize, &usize)| {
            let mut packet = vec![*length as u8; *length];
            let unseen = unseen(first.wrapping_add(place as u16));
            icrc::seal(&flow(), unseen, &mut packet, length - icrc::LEN).unwrap();
            packet
        };
        lengths.iter().enumerate().flat_map(packet).collect()
    }

    /// One that has seen enough packets of 80 B with acknowledgements.
    fn ready() -> Seams {
        let mut seams = Seams::new();
        seams.told(100, 80);
        (0..FEW).for_each(|_| tell(&mut seams, 0));
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

    /// A packet that the kernel told, and what is found in it.
    fn tell(seams: &mut Seams, number: u16) {
        seams.told(80, 80);
        let alone = numbered(&[80], number);
        let (_, found) = seams.packet(&flow(), 0, &alone).unwrap();
        assert_eq!(found, number);
    }

    #[test]
    fn who_counts_is_followed_round_the_circle_and_past_losses() {
        let mut seams = Seams::new();
        seams.told(100, 80);
        (0..=FEW as u16).for_each(|n| tell(&mut seams, 65_500 + n));
        assert_eq!(seams.way(), Way::Found);
        for number in [65_517, 65_519, 65_535] {
            let batch = numbered(&[80, 20], number);
            assert_eq!(seams.find(&flow(), &batch), Some((80, number)));
            assert_eq!(seams.way(), Way::Found);
            let second = seams.packet(&flow(), 1, &batch[80..]);
            assert_eq!(second.map(|found| found.1), Some(number.wrapping_add(1)));
        }
        for number in [0, 1, 2] {
            let batch = numbered(&[80], number);
            assert_eq!(seams.find(&flow(), &batch), Some((80, number)));
        }
    }

    #[test]
    fn where_numbers_are_not_foreseen_the_kernel_tells() {
        let mut seams = ready();
        let batch = numbered(&[80, 20], 5000);
        assert_eq!(seams.find(&flow(), &batch), None, "nobody counts so");
        let other = numbered(&[80], 5000);
        assert_eq!(
            seams.find(&flow(), &other),
            Some((80, 5000)),
            "none is lost"
        );
        (0..4 * FEW as u16).for_each(|n| tell(&mut seams, 300 * n));
        assert_eq!(seams.way(), Way::Told);
    }

    #[test]
    fn the_first_packets_of_a_flow_are_found() {
        let mut seams = ready();
        seams.foreseen = Foreseen::default();
        let batch = numbered(&[80, 20], 5000);
        assert_eq!(seams.find(&flow(), &batch), Some((80, 5000)));
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
