//! A C program whose registered pages are shared with another process.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use common::{PathTo, walked_with};

const PROGRAM: &str = "pages.c";

#[test]
fn pages_are_shared_where_no_byte_can_be_lost() {
    walked_with(PROGRAM, PathTo::SharedMemory, "127.41.3.1", &[]);
}

#[test]
fn the_same_operations_reach_memory_by_its_address() {
    let variables = [("ADVERB_MEMORY", "process_vm")];
    walked_with(PROGRAM, PathTo::SharedMemory, "127.41.3.2", &variables);
}
