//! Invalidate extended transport header (IBTA vol. 1, 9.3.7), 4 B.

use adverb_verbs::Rkey;

use crate::view::be32;

view!(
    /// The header's fields as they are.
    IethView, "IETH", 4);

impl IethView<'_> {
    /// The key that ends.
    #[inline]
    pub fn rkey(&self) -> u32 {
        be32(self.0, 0)
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ieth {
    /// The responder's key that ends with this message.
    pub rkey: Rkey,
}

impl Ieth {
    /// The values of a header: all are valid.
    #[inline]
    pub fn parse(view: &IethView<'_>) -> Self {
        Ieth {
            rkey: Rkey(view.rkey()),
        }
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        self.rkey.0.to_be_bytes()
    }
}
