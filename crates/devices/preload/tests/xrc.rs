//! C programs over both paths between queue pairs: XRC; null regions and device memory.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use common::{PathTo, assert_explained, walked};

#[test]
fn a_program_walks_xrc_in_shared_memory() {
    let Some(explained) = walked("xrc.c", PathTo::SharedMemory, "127.78.0.1") else {
        return;
    };
    let lines = [
        "adverb: ibv_open_xrcd: no XRC domain of the file is open in this process: oflags needs O_CREAT [Resource temporarily unavailable (os error 11)]",
        "adverb: ibv_open_qp: queue pair 0xfffff0 belongs to another process or context: XRC domains are not shared between them [Operation not supported (os error 95)]",
        "adverb: ibv_post_send: requests cannot be posted to XRC receive queue pairs [Invalid argument (os error 22)]",
        "adverb: ibv_post_recv: XRC send queue pairs do not carry receives; use an RC queue pair [Invalid argument (os error 22)]",
    ];
    assert_explained(&explained, &lines);
}

#[test]
fn a_program_walks_xrc_over_udp() {
    walked("xrc.c", PathTo::Udp, "127.78.0.2");
}

#[test]
fn null_regions_and_device_memory_work_in_shared_memory() {
    walked("regions.c", PathTo::SharedMemory, "127.78.0.3");
}

#[test]
fn null_regions_and_device_memory_work_over_udp() {
    walked("regions.c", PathTo::Udp, "127.78.0.4");
}
