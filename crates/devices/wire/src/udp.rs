//! UDP header (RFC 768), 8 B. RoCEv2 sends the checksum as zero and ignores it (annex A17.3.2).

use crate::view::{be16, put};

view!(
    /// The header's fields as they are.
    UdpView, "UDP", 8);

impl UdpView<'_> {
    /// Source port.
    pub fn source(&self) -> u16 {
        be16(self.0, 0)
    }

    /// Destination port.
    pub fn destination(&self) -> u16 {
        be16(self.0, 2)
    }

    /// Bytes of the datagram, this header included.
    pub fn length(&self) -> u16 {
        be16(self.0, 4)
    }

    /// Checksum; 0 is none.
    pub fn checksum(&self) -> u16 {
        be16(self.0, 6)
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Bytes of the datagram, this header included.
    pub length: u16,
    /// Checksum; 0 is none.
    pub checksum: u16,
}

impl Udp {
    /// The values of a header: all are valid.
    pub fn parse(view: &UdpView<'_>) -> Self {
        Udp {
            source: view.source(),
            destination: view.destination(),
            length: view.length(),
            checksum: view.checksum(),
        }
    }

    /// The header's bytes.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        put(&mut out, 0, self.source.to_be_bytes());
        put(&mut out, 2, self.destination.to_be_bytes());
        put(&mut out, 4, self.length.to_be_bytes());
        put(&mut out, 6, self.checksum.to_be_bytes());
        out
    }
}
