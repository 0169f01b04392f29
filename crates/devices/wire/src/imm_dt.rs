//! Immediate data (IBTA vol. 1, 9.3.6), 4 B.

use adverb_verbs::Imm;

use crate::WireError;
use crate::fields::split;

/// Length of the header in bytes.
pub const LEN: usize = 4;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmDt {
    /// The data.
    pub imm: Imm,
}

impl ImmDt {
    /// Parses the header at the beginning of `bytes`; returns it and what follows.
    ///
    /// # Errors
    /// Too few bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let (header, rest) = split("ImmDt", bytes)?;
        let imm = Imm(u32::from_be_bytes(*header));
        Ok((ImmDt { imm }, rest))
    }

    /// Returns the header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        self.imm.0.to_be_bytes()
    }
}
