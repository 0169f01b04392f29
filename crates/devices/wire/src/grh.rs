//! Global routing header (IBTA vol. 1, 8.3), 40 B. On InfiniBand and RoCE v1 it precedes the packet; every UD
//! receive gets it before the payload. An IPv6 header has the same layout.

use adverb_verbs::Gid;

use crate::WireError;
use crate::fields::{be16, be32, octets, put, split};

/// Next header of a GRH: the base transport header (IBTA vol. 1, 8.3).
pub const NEXT_HEADER: u8 = 0x1b;
/// Length of the header in bytes.
pub const LEN: usize = 40;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Length in bytes of what follows the header.
    pub payload_length: u16,
    /// Protocol of what follows: [`NEXT_HEADER`], or UDP in an IPv6 header.
    pub next_header: u8,
    /// Number of routers that may still forward the packet.
    pub hop_limit: u8,
    /// Source.
    pub sgid: Gid,
    /// Destination.
    pub dgid: Gid,
}

impl Grh {
    /// Parses the header at the beginning of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes, or a version other than 6.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, rest) = split::<LEN>("GRH", bytes)?;
        let first = be32(header, 0);
        if first >> 28 != 6 {
            return Err(WireError::IpVersion((first >> 28) as u8));
        }
        let grh = Grh {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            payload_length: be16(header, 4),
            next_header: header[6],
            hop_limit: header[7],
            sgid: Gid(octets(header, 8)),
            dgid: Gid(octets(header, 24)),
        };
        Ok((grh, rest))
    }

    /// Returns the header's bytes.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        let mut out = [0; LEN];
        put(&mut out, 0, first.to_be_bytes());
        put(&mut out, 4, self.payload_length.to_be_bytes());
        out[6] = self.next_header;
        out[7] = self.hop_limit;
        put(&mut out, 8, self.sgid.0);
        put(&mut out, 24, self.dgid.0);
        out
    }
}

/// Returns what a UD receive over IPv4 gets in place of a GRH: 20 undefined bytes, here zero, and the IPv4 header
/// (IBTA annex A17.4.5.2).
pub fn area_of_ipv4(header: &[u8; crate::ipv4::LEN]) -> [u8; LEN] {
    let mut out = [0; LEN];
    put(&mut out, LEN - crate::ipv4::LEN, *header);
    out
}
