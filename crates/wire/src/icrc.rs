//! The invariant CRC (IBTA vol. 1, 7.8.1; annex A17.3.3 for RoCEv2), 4 B at the end of a packet.
//!
//! It is CRC-32 (Ethernet's) over 8 bytes of ones, the IP and UDP headers and the packet, where
//! every field that may change on the way counts as ones: IPv4's type of service, time to live and
//! header checksum; IPv6's traffic class, flow label and hop limit; UDP's checksum; byte 4 of the
//! base transport header (`FECN`, `BECN`, `Resv8a`). It is sent low byte first.
//!
//! **Without the IP header.** A program with a UDP socket sees addresses and ports but not the
//! sender's IPv4 identification, which counts. CRC is linear: wrong bits at a known place change
//! it by `bits · x^n` (modulo the polynomial), where `n` is their distance from the end. So the
//! difference between the packet's ICRC and the one for identification 0, multiplied by `x^-n`,
//! *is* the identification, and any other damage leaves bits outside these 16.
//! [`find_identification`] does that.

use std::fmt;

use crate::frame::{Addresses, Flow};
use crate::ipv4::{self, Fragmentation, Ipv4, Unseen};
use crate::udp::{self, Udp};
use crate::view::put;
use crate::{WireError, bth, crc32, ipv6};

/// Bytes of the ICRC.
pub const LEN: usize = 4;

/// Bytes of ones before the headers: the local routing header that RoCE does not have.
const ONES: usize = 8;
/// Where IPv4's identification stands in what the CRC covers.
const IDENTIFICATION: usize = ONES + 4;
const BTH_RESV8A: usize = 4;

/// An invariant CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Icrc(pub u32);

impl Icrc {
    /// The ICRC as it is sent.
    pub const fn to_bytes(self) -> [u8; LEN] {
        self.0.to_le_bytes()
    }

    /// The ICRC that was received.
    pub const fn from_bytes(bytes: [u8; LEN]) -> Self {
        Icrc(u32::from_le_bytes(bytes))
    }
}

impl fmt::Display for Icrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// The ICRC of a packet (base transport header to padding) sent over this flow.
///
/// `unseen` is what the IPv4 header has; over IPv6 it has no meaning. Linux sends 0 as
/// identification from an unconnected socket that discovers the path MTU.
#[inline]
pub fn compute(flow: &Flow, unseen: Unseen, packet: &[u8]) -> Icrc {
    let mut all = [0xff; LONGEST_FRONT + SHORT];
    let at = lay_out_front(&mut all, flow, unseen, packet.len());
    let copied = match packet.len() {
        length @ ..=SHORT => length,
        _ => bth::LEN,
    };
    let (front, rest) = packet.split_at(copied);
    all[at..at + copied].copy_from_slice(front);
    if copied > BTH_RESV8A {
        all[at + BTH_RESV8A] = 0xff;
    }
    let crc = crc32::extend(0, &all[..at + copied]);
    match rest {
        [] => Icrc(crc),
        rest => Icrc(crc32::extend(crc, rest)),
    }
}

/// Packets up to this length are copied behind their headers, to be gone over at once: each pass has
/// its price, which of a short one is the greater part.
const SHORT: usize = 128;
const LONGEST_FRONT: usize = ONES + ipv6::LEN + udp::LEN;

/// Writes what stands in front of a packet of so many bytes, with ones for what may change, to `all`, which
/// is ones; its length.
#[inline]
fn lay_out_front<const N: usize>(
    all: &mut [u8; N],
    flow: &Flow,
    unseen: Unseen,
    packet: usize,
) -> usize {
    let length = udp::LEN + packet + LEN;
    let at = match flow.addresses {
        Addresses::V4(source, destination) => {
            let ip = Ipv4 {
                tos: 0xff,
                total_length: (ipv4::LEN + length) as u16,
                unseen,
                ttl: 0xff,
                source,
                destination,
            };
            put(all, ONES, ip.masked());
            ONES + ipv4::LEN
        }
        Addresses::V6(source, destination) => {
            let ip = ipv6::Ipv6 {
                traffic_class: 0xff,
                flow_label: 0xf_ffff,
                payload_length: length as u16,
                hop_limit: 0xff,
                source,
                destination,
            };
            put(all, ONES, ip.to_bytes());
            ONES + ipv6::LEN
        }
    };
    let udp = Udp {
        source: flow.source_port,
        destination: flow.destination_port,
        length: length as u16,
        checksum: 0xffff,
    };
    put(all, at, udp.to_bytes());
    at + udp::LEN
}

/// The CRC over what stands in front of a packet of so many bytes.
fn front_crc(flow: &Flow, unseen: Unseen, packet: usize) -> u32 {
    let mut front = [0xff; LONGEST_FRONT];
    let length = lay_out_front(&mut front, flow, unseen, packet);
    crc32::extend(0, &front[..length])
}

/// Appends the ICRC to a packet of `length` bytes at the beginning of `buffer` and gives the length
/// with it.
///
/// # Errors
/// A buffer without room for it.
#[inline]
pub fn seal(
    flow: &Flow,
    unseen: Unseen,
    buffer: &mut [u8],
    length: usize,
) -> Result<usize, WireError> {
    seal_by(buffer, length, |packet| compute(flow, unseen, packet))
}

#[inline]
fn seal_by(
    buffer: &mut [u8],
    length: usize,
    compute: impl FnOnce(&[u8]) -> Icrc,
) -> Result<usize, WireError> {
    let (need, have) = (length + LEN, buffer.len());
    let space = WireError::NoSpace { need, have };
    let (packet, rest) = buffer.split_at_mut_checked(length).ok_or(space)?;
    let place = rest.first_chunk_mut::<LEN>().ok_or(space)?;
    *place = compute(packet).to_bytes();
    Ok(need)
}

/// The packet and the ICRC of the payload of a UDP datagram.
///
/// # Errors
/// Fewer than 4 bytes.
#[inline]
pub fn split(datagram: &[u8]) -> Result<(&[u8], Icrc), WireError> {
    let truncated = WireError::Truncated {
        header: "ICRC",
        need: LEN,
        have: datagram.len(),
    };
    let (packet, icrc) = datagram.split_last_chunk::<LEN>().ok_or(truncated)?;
    Ok((packet, Icrc::from_bytes(*icrc)))
}

/// The packet of a UDP datagram's payload, if its ICRC is right.
///
/// # Errors
/// Fewer than 4 bytes, or a wrong ICRC.
#[inline]
pub fn check<'a>(flow: &Flow, unseen: Unseen, datagram: &'a [u8]) -> Result<&'a [u8], WireError> {
    check_by(datagram, |packet| compute(flow, unseen, packet))
}

#[inline]
fn check_by(datagram: &[u8], compute: impl FnOnce(&[u8]) -> Icrc) -> Result<&[u8], WireError> {
    let (packet, found) = split(datagram)?;
    let computed = compute(packet);
    if found == computed {
        Ok(packet)
    } else {
        Err(WireError::Icrc {
            found: found.0,
            computed: computed.0,
        })
    }
}

/// The packet of a UDP datagram's payload, and the identification that makes its ICRC right; for a
/// receiver that does not see the IP header. Over IPv6 the ICRC must be right as it is.
///
/// Damage is overlooked once in 65536 times (the CRC's 32 bits less the 16 that are unknown).
///
/// # Errors
/// Fewer than 4 bytes, or an ICRC that no identification makes right.
#[inline]
pub fn find_identification<'a>(
    flow: &Flow,
    assumed: Unseen,
    datagram: &'a [u8],
) -> Result<(&'a [u8], u16), WireError> {
    let computed = |packet: &[u8]| compute(flow, assumed, packet);
    find_by(flow, assumed, datagram, computed)
}

#[inline]
fn find_by<'a>(
    flow: &Flow,
    assumed: Unseen,
    datagram: &'a [u8],
    compute: impl FnOnce(&[u8]) -> Icrc,
) -> Result<(&'a [u8], u16), WireError> {
    let (packet, found) = split(datagram)?;
    let computed = compute(packet);
    let difference = found.0 ^ computed.0;
    if difference == 0 {
        return Ok((packet, assumed.identification));
    }
    let bits = unshift(difference, behind_identification(packet.len()));
    match (flow.addresses, u16::try_from(bits)) {
        (Addresses::V4(..), Ok(bits)) => {
            // The register holds the first byte in its low bits.
            Ok((packet, assumed.identification ^ bits.swap_bytes()))
        }
        _ => Err(WireError::Icrc {
            found: found.0,
            computed: computed.0,
        }),
    }
}

/// What is known of the headers in front of packets, which are the same for all of one flow and length but
/// for the identification: of a short packet they are half of what the ICRC covers. It computes the same as
/// the functions beside it.
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
    /// What is to be added to the CRC of the whole, since byte 4 of the base transport header counts as ones.
    masked: u32,
}

/// What the ICRC depends on beside the rest of the packet and the identification.
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

    /// What stands in front of such packets, of which `packet` is one.
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

/// Bytes that the ICRC covers from the identification of an IPv4 header on, in front of a packet of so many.
const fn behind_identification(packet: usize) -> usize {
    ONES + ipv4::LEN + udp::LEN + packet - IDENTIFICATION
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

    /// As [`seal`].
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

    /// As [`check`].
    ///
    /// # Errors
    /// Fewer than 4 bytes, or a wrong ICRC.
    #[inline]
    pub fn check<'a>(
        &mut self,
        flow: &Flow,
        unseen: Unseen,
        datagram: &'a [u8],
    ) -> Result<&'a [u8], WireError> {
        check_by(datagram, |packet| self.compute(flow, unseen, packet))
    }

    /// As [`find_identification`].
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

/// CRC-32's polynomial, its highest power in the lowest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// x^0 in that order of bits.
const ONE: u32 = 1 << 31;
/// x^8.
const BYTE_FORTH: u32 = ONE >> 8;
/// x^-8: the polynomial is primitive, so x^(2^32 - 1) = 1.
const BYTE_BACK: u32 = power(1 << 30, u32::MAX - 8);
/// Powers of x^-8 by the digits of the exponent in base 16, for exponents below 2^16.
const BACK: [[u32; 16]; 4] = digits();

/// A difference of CRCs as it was `bytes` bytes (below 2^16) earlier.
fn unshift(difference: u32, bytes: usize) -> u32 {
    BACK.iter()
        .enumerate()
        .fold(difference, |product, (i, row)| {
            match bytes >> (4 * i) & 15 {
                0 => product,
                digit => multiply(product, row[digit]),
            }
        })
}

/// Product of two polynomials modulo CRC-32's.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut term = ONE;
    while term != 0 {
        if a & term != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
        term >>= 1;
    }
    product
}

const fn power(base: u32, mut exponent: u32) -> u32 {
    let mut product = ONE;
    let mut square = base;
    while exponent != 0 {
        if exponent & 1 != 0 {
            product = multiply(product, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    product
}

const fn digits() -> [[u32; 16]; 4] {
    let mut table = [[ONE; 16]; 4];
    let mut base = BYTE_BACK;
    let mut row = 0;
    while row < table.len() {
        let mut digit = 1;
        while digit < 16 {
            table[row][digit] = multiply(table[row][digit - 1], base);
            digit += 1;
        }
        base = multiply(table[row][15], base);
        row += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shifting the register of a CRC by zero bytes, one bit at a time.
    fn shift(mut register: u32, bytes: usize) -> u32 {
        for _ in 0..8 * bytes {
            register = (register >> 1) ^ (POLYNOMIAL & (register & 1).wrapping_neg());
        }
        register
    }

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

    #[test]
    fn going_back_undoes_going_forth() {
        for bytes in [0, 1, 15, 16, 17, 255, 4096, 65_535] {
            for register in [1, 0xabcd, 0x8000_0000, 0xdead_beef] {
                assert_eq!(unshift(shift(register, bytes), bytes), register);
            }
        }
    }
}
