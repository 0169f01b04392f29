//! Atomic extended transport header (IBTA vol. 1, 9.3.4), 28 B: the operands of an atomic operation.

use adverb_verbs::{RemoteAddress, Rkey};

use crate::WireError;
use crate::fields::{be32, be64, put, split};

/// Length of the header in bytes.
pub const LEN: usize = 28;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Address and key of the word in the responder's memory.
    pub remote: RemoteAddress,
    /// The value to add (fetch-and-add), or to swap in (compare-and-swap).
    pub swap_or_add: u64,
    /// The value to compare with; unused by fetch-and-add.
    pub compare: u64,
}

impl AtomicEth {
    /// Parses the header at the beginning of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, rest) = split::<LEN>("AtomicETH", bytes)?;
        let atomic = AtomicEth {
            remote: RemoteAddress {
                addr: be64(header, 0),
                rkey: Rkey(be32(header, 8)),
            },
            swap_or_add: be64(header, 12),
            compare: be64(header, 20),
        };
        Ok((atomic, rest))
    }

    /// Returns the header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        put(&mut out, 0, self.remote.addr.to_be_bytes());
        put(&mut out, 8, self.remote.rkey.0.to_be_bytes());
        put(&mut out, 12, self.swap_or_add.to_be_bytes());
        put(&mut out, 20, self.compare.to_be_bytes());
        out
    }
}
