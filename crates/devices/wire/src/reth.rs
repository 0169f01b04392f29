//! RDMA extended transport header (IBTA vol. 1, 9.3.3), 16 B: remote address, key and length of a WRITE or READ.

use adverb_verbs::{RemoteAddress, Rkey};

use crate::WireError;
use crate::fields::{be32, be64, put, split};

/// Length of the header in bytes.
pub const LEN: usize = 16;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Address and key of the responder's memory.
    pub remote: RemoteAddress,
    /// Length of the whole message in bytes (`DMALen`).
    pub length: u32,
}

impl Reth {
    /// Parses the header at the beginning of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, rest) = split::<LEN>("RETH", bytes)?;
        let reth = Reth {
            remote: RemoteAddress {
                addr: be64(header, 0),
                rkey: Rkey(be32(header, 8)),
            },
            length: be32(header, 12),
        };
        Ok((reth, rest))
    }

    /// Returns the header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        put(&mut out, 0, self.remote.addr.to_be_bytes());
        put(&mut out, 8, self.remote.rkey.0.to_be_bytes());
        put(&mut out, 12, self.length.to_be_bytes());
        out
    }
}
