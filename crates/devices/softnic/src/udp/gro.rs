//! Splits a GRO buffer into packets.
//!
//! The kernel reports the segment size in a `UDP_GRO` control message, but asking for it makes receiving
//! 20 % slower (`recvmsg` instead of `recvfrom`). The ICRC also tells where the first packet ends, because it
//! covers the packet's length: several packets read as one have a wrong ICRC. So while the traffic is short and
//! regular (a message alone, or together with the acknowledgement of the previous one), the first packet is
//! expected to be as long as last time, or as long as the whole buffer. If neither ICRC is right, all lengths
//! are tried, and the kernel is asked for the segment size until the traffic is regular again.
//! `ADVERB_UDP_WITHOUT=gro` asks the kernel always.
//!
//! Several packets pass for one only if all 32 bits of an ICRC agree by chance. The ICRC also covers the IP
//! identification, which a socket does not see. If that were searched for, too, 16 of the 32 bits would be
//! lost, which is too few. So boundaries come from the ICRC only while the identification can be predicted:
//! this device begins a batch with 0, some other implementations with one more than the previous batch. After a
//! loss it is a little larger.

use adverb_transport::PACKET_SPACE;
use adverb_wire::frame::Flow;
use adverb_wire::{bth, icrc};

use super::tx_batch::unseen;

/// Largest buffer whose boundaries are taken from the ICRC. Longer messages consist of packets of several
/// lengths.
const LONGEST_FOUND: usize = 2048;
/// The shortest packet: its base transport header and its ICRC.
const SHORTEST: usize = bth::LEN + icrc::LEN;
/// Regular buffers in a row before boundaries are taken from the ICRC. The number doubles with each search,
/// which takes as long as many messages, from `FEW` up to `MANY`.
pub(super) const FEW: u32 = 16;
/// The same, to ask the kernel always.
pub(super) const NEVER: u32 = u32::MAX;
const MANY: u32 = 1 << 20;
/// Batches of a flow that may be lost in a row before its identification counts as unpredictable. At this
/// limit 8 bits of the ICRC's protection are given up.
const NEAR: u16 = 1 << 8;

/// Where packet boundaries come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Boundaries {
    /// From the kernel's `UDP_GRO` control message.
    FromKernel,
    /// From the packets' ICRCs.
    FromIcrc,
}

/// Finds the packet boundaries in the GRO buffers of one socket.
#[derive(Debug)]
pub(super) struct GroSplitter {
    /// Length of the first packet of the last buffer that held several.
    usual: usize,
    /// Regular buffers in a row, while boundaries come from the kernel.
    regular: u32,
    /// How many of them are enough to switch to the ICRC.
    enough: u32,
    /// The value of `enough` for a new connection.
    few: u32,
    predicted: PredictedIds,
    fronts: icrc::Fronts,
}

/// Predicts the IP identification of each flow's next batch.
#[derive(Debug)]
struct PredictedIds(Box<[Option<(Flow, u16)>; FLOWS]>);

/// Slots of the table of flows; a flow's slot follows from its source port.
const FLOWS: usize = 256;

impl Default for PredictedIds {
    fn default() -> Self {
        PredictedIds(Box::new([None; FLOWS]))
    }
}

impl PredictedIds {
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

    /// Records the identification of a batch's first packet.
    #[inline]
    fn note(&mut self, flow: &Flow, identification: u16) {
        // A sender whose socket is not connected begins each batch with 0.
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

impl GroSplitter {
    /// Makes a splitter that takes boundaries from the ICRC after `few` regular buffers in a row.
    pub(super) fn new(few: u32) -> Self {
        GroSplitter {
            usual: 0,
            regular: 0,
            enough: few,
            few,
            predicted: PredictedIds::default(),
            fronts: icrc::Fronts::default(),
        }
    }

    #[inline]
    pub(super) fn boundaries(&self) -> Boundaries {
        match self.regular < self.enough {
            true => Boundaries::FromKernel,
            false => Boundaries::FromIcrc,
        }
    }

    /// Forgets what was learned: a new connection's peer may send differently.
    pub(super) fn begin(&mut self) {
        *self = GroSplitter::new(self.few);
    }

    /// Records a buffer of `length` bytes that the kernel reported to consist of packets of `each` bytes.
    pub(super) fn note_kernel(&mut self, length: usize, each: usize) {
        let is_joined = each < length;
        let is_regular = length <= LONGEST_FOUND && (!is_joined || each == self.usual);
        self.regular = if is_regular { self.regular + 1 } else { 0 };
        if is_joined {
            self.usual = each;
        }
    }

    /// Returns the length of the first packet in `bytes`, and its IP identification. `None` if no length
    /// gives a right ICRC.
    #[inline]
    pub(super) fn find(&mut self, flow: &Flow, bytes: &[u8]) -> Option<(usize, u16)> {
        let (all, next) = (bytes.len(), self.predicted.next(flow).unwrap_or(0));
        let found = if self.usual < all && self.is_packet(flow, next, bytes, self.usual) {
            (self.usual, next)
        } else if self.is_packet(flow, next, bytes, all) {
            (all, next)
        } else {
            self.search(flow, bytes)?
        };
        self.predicted.note(flow, found.1);
        Some(found)
    }

    /// Whether the first `length` bytes are a packet with this identification.
    #[inline]
    fn is_packet(&mut self, flow: &Flow, number: u16, bytes: &[u8], length: usize) -> bool {
        let packet = bytes.get(..length);
        packet.is_some_and(|packet| self.fronts.check(flow, unseen(number), packet).is_ok())
    }

    /// Returns the packet in `bytes`, the datagram at index `place` of its buffer, and the packet's
    /// identification. `None` if its ICRC is wrong.
    #[inline]
    pub(super) fn packet<'a>(
        &mut self,
        flow: &Flow,
        place: u16,
        bytes: &'a [u8],
    ) -> Option<(&'a [u8], u16)> {
        // The first packet of the buffer has been recorded: the prediction is already one batch ahead.
        let next = self.predicted.next(flow).unwrap_or(0);
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
            self.predicted.note(flow, number);
        }
        Some((packet, number))
    }

    #[cold]
    fn search(&mut self, flow: &Flow, bytes: &[u8]) -> Option<(usize, u16)> {
        let predicted = self.predicted.next(flow);
        let farther = self.find_farther(flow, predicted, bytes);
        if predicted.is_some() && farther.is_some() {
            return farther;
        }
        self.regular = 0;
        self.enough = (2 * self.enough).min(MANY);
        if farther.is_some() {
            return farther;
        }
        let next = predicted.unwrap_or(0);
        let longest = bytes.len().min(PACKET_SPACE);
        let mut lengths = (SHORTEST..=longest).step_by(4);
        if let Some(found) = lengths.find(|length| self.is_packet(flow, next, bytes, *length)) {
            self.usual = found;
            return Some((found, next));
        }
        // A batch of which the network has delivered a part.
        let (_, number) = icrc::find_identification(flow, unseen(next), bytes).ok()?;
        Some((bytes.len(), number))
    }

    /// Looks for a packet of a usual length whose identification is a little larger than predicted, or
    /// which is the first of its flow.
    fn find_farther(
        &self,
        flow: &Flow,
        predicted: Option<u16>,
        bytes: &[u8],
    ) -> Option<(usize, u16)> {
        let next = predicted.unwrap_or(0);
        let is_near = |number: u16| match predicted {
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

    /// A GRO buffer of packets of these lengths, whose sender begins each batch with 0.
    fn joined(lengths: &[usize]) -> Vec<u8> {
        numbered(lengths, 0)
    }

    /// The same, with this identification of the first packet.
    fn numbered(lengths: &[usize], first: u16) -> Vec<u8> {
        let packet = |(place, length): (usize, &usize)| {
            let mut packet = vec![*length as u8; *length];
            let unseen = unseen(first.wrapping_add(place as u16));
            icrc::seal(&flow(), unseen, &mut packet, length - icrc::LEN).unwrap();
            packet
        };
        lengths.iter().enumerate().flat_map(packet).collect()
    }

    /// A splitter that has seen enough packets of 80 B with acknowledgements.
    fn ready() -> GroSplitter {
        let mut gro = GroSplitter::new(FEW);
        gro.note_kernel(100, 80);
        (0..FEW).for_each(|_| pass_80(&mut gro, 0));
        assert_eq!(gro.boundaries(), Boundaries::FromIcrc);
        gro
    }

    #[test]
    fn irregular_buffers_are_split_by_the_kernel() {
        let mut gro = GroSplitter::new(FEW);
        for _ in 0..FEW {
            gro.note_kernel(100, 80);
            gro.note_kernel(120, 100);
        }
        (0..FEW).for_each(|_| gro.note_kernel(LONGEST_FOUND + 1, LONGEST_FOUND + 1));
        assert_eq!(gro.boundaries(), Boundaries::FromKernel);
        (0..FEW - 1).for_each(|_| gro.note_kernel(80, 80));
        gro.begin();
        gro.note_kernel(80, 80);
        assert_eq!(gro.boundaries(), Boundaries::FromKernel);
    }

    /// Passes a packet of 80 B whose boundaries came from the kernel.
    fn pass_80(gro: &mut GroSplitter, number: u16) {
        gro.note_kernel(80, 80);
        let alone = numbered(&[80], number);
        let (_, found) = gro.packet(&flow(), 0, &alone).unwrap();
        assert_eq!(found, number);
    }

    #[test]
    fn identifications_are_predicted_past_wraparound_and_losses() {
        let mut gro = GroSplitter::new(FEW);
        gro.note_kernel(100, 80);
        (0..=FEW as u16).for_each(|n| pass_80(&mut gro, 65_500 + n));
        assert_eq!(gro.boundaries(), Boundaries::FromIcrc);
        for number in [65_517, 65_519, 65_535] {
            let batch = numbered(&[80, 20], number);
            assert_eq!(gro.find(&flow(), &batch), Some((80, number)));
            assert_eq!(gro.boundaries(), Boundaries::FromIcrc);
            let second = gro.packet(&flow(), 1, &batch[80..]);
            assert_eq!(second.map(|found| found.1), Some(number.wrapping_add(1)));
        }
        for number in [0, 1, 2] {
            let batch = numbered(&[80], number);
            assert_eq!(gro.find(&flow(), &batch), Some((80, number)));
        }
    }

    #[test]
    fn unpredictable_identifications_are_left_to_the_kernel() {
        let mut gro = ready();
        let batch = numbered(&[80, 20], 5000);
        assert_eq!(
            gro.find(&flow(), &batch),
            None,
            "a jump of the identification"
        );
        let other = numbered(&[80], 5000);
        assert_eq!(
            gro.find(&flow(), &other),
            Some((80, 5000)),
            "a packet alone needs no boundary"
        );
        (0..4 * FEW as u16).for_each(|n| pass_80(&mut gro, 300 * n));
        assert_eq!(gro.boundaries(), Boundaries::FromKernel);
    }

    #[test]
    fn the_first_packets_of_a_flow_are_found() {
        let mut gro = ready();
        gro.predicted = PredictedIds::default();
        let batch = numbered(&[80, 20], 5000);
        assert_eq!(gro.find(&flow(), &batch), Some((80, 5000)));
        assert_eq!(gro.boundaries(), Boundaries::FromKernel);
    }

    #[test]
    fn regular_buffers_need_no_search() {
        let mut gro = ready();
        for (lengths, first) in [
            (&[80, 20][..], 80),
            (&[80, 80, 80], 80),
            (&[20], 20),
            (&[80], 80),
            (&[1044], 1044),
        ] {
            assert_eq!(gro.find(&flow(), &joined(lengths)), Some((first, 0)));
            assert_eq!(gro.boundaries(), Boundaries::FromIcrc, "{lengths:?}");
        }
    }

    #[test]
    fn other_lengths_are_searched_for_and_then_left_to_the_kernel() {
        for (lengths, first) in [
            (&[20, 20][..], 20),
            (&[100, 20], 100),
            (&[100, 80], 100),
            (&[4112, 4112, 300], 4112),
            (&[PACKET_SPACE, 1000], PACKET_SPACE),
        ] {
            let mut gro = ready();
            assert_eq!(gro.find(&flow(), &joined(lengths)), Some((first, 0)));
            assert_eq!(gro.boundaries(), Boundaries::FromKernel, "{lengths:?}");
            (0..2 * FEW).for_each(|_| gro.note_kernel(20, 20));
            assert_eq!(gro.boundaries(), Boundaries::FromIcrc);
        }
    }

    #[test]
    fn a_part_of_a_batch_is_found() {
        let mut gro = ready();
        let batch = joined(&[80, 80, 20]);
        assert_eq!(gro.find(&flow(), &batch[160..]), Some((20, 2)));
        assert_eq!(gro.boundaries(), Boundaries::FromKernel);
    }

    #[test]
    fn damaged_packets_are_not_found() {
        let mut damaged = joined(&[80, 20]);
        damaged[30] ^= 1;
        for bytes in [&damaged[..], &[], &[0; 3]] {
            let mut gro = ready();
            assert_eq!(gro.find(&flow(), bytes), None);
            assert_eq!(gro.boundaries(), Boundaries::FromKernel);
        }
    }
}
