//! IPv4 header without options (RFC 791), 20 B: RoCEv2 has none.

use std::net::Ipv4Addr;

use crate::WireError;
use crate::fields::{be16, octets, put, split};

/// Length of the header in bytes.
pub const LEN: usize = 20;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// Whether routers may fragment a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fragmentation {
    /// They may not. Linux sends this from a socket that discovers the path MTU, and so does Soft-RoCE.
    #[default]
    Forbidden,
    /// Routers may fragment it.
    Allowed,
}

/// IPv4 header fields that a UDP socket does not see, but the ICRC covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Unseen {
    /// Identification.
    pub identification: u16,
    /// Whether routers may fragment it.
    pub fragmentation: Fragmentation,
}

/// The header. The protocol is UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Length of the datagram in bytes, with this header.
    pub total_length: u16,
    /// Identification and fragmentation.
    pub unseen: Unseen,
    /// Time to live.
    pub ttl: u8,
    /// Source.
    pub source: Ipv4Addr,
    /// Destination.
    pub destination: Ipv4Addr,
}

impl Ipv4 {
    /// Parses the header at the beginning of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes, another version or protocol, options, a fragment, or a wrong checksum.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, rest) = split::<LEN>("IPv4", bytes)?;
        let (version, words) = (header[0] >> 4, header[0] & 0xf);
        if version != 4 {
            return Err(WireError::IpVersion(version));
        }
        if words != 5 {
            return Err(WireError::Ipv4HeaderLength(words));
        }
        let sum = sum(header);
        if sum != 0xffff {
            return Err(WireError::Ipv4Checksum(!sum));
        }
        let fragment = be16(header, 6);
        if fragment & (MORE_FRAGMENTS | OFFSET) != 0 {
            return Err(WireError::Fragment(fragment));
        }
        if header[9] != UDP {
            return Err(WireError::Protocol {
                header: "IPv4",
                found: header[9],
                wanted: UDP,
            });
        }
        let fragmentation = match fragment & DONT_FRAGMENT {
            0 => Fragmentation::Allowed,
            _ => Fragmentation::Forbidden,
        };
        let ip = Ipv4 {
            tos: header[1],
            total_length: be16(header, 2),
            unseen: Unseen {
                identification: be16(header, 4),
                fragmentation,
            },
            ttl: header[8],
            source: octets::<LEN, 4>(header, 12).into(),
            destination: octets::<LEN, 4>(header, 16).into(),
        };
        Ok((ip, rest))
    }

    /// Returns the header's bytes, with its checksum.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut out = self.without_checksum();
        let checksum = !sum(&out);
        put(&mut out, 10, checksum.to_be_bytes());
        out
    }

    #[inline]
    fn without_checksum(&self) -> [u8; LEN] {
        let fragment = match self.unseen.fragmentation {
            Fragmentation::Forbidden => DONT_FRAGMENT,
            Fragmentation::Allowed => 0,
        };
        let mut out = [0; LEN];
        out[0] = 0x45;
        out[1] = self.tos;
        put(&mut out, 2, self.total_length.to_be_bytes());
        put(&mut out, 4, self.unseen.identification.to_be_bytes());
        put(&mut out, 6, fragment.to_be_bytes());
        out[8] = self.ttl;
        out[9] = UDP;
        put(&mut out, 12, self.source.octets());
        put(&mut out, 16, self.destination.octets());
        out
    }

    /// Returns the header as the ICRC covers it. The caller has set type of service and time to live to ones.
    #[inline]
    pub(crate) fn masked(&self) -> [u8; LEN] {
        let mut out = self.without_checksum();
        put(&mut out, 10, [0xff; 2]);
        out
    }
}

/// Returns the one's complement sum of 16-bit words (RFC 1071): 0xffff if the checksum is right.
fn sum(header: &[u8; LEN]) -> u16 {
    let words = header.chunks_exact(2);
    let total: u32 = words
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    let folded = (total & 0xffff) + (total >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}
