//! Management datagram (IBTA vol. 1, 13.4.3): a header of 24 B and 232 B of the management class. It is the payload of a
//! UD packet to queue pair 1 of a port (queue pair 0 belongs to the subnet manager).

use adverb_verbs::Qpn;

use crate::WireError;
use crate::fields::{be16, be32, be64, put};

/// Length of a management datagram in bytes.
pub const LEN: usize = 256;
/// Length of its header in bytes.
pub const HEADER_LEN: usize = 24;
/// Length of the management class's part in bytes.
pub const DATA_LEN: usize = LEN - HEADER_LEN;

/// Q_Key of queue pair 1 (3.5.4.2).
pub const GSI_QKEY: u32 = 0x8001_0000;

/// Queue pair 1: the general services interface (3.9.5).
pub const GSI_QPN: Qpn = match Qpn::new(1) {
    Some(qpn) => qpn,
    None => unreachable!(),
};

/// Version of the header's format.
const BASE_VERSION: u8 = 1;

/// The header. Classes that have no "class specific" field send it as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadHeader {
    /// Management class.
    pub class: u8,
    /// Version of the class's format.
    pub class_version: u8,
    /// Method.
    pub method: u8,
    /// Status.
    pub status: u16,
    /// Transaction ID, which a response repeats.
    pub transaction: u64,
    /// Attribute ID: the kind of message.
    pub attribute: u16,
    /// Attribute modifier.
    pub modifier: u32,
}

impl MadHeader {
    /// Parses a management datagram; returns the header and the class's part.
    ///
    /// # Errors
    /// The datagram does not have 256 B, or the base version is not 1.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8; DATA_LEN]), WireError> {
        let mad: &[u8; LEN] = bytes
            .try_into()
            .map_err(|_| WireError::MadLength { have: bytes.len() })?;
        if mad[0] != BASE_VERSION {
            return Err(WireError::MadVersion(mad[0]));
        }
        let header = MadHeader {
            class: mad[1],
            class_version: mad[2],
            method: mad[3],
            status: be16(mad, 4),
            transaction: be64(mad, 8),
            attribute: be16(mad, 16),
            modifier: be32(mad, 20),
        };
        let data = mad.last_chunk().expect("232 of 256 bytes");
        Ok((header, data))
    }

    /// Returns the datagram with this header and the class's part.
    pub fn with_data(&self, data: &[u8; DATA_LEN]) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[..4].copy_from_slice(&[BASE_VERSION, self.class, self.class_version, self.method]);
        put(&mut out, 4, self.status.to_be_bytes());
        put(&mut out, 8, self.transaction.to_be_bytes());
        put(&mut out, 16, self.attribute.to_be_bytes());
        put(&mut out, 20, self.modifier.to_be_bytes());
        put(&mut out, HEADER_LEN, *data);
        out
    }
}
