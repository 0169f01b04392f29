//! IPv6 header (RFC 8200), 40 B, directly followed by UDP.

use std::net::Ipv6Addr;

use adverb_verbs::Gid;

use crate::WireError;
use crate::grh::Grh;
use crate::ipv4::UDP;

/// Length of the header in bytes.
pub const LEN: usize = crate::grh::LEN;

/// The header. The next header is UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Length in bytes of what follows the header.
    pub payload_length: u16,
    /// Number of routers that may still forward the packet.
    pub hop_limit: u8,
    /// Source.
    pub source: Ipv6Addr,
    /// Destination.
    pub destination: Ipv6Addr,
}

impl Ipv6 {
    /// Parses the header at the beginning of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes, or another version or next header.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (grh, rest) = Grh::parse(bytes)?;
        if grh.next_header != UDP {
            return Err(WireError::Protocol {
                header: "IPv6",
                found: grh.next_header,
                wanted: UDP,
            });
        }
        let ip = Ipv6 {
            traffic_class: grh.traffic_class,
            flow_label: grh.flow_label,
            payload_length: grh.payload_length,
            hop_limit: grh.hop_limit,
            source: grh.sgid.0.into(),
            destination: grh.dgid.0.into(),
        };
        Ok((ip, rest))
    }

    /// Returns the header as a GRH, as a UD receive gets it.
    fn to_grh(self) -> Grh {
        Grh {
            traffic_class: self.traffic_class,
            flow_label: self.flow_label,
            payload_length: self.payload_length,
            next_header: UDP,
            hop_limit: self.hop_limit,
            sgid: Gid(self.source.octets()),
            dgid: Gid(self.destination.octets()),
        }
    }

    /// Returns the header's bytes.
    pub fn to_bytes(&self) -> [u8; LEN] {
        self.to_grh().to_bytes()
    }
}
