//! A device's limits, for the tests of this crate.

use adverb_units::Bytes;
use adverb_verbs::{AtomicCap, DeviceCaps};

pub(crate) fn caps() -> DeviceCaps {
    DeviceCaps {
        max_qp: 1024,
        max_qp_wr: 1024,
        max_sge: 1,
        max_cq: 1024,
        max_cqe: 4096,
        max_mr: 1024,
        max_mr_size: Bytes::mib(4096),
        max_qp_rd_atom: 16,
        max_inline_data: 256,
        max_srq: 0,
        max_srq_wr: 0,
        max_srq_sge: 0,
        atomics: AtomicCap::None,
    }
}
