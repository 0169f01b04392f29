//! Datagram extended transport header (IBTA vol. 1, 9.3.2), 8 B: Q_Key and source queue pair.

use adverb_verbs::Qpn;

use crate::WireError;
use crate::fields::{be32, put, put24, qpn, split};

/// Length of the header in bytes.
pub const LEN: usize = 8;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Queue key, which must be the receiver's.
    pub qkey: u32,
    /// The sender's queue pair.
    pub src_qp: Qpn,
}

impl Deth {
    /// Parses the header at the beginning of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, rest) = split::<LEN>("DETH", bytes)?;
        let deth = Deth {
            qkey: be32(header, 0),
            src_qp: qpn(header, 5),
        };
        Ok((deth, rest))
    }

    /// Returns the header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        put(&mut out, 0, self.qkey.to_be_bytes());
        put24(&mut out, 5, self.src_qp.get());
        out
    }
}
