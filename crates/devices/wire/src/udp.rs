//! UDP header (RFC 768), 8 B. RoCEv2 sends the checksum as zero and ignores it (annex A17.3.2).

use crate::WireError;
use crate::fields::{be16, put, split};

/// Length of the header in bytes.
pub const LEN: usize = 8;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// Length of the datagram in bytes, with this header.
    pub length: u16,
    /// Checksum; 0: none.
    pub checksum: u16,
}

impl Udp {
    /// Parses the header at the beginning of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, rest) = split::<LEN>("UDP", bytes)?;
        let udp = Udp {
            source: be16(header, 0),
            destination: be16(header, 2),
            length: be16(header, 4),
            checksum: be16(header, 6),
        };
        Ok((udp, rest))
    }

    /// Returns the header's bytes.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        put(&mut out, 0, self.source.to_be_bytes());
        put(&mut out, 2, self.destination.to_be_bytes());
        put(&mut out, 4, self.length.to_be_bytes());
        put(&mut out, 6, self.checksum.to_be_bytes());
        out
    }
}
