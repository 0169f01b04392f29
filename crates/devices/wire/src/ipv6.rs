//! IPv6 header (RFC 8200), 40 B, followed by UDP at once.

use std::net::Ipv6Addr;

use adverb_verbs::Gid;

use crate::WireError;
use crate::grh::{Grh, GrhView};
use crate::ipv4::UDP;

/// Bytes of the header.
pub const LEN: usize = crate::grh::LEN;

/// The header's fields, which are the same as of a GRH.
pub type Ipv6View<'a> = GrhView<'a>;

/// The header as values. The next header is UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes after this header.
    pub payload_length: u16,
    /// Routers that it may still pass.
    pub hop_limit: u8,
    /// Source.
    pub source: Ipv6Addr,
    /// Destination.
    pub destination: Ipv6Addr,
}

impl Ipv6 {
    /// The values of a header.
    ///
    /// # Errors
    /// Another version or next header.
    pub fn parse(view: &Ipv6View<'_>) -> Result<Self, WireError> {
        let grh = Grh::parse(view)?;
        if grh.next_header != UDP {
            return Err(WireError::Protocol {
                header: "IPv6",
                found: grh.next_header,
                wanted: UDP,
            });
        }
        Ok(Ipv6 {
            traffic_class: grh.traffic_class,
            flow_label: grh.flow_label,
            payload_length: grh.payload_length,
            hop_limit: grh.hop_limit,
            source: grh.sgid.0.into(),
            destination: grh.dgid.0.into(),
        })
    }

    /// The header in the form of a GRH, as a UD receive gets it.
    pub fn to_grh(&self) -> Grh {
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

    /// The header's bytes.
    pub fn to_bytes(&self) -> [u8; LEN] {
        self.to_grh().to_bytes()
    }
}
