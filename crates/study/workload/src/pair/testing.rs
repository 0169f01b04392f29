//! A device's limits, and cells, for the tests of this crate.

use adverb_results::Opcode;
use adverb_units::Bytes;
use adverb_verbs::{AtomicCap, DeviceCaps};

use crate::pair::{CellSpec, Request};

pub(crate) fn blast(change: impl FnOnce(&mut Request)) -> CellSpec {
    let mut params = Request::new(Opcode::Write, Bytes::new(64));
    params.buffers = 16;
    change(&mut params);
    CellSpec::blast(params)
}

pub(crate) fn ping(op: Opcode, change: impl FnOnce(&mut Request)) -> CellSpec {
    let mut params = Request::new(op, Bytes::new(64));
    change(&mut params);
    CellSpec::ping(params)
}

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
