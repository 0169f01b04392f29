//! Cells for the tests of this crate.

use adverb_results::Opcode;
use adverb_units::Bytes;

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
