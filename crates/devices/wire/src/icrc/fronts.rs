//! ICRCs of packets whose headers are known from earlier ones.

use super::polynomial::{BYTE_FORTH, multiply, power};
use super::{BTH_RESV8A, Icrc, SHORT, behind_identification, compute, find_by, front_crc, seal_by};
use crate::frame::{Addresses, Flow};
use crate::ipv4::{Fragmentation, Unseen};
use crate::{WireError, crc32};

/// What is known of the headers in front of packets, which are the same for all of one flow and length but
/// for the identification: of a short packet they are half of what the ICRC covers. It computes the same as
/// the functions of the same names.
#[derive(Debug)]
pub struct Fronts {
    known: Box<[Option<Front>; FRONTS]>,
    shares: [Option<Box<Share>>; SHARES],
}

impl Default for Fronts {
    fn default() -> Self {
        Fronts {
            known: Box::new([None; FRONTS]),
            shares: Default::default(),
        }
    }
}

/// Kinds of packets that are known at a time: some lengths of a few peers.
const FRONTS: usize = 64;
/// Lengths of which it is known what an identification does.
const SHARES: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Front {
    kind: Kind,
    /// The CRC over the headers.
    crc: u32,
    /// Value to add to the CRC of the whole packet, because byte 4 of the base transport header counts as ones.
    masked: u32,
}

/// What the ICRC depends on in addition to the rest of the packet and the identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    length: usize,
    resv8a: u8,
    fragmentation: Fragmentation,
    flow: Flow,
}

impl Kind {
    /// Where it is remembered: lengths are multiples of 4, and ports numbers that follow each other.
    #[inline]
    const fn place(&self) -> usize {
        let ports = self.flow.source_port ^ self.flow.destination_port;
        (self.length / 4 + 3 * ports as usize) % FRONTS
    }

    /// Returns the state for packets with the headers of `packet`.
    #[cold]
    fn front(self, packet: &[u8]) -> Front {
        let unseen = Unseen {
            identification: 0,
            fragmentation: self.fragmentation,
        };
        let crc = front_crc(&self.flow, unseen, packet.len());
        let whole = compute(&self.flow, unseen, packet);
        Front {
            kind: self,
            crc,
            masked: whole.0 ^ crc32::extend(crc, packet),
        }
    }
}

/// What an identification adds to the ICRC of packets of one length, by its hexadecimal digits: a CRC is
/// linear.
#[derive(Debug)]
struct Share {
    length: usize,
    by_digit: [[u32; 16]; 4],
}

impl Share {
    #[cold]
    fn new(length: usize) -> Self {
        let forth = power(BYTE_FORTH, behind_identification(length) as u32);
        let mut by_digit = [[0; 16]; 4];
        for (i, row) in by_digit.iter_mut().enumerate() {
            for (digit, share) in row.iter_mut().enumerate() {
                *share = multiply((digit as u32) << (4 * i), forth);
            }
        }
        Share { length, by_digit }
    }

    #[inline]
    fn of(&self, identification: u16) -> u32 {
        // The register holds the first byte in its low bits.
        let bits = identification.swap_bytes();
        let rows = self.by_digit.iter().enumerate();
        rows.fold(0, |sum, (i, row)| {
            sum ^ row[usize::from(bits >> (4 * i) & 15)]
        })
    }
}

impl Fronts {
    /// As [`compute`].
    #[inline]
    pub fn compute(&mut self, flow: &Flow, unseen: Unseen, packet: &[u8]) -> Icrc {
        let resv8a = match packet.get(BTH_RESV8A) {
            Some(byte) if packet.len() <= SHORT => *byte,
            _ => return compute(flow, unseen, packet),
        };
        let kind = Kind {
            length: packet.len(),
            resv8a,
            fragmentation: unseen.fragmentation,
            flow: *flow,
        };
        let known = &mut self.known[kind.place()];
        let (crc, masked) = match known {
            Some(front) if front.kind == kind => (front.crc, front.masked),
            _ => {
                let front = known.insert(kind.front(packet));
                (front.crc, front.masked)
            }
        };
        let share = match (unseen.identification, flow.addresses) {
            (0, _) | (_, Addresses::V6(..)) => 0,
            (identification, _) => self.share(packet.len()).of(identification),
        };
        Icrc(crc32::extend(crc, packet) ^ masked ^ share)
    }

    #[inline]
    fn share(&mut self, length: usize) -> &Share {
        let known = &mut self.shares[length / 4 % SHARES];
        match known {
            Some(share) if share.length == length => {}
            _ => *known = Some(Box::new(Share::new(length))),
        }
        known.as_deref().expect("it was put there")
    }

    /// As [`super::seal`].
    ///
    /// # Errors
    /// A buffer without room for it.
    #[inline]
    pub fn seal(
        &mut self,
        flow: &Flow,
        unseen: Unseen,
        buffer: &mut [u8],
        length: usize,
    ) -> Result<usize, WireError> {
        seal_by(buffer, length, |packet| self.compute(flow, unseen, packet))
    }

    /// As [`super::find_identification`].
    ///
    /// # Errors
    /// Fewer than 4 bytes, or an ICRC that no identification makes right.
    #[inline]
    pub fn find_identification<'a>(
        &mut self,
        flow: &Flow,
        assumed: Unseen,
        datagram: &'a [u8],
    ) -> Result<(&'a [u8], u16), WireError> {
        let computed = |packet: &[u8]| self.compute(flow, assumed, packet);
        find_by(flow, assumed, datagram, computed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_headers_changes_no_icrc() {
        let ips = ["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"].map(|ip| ip.parse().unwrap());
        let flow = |from: usize, to: usize, source_port| Flow {
            addresses: Addresses::of(ips[from], ips[to]).unwrap(),
            source_port,
            destination_port: crate::ROCE_PORT,
        };
        let flows = [
            flow(0, 1, 4791),
            flow(1, 0, 4791),
            flow(0, 1, 4792),
            flow(2, 3, 4791),
        ];
        let mut fronts = Fronts::default();
        // Twice, and between others of the same place.
        for turn in 0..4_u8 {
            for (flow, length) in flows
                .iter()
                .flat_map(|flow| (0..200).map(move |l| (flow, l)))
            {
                for identification in [0, 1, 0xabcd] {
                    let unseen = Unseen {
                        identification,
                        ..Unseen::default()
                    };
                    let mut packet: Vec<u8> = (0..length as u8).map(|b| b ^ turn).collect();
                    for resv8a in [0, 0x80] {
                        if let Some(byte) = packet.get_mut(BTH_RESV8A) {
                            *byte = resv8a;
                        }
                        let icrc = compute(flow, unseen, &packet);
                        assert_eq!(fronts.compute(flow, unseen, &packet), icrc);
                        assert_eq!(fronts.compute(flow, unseen, &packet), icrc, "known");
                    }
                }
            }
        }
    }
}
