//! Atomic ACK extended transport header (IBTA vol. 1, 9.5.3), 8 B: what an atomic operation found.

use crate::view::be64;

view!(
    /// The header's fields as they are.
    AtomicAckEthView, "AtomicAckETH", 8);

impl AtomicAckEthView<'_> {
    /// The value before the operation.
    #[inline]
    pub fn original(&self) -> u64 {
        be64(self.0, 0)
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// The value before the operation.
    pub original: u64,
}

impl AtomicAckEth {
    /// The values of a header: all are valid.
    #[inline]
    pub fn parse(view: &AtomicAckEthView<'_>) -> Self {
        AtomicAckEth {
            original: view.original(),
        }
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        self.original.to_be_bytes()
    }
}
