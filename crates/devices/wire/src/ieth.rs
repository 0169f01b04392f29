//! Invalidate extended transport header (IBTA vol. 1, 9.3.7), 4 B.

use adverb_verbs::Rkey;

use crate::WireError;
use crate::fields::split;

/// Length of the header in bytes.
pub const LEN: usize = 4;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ieth {
    /// The responder's key that the message invalidates.
    pub rkey: Rkey,
}

impl Ieth {
    /// Parses the header at the beginning of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, rest) = split("IETH", bytes)?;
        let rkey = Rkey(u32::from_be_bytes(*header));
        Ok((Ieth { rkey }, rest))
    }

    /// Returns the header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        self.rkey.0.to_be_bytes()
    }
}
