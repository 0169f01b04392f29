//! Global routing header (IBTA vol. 1, 8.3), 40 B: on InfiniBand and RoCE v1 before the packet; on
//! every UD receive in front of the payload. An IPv6 header has the same form.

use adverb_verbs::Gid;

use crate::WireError;
use crate::view::{be16, be32, octets, put};

/// Next header of a GRH: the base transport header (IBTA vol. 1, 8.3).
pub const NEXT_HEADER: u8 = 0x1b;

view!(
    /// The header's fields as they are.
    GrhView, "GRH", 40);

impl GrhView<'_> {
    /// IP version.
    #[inline]
    pub fn version(&self) -> u8 {
        self.0[0] >> 4
    }

    /// Traffic class.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (be16(self.0, 0) >> 4) as u8
    }

    /// Flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        be32(self.0, 0) & 0xf_ffff
    }

    /// Bytes after the header.
    #[inline]
    pub fn payload_length(&self) -> u16 {
        be16(self.0, 4)
    }

    /// Protocol of the next header.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.0[6]
    }

    /// Routers that it may still pass.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.0[7]
    }

    /// Source.
    #[inline]
    pub fn sgid(&self) -> Gid {
        Gid(octets(self.0, 8))
    }

    /// Destination.
    #[inline]
    pub fn dgid(&self) -> Gid {
        Gid(octets(self.0, 24))
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes after the header.
    pub payload_length: u16,
    /// What follows: [`NEXT_HEADER`], or UDP where an IPv6 header stands for the GRH.
    pub next_header: u8,
    /// Routers that it may still pass.
    pub hop_limit: u8,
    /// Source.
    pub sgid: Gid,
    /// Destination.
    pub dgid: Gid,
}

impl Grh {
    /// The values of a header.
    ///
    /// # Errors
    /// A version other than 6.
    pub fn parse(view: &GrhView<'_>) -> Result<Self, WireError> {
        if view.version() != 6 {
            return Err(WireError::IpVersion(view.version()));
        }
        Ok(Grh {
            traffic_class: view.traffic_class(),
            flow_label: view.flow_label(),
            payload_length: view.payload_length(),
            next_header: view.next_header(),
            hop_limit: view.hop_limit(),
            sgid: view.sgid(),
            dgid: view.dgid(),
        })
    }

    /// The header's bytes.
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

/// What a UD receive over IPv4 has in place of a GRH: 20 B without meaning, here zero, then the
/// IPv4 header (IBTA annex A17.4.5.2).
pub fn area_of_ipv4(header: &[u8; crate::ipv4::LEN]) -> [u8; LEN] {
    let mut out = [0; LEN];
    put(&mut out, LEN - crate::ipv4::LEN, *header);
    out
}
