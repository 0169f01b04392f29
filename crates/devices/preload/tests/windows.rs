//! A C program that walks memory windows, over both paths between queue pairs.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use common::{PathTo, assert_explained, walked};

const PROGRAM: &str = "windows.c";

#[test]
fn a_program_walks_memory_windows_in_shared_memory() {
    let Some(explained) = walked(PROGRAM, PathTo::SharedMemory, "127.79.0.1") else {
        return;
    };
    let lines = [
        "adverb: ibv_post_send: UC queue pairs do not carry SEND with invalidate; use an RC queue pair [Invalid argument (os error 22)]",
    ];
    assert_explained(&explained, &lines);
}

#[test]
fn a_program_walks_memory_windows_over_udp() {
    walked(PROGRAM, PathTo::Udp, "127.79.0.2");
}
