//! RDMA extended transport header (IBTA vol. 1, 9.3.3), 16 B: remote address, key and length of a WRITE or READ.

use adverb_verbs::{RemoteAddress, Rkey};

use crate::view::{be32, be64, put};

view!(
    /// The header's fields as they are.
    RethView, "RETH", 16);

impl RethView<'_> {
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

    /// Bytes of the whole message.
    #[inline]
    pub fn length(&self) -> u32 {
        be32(self.0, 12)
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Where.
    pub remote: RemoteAddress,
    /// Bytes of the whole message (`DMALen`).
    pub length: u32,
}

impl Reth {
    /// The values of a header: all are valid.
    #[inline]
    pub fn parse(view: &RethView<'_>) -> Self {
        Reth {
            remote: RemoteAddress {
                addr: view.addr(),
                rkey: Rkey(view.rkey()),
            },
            length: view.length(),
        }
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        put(&mut out, 0, self.remote.addr.to_be_bytes());
        put(&mut out, 8, self.remote.rkey.0.to_be_bytes());
        put(&mut out, 12, self.length.to_be_bytes());
        out
    }
}
