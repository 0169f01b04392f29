//! IPv4 header without options (RFC 791), 20 B: RoCEv2 has none.

use std::net::Ipv4Addr;

use crate::WireError;
use crate::view::{be16, octets, put};

/// Protocol number of UDP.
pub const UDP: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

view!(
    /// The header's fields as they are.
    Ipv4View, "IPv4", 20);

impl Ipv4View<'_> {
    /// IP version.
    pub fn version(&self) -> u8 {
        self.0[0] >> 4
    }

    /// Length of the header in words of 4 B.
    pub fn header_length(&self) -> u8 {
        self.0[0] & 0xf
    }

    /// Type of service: DSCP and ECN.
    pub fn tos(&self) -> u8 {
        self.0[1]
    }

    /// Bytes of the datagram, this header included.
    pub fn total_length(&self) -> u16 {
        be16(self.0, 2)
    }

    /// Identification.
    pub fn identification(&self) -> u16 {
        be16(self.0, 4)
    }

    /// Flags and fragment offset.
    pub fn fragment(&self) -> u16 {
        be16(self.0, 6)
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        self.0[8]
    }

    /// Protocol.
    pub fn protocol(&self) -> u8 {
        self.0[9]
    }

    /// The one's complement sum over the header: 0xffff where the checksum is right.
    pub fn sum(&self) -> u16 {
        sum(self.0)
    }

    /// Source.
    pub fn source(&self) -> Ipv4Addr {
        octets::<LEN, 4>(self.0, 12).into()
    }

    /// Destination.
    pub fn destination(&self) -> Ipv4Addr {
        octets::<LEN, 4>(self.0, 16).into()
    }
}

/// Whether routers may fragment a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fragmentation {
    /// They may not: what Linux sends from a socket that discovers the path MTU, and what Soft-RoCE
    /// sends.
    #[default]
    Forbidden,
    /// They may.
    Allowed,
}

/// IPv4 header fields that a UDP socket does not see, but the ICRC covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Unseen {
    /// Identification.
    pub identification: u16,
    /// "Don't fragment".
    pub fragmentation: Fragmentation,
}

/// The header as values. The protocol is UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Bytes of the datagram, this header included.
    pub total_length: u16,
    /// Identification and "don't fragment".
    pub unseen: Unseen,
    /// Time to live.
    pub ttl: u8,
    /// Source.
    pub source: Ipv4Addr,
    /// Destination.
    pub destination: Ipv4Addr,
}

impl Ipv4 {
    /// The values of a header.
    ///
    /// # Errors
    /// Another version or protocol, options, a fragment, or a wrong checksum.
    pub fn parse(view: &Ipv4View<'_>) -> Result<Self, WireError> {
        if view.version() != 4 {
            return Err(WireError::IpVersion(view.version()));
        }
        if view.header_length() != 5 {
            return Err(WireError::Ipv4HeaderLength(view.header_length()));
        }
        if view.sum() != 0xffff {
            return Err(WireError::Ipv4Checksum(!view.sum()));
        }
        if view.fragment() & (MORE_FRAGMENTS | OFFSET) != 0 {
            return Err(WireError::Fragment(view.fragment()));
        }
        if view.protocol() != UDP {
            return Err(WireError::Protocol {
                header: "IPv4",
                found: view.protocol(),
                wanted: UDP,
            });
        }
        let fragmentation = match view.fragment() & DONT_FRAGMENT {
            0 => Fragmentation::Allowed,
            _ => Fragmentation::Forbidden,
        };
        Ok(Ipv4 {
            tos: view.tos(),
            total_length: view.total_length(),
            unseen: Unseen {
                identification: view.identification(),
                fragmentation,
            },
            ttl: view.ttl(),
            source: view.source(),
            destination: view.destination(),
        })
    }

    /// The header's bytes, with its checksum.
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
}

impl Ipv4 {
    /// The header as the ICRC sees it, whose type of service and time to live are ones already.
    #[inline]
    pub(crate) fn masked(&self) -> [u8; LEN] {
        let mut out = self.without_checksum();
        put(&mut out, 10, [0xff; 2]);
        out
    }
}

/// One's complement sum of 16-bit words (RFC 1071).
fn sum(header: &[u8; LEN]) -> u16 {
    let words = header.chunks_exact(2);
    let total: u32 = words
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    let folded = (total & 0xffff) + (total >> 16);
    ((folded & 0xffff) + (folded >> 16)) as u16
}
