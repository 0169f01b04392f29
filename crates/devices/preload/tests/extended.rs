//! A C program that walks the extended interface, over both paths between queue pairs.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use common::{PathTo, assert_explained, walked};

const PROGRAM: &str = "extended.c";

#[test]
fn a_program_walks_the_extended_interface_in_shared_memory() {
    let Some(explained) = walked(PROGRAM, PathTo::SharedMemory, "127.45.0.1") else {
        return;
    };
    let lines = [
        "adverb: ibv_wr_complete: 65 B of inline data exceed max_inline_data 64 B [Invalid argument (os error 22)]",
        "adverb: ibv_wr_complete: 3 SGEs exceed the queue's maximum of 2 [Invalid argument (os error 22)]",
        "adverb: ibv_wr_complete: the queue pair was created without IBV_QP_EX_WITH_RDMA_READ in send_ops_flags [Invalid argument (os error 22)]",
        "adverb: ibv_wr_complete: RDMA READ and atomic operations cannot be inline [Invalid argument (os error 22)]",
        "adverb: ibv_wr_complete: the device has no segmentation offload [Operation not supported (os error 95)]",
        "adverb: ibv_wr_complete: the send queue has 16 entries and all are in use; reap completions first [Cannot allocate memory (os error 12)]",
        "adverb: ibv_wr_complete: the queue pair is in RESET: bring it to RTS first [Invalid argument (os error 22)]",
    ];
    assert_explained(&explained, &lines);
}

#[test]
fn a_program_walks_the_extended_interface_over_udp() {
    walked(PROGRAM, PathTo::Udp, "127.45.0.2");
}
