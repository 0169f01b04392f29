//! Atomic extended transport header (IBTA vol. 1, 9.3.4), 28 B: what an atomic operation does.

use adverb_verbs::{RemoteAddress, Rkey};

use crate::view::{be32, be64, put};

view!(
    /// The header's fields as they are.
    AtomicEthView, "AtomicETH", 28);

impl AtomicEthView<'_> {
    /// Address in the responder's space.
    #[inline]
    pub fn addr(&self) -> u64 {
        be64(self.0, 0)
    }

    /// Key of the responder's region.
    #[inline]
    pub fn rkey(&self) -> u32 {
        be32(self.0, 8)
    }

    /// The value to add, or to swap in.
    #[inline]
    pub fn swap_or_add(&self) -> u64 {
        be64(self.0, 12)
    }

    /// The value to compare with.
    #[inline]
    pub fn compare(&self) -> u64 {
        be64(self.0, 20)
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Where.
    pub remote: RemoteAddress,
    /// The value to add (fetch-and-add), or to swap in (compare-and-swap).
    pub swap_or_add: u64,
    /// The value to compare with; unused by fetch-and-add.
    pub compare: u64,
}

impl AtomicEth {
    /// The values of a header: all are valid.
    #[inline]
    pub fn parse(view: &AtomicEthView<'_>) -> Self {
        AtomicEth {
            remote: RemoteAddress {
                addr: view.addr(),
                rkey: Rkey(view.rkey()),
            },
            swap_or_add: view.swap_or_add(),
            compare: view.compare(),
        }
    }

    /// The header's bytes.
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
