//! Datagram extended transport header (IBTA vol. 1, 9.3.2), 8 B: Q_Key and source queue pair.

use adverb_verbs::Qpn;

use crate::view::{be24, be32, put, put24};

view!(
    /// The header's fields as they are.
    DethView, "DETH", 8);

impl DethView<'_> {
    /// Queue key.
    #[inline]
    pub fn qkey(&self) -> u32 {
        be32(self.0, 0)
    }

    /// The sender's queue pair.
    #[inline]
    pub fn src_qp(&self) -> u32 {
        be24(self.0, 5)
    }
}

/// The header as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Queue key: must be the receiver's.
    pub qkey: u32,
    /// The sender's queue pair.
    pub src_qp: Qpn,
}

impl Deth {
    /// The values of a header: all are valid.
    #[inline]
    pub fn parse(view: &DethView<'_>) -> Self {
        Deth {
            qkey: view.qkey(),
            src_qp: Qpn::new(view.src_qp()).expect("24 bits make a QPN"),
        }
    }

    /// The header's bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        put(&mut out, 0, self.qkey.to_be_bytes());
        put24(&mut out, 5, self.src_qp.get());
        out
    }
}
