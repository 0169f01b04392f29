//! The invariant CRC (IBTA vol. 1, 7.8.1; annex A17.3.3 for RoCEv2), 4 B at the end of a packet.
//!
//! It is CRC-32 (Ethernet's) over 8 bytes of ones, the IP and UDP headers and the packet. All bits of fields that may
//! change on the way are replaced by ones: IPv4's type of service, time to live and header checksum; IPv6's traffic
//! class, flow label and hop limit; UDP's checksum; byte 4 of the base transport header (`FECN`, `BECN`, `Resv8a`).
//! It is sent low byte first.
//!
//! **Without the IP header.** A program with a UDP socket sees addresses and ports, but not the sender's IPv4
//! identification, which the ICRC covers. CRC is linear: flipping bits at a known offset changes it by `bits · x^n`
//! (modulo the polynomial), where `n` is their distance from the end. So the difference between the packet's ICRC and
//! the one for identification 0, multiplied by `x^-n`, is the identification. Other damage leaves bits outside these
//! 16, except by chance. [`find_identification`] uses this.

mod polynomial;

use std::fmt;

use crate::fields::put;
use crate::frame::{Addresses, Flow};
use crate::ipv4::{self, Ipv4, Unseen};
use crate::udp::{self, Udp};
use crate::{WireError, bth, crc32, ipv6};
use polynomial::unshift;

/// Length of the ICRC in bytes.
pub const LEN: usize = 4;

/// Number of bytes of ones before the headers, in place of the local routing header of InfiniBand.
const ONES: usize = 8;
/// Offset of the IPv4 identification in the bytes that the CRC covers.
const IDENTIFICATION: usize = ONES + 4;
const BTH_RESV8A: usize = 4;

/// An invariant CRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Icrc(pub u32);

impl Icrc {
    /// Returns the ICRC as it is sent.
    pub const fn to_bytes(self) -> [u8; LEN] {
        self.0.to_le_bytes()
    }

    /// Returns the ICRC from its bytes as received.
    pub const fn from_bytes(bytes: [u8; LEN]) -> Self {
        Icrc(u32::from_le_bytes(bytes))
    }
}

impl fmt::Display for Icrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Returns the ICRC of a packet (base transport header to padding) sent over this flow.
///
/// `unseen` is from the IPv4 header; it has no meaning over IPv6. Linux sends 0 as identification from an unconnected
/// socket that discovers the path MTU.
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

/// Packets up to this length are copied behind their headers, so that one pass covers both: the overhead of a pass is
/// most of its cost if the packet is short.
const SHORT: usize = 128;
const LONGEST_FRONT: usize = ONES + ipv6::LEN + udp::LEN;

/// Writes what precedes a packet of `packet` bytes, with ones for fields that may change, to `all`, which consists of
/// ones. Returns its length.
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

/// Appends the ICRC to a packet of `length` bytes at the beginning of `buffer`; returns the length with the ICRC.
///
/// # Errors
/// The buffer is too short.
#[inline]
pub fn seal(
    flow: &Flow,
    unseen: Unseen,
    buffer: &mut [u8],
    length: usize,
) -> Result<usize, WireError> {
    let (need, have) = (length + LEN, buffer.len());
    let space = WireError::NoSpace { need, have };
    let (packet, rest) = buffer.split_at_mut_checked(length).ok_or(space)?;
    let place = rest.first_chunk_mut::<LEN>().ok_or(space)?;
    *place = compute(flow, unseen, packet).to_bytes();
    Ok(need)
}

/// Splits the payload of a UDP datagram into packet and ICRC.
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

/// Returns the packet in the payload of a UDP datagram, if its ICRC is right.
///
/// # Errors
/// Fewer than 4 bytes, or a wrong ICRC.
#[inline]
pub fn check<'a>(flow: &Flow, unseen: Unseen, datagram: &'a [u8]) -> Result<&'a [u8], WireError> {
    let (packet, found) = split(datagram)?;
    let computed = compute(flow, unseen, packet);
    if found == computed {
        Ok(packet)
    } else {
        Err(WireError::Icrc {
            found: found.0,
            computed: computed.0,
        })
    }
}

/// Returns the packet in the payload of a UDP datagram, and the identification for which its ICRC is right: for a
/// receiver that does not see the IP header. It tries the assumed identification first. (IPv6 has none.)
///
/// One in 65536 damaged packets is not detected: of the CRC's 32 bits, 16 determine the identification.
///
/// # Errors
/// Fewer than 4 bytes, or an ICRC that is wrong for every identification.
#[inline]
pub fn find_identification<'a>(
    flow: &Flow,
    assumed: Unseen,
    datagram: &'a [u8],
) -> Result<(&'a [u8], u16), WireError> {
    let (packet, found) = split(datagram)?;
    let computed = compute(flow, assumed, packet);
    let difference = found.0 ^ computed.0;
    if difference == 0 {
        return Ok((packet, assumed.identification));
    }
    let behind = ONES + ipv4::LEN + udp::LEN + packet.len() - IDENTIFICATION;
    let bits = unshift(difference, behind);
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
