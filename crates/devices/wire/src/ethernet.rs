//! Ethernet II header (IEEE 802.3), 14 B, without VLAN tag.

use crate::view::{be16, octets, put};

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;

view!(
    /// The header's fields as they are.
    EthernetView, "Ethernet", 14);

impl EthernetView<'_> {
    /// Destination address.
    pub fn destination(&self) -> [u8; 6] {
        octets(self.0, 0)
    }

    /// Source address.
    pub fn source(&self) -> [u8; 6] {
        octets(self.0, 6)
    }

    /// Protocol of the next header.
    pub fn ether_type(&self) -> u16 {
        be16(self.0, 12)
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination address.
    pub destination: [u8; 6],
    /// Source address.
    pub source: [u8; 6],
    /// Protocol of the next header.
    pub ether_type: u16,
}

impl Ethernet {
    /// The values of a header: all are valid.
    pub fn parse(view: &EthernetView<'_>) -> Self {
        Ethernet {
            destination: view.destination(),
            source: view.source(),
            ether_type: view.ether_type(),
        }
    }

    /// The header's bytes.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        put(&mut out, 0, self.destination);
        put(&mut out, 6, self.source);
        put(&mut out, 12, self.ether_type.to_be_bytes());
        out
    }
}
