//! Immediate data (IBTA vol. 1, 9.3.6), 4 B.

use adverb_verbs::Imm;

use crate::view::be32;

view!(
    /// The header's fields as they are.
    ImmDtView, "ImmDt", 4);

impl ImmDtView<'_> {
    /// The data.
    #[inline]
    pub fn imm(&self) -> u32 {
        be32(self.0, 0)
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmDt {
    /// The data.
    pub imm: Imm,
}

impl ImmDt {
    /// The values of a header: all are valid.
    #[inline]
    pub fn parse(view: &ImmDtView<'_>) -> Self {
        ImmDt {
            imm: Imm(view.imm()),
        }
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        self.imm.0.to_be_bytes()
    }
}
