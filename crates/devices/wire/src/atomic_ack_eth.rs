//! Atomic ACK extended transport header (IBTA vol. 1, 9.5.3), 8 B: the result of an atomic operation.

use crate::WireError;
use crate::fields::{be64, split};

/// Length of the header in bytes.
pub const LEN: usize = 8;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// The value before the operation.
    pub original: u64,
}

impl AtomicAckEth {
    /// Parses the header at the beginning of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, rest) = split::<LEN>("AtomicAckETH", bytes)?;
        let original = be64(header, 0);
        Ok((AtomicAckEth { original }, rest))
    }

    /// Returns the header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        self.original.to_be_bytes()
    }
}
