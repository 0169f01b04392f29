//! A C program that walks the extended interface, over both paths between queue pairs.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use common::{PathTo, compiled, over_adverb};

/// Runs the program; returns what it explained.
fn walk(path: PathTo, address: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("extended.c", folder.path())?;
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let output = over_adverb(program, &shared)
        .env("ADVERB_RUN_FAULTS", path.faults())
        .env("ADVERB_RUN_ADDRESS", address)
        .env("ADVERB_EXPLAIN", "1")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert_eq!(
        std::fs::read_dir(&shared).unwrap().count(),
        0,
        "files remain"
    );
    Some(errors.into_owned())
}

#[test]
fn a_program_walks_the_extended_interface_in_shared_memory() {
    let Some(explained) = walk(PathTo::SharedMemory, "127.45.0.1") else {
        return;
    };
    let reasons = [
        "ibv_wr_complete: 65 B of inline data exceed max_inline_data 64 B [Invalid argument (os error 22)]",
        "ibv_wr_complete: 3 SGEs exceed the queue's maximum of 2 [Invalid argument (os error 22)]",
        "ibv_wr_complete: the queue pair was created without IBV_QP_EX_WITH_RDMA_READ in send_ops_flags [Invalid argument (os error 22)]",
        "ibv_wr_complete: RDMA READ and atomic operations cannot be inline [Invalid argument (os error 22)]",
        "ibv_wr_complete: the device has no memory windows [Operation not supported (os error 95)]",
        "ibv_wr_complete: the send queue has 16 entries and all are in use; reap completions first [Cannot allocate memory (os error 12)]",
        "ibv_wr_complete: the queue pair is in RESET: bring it to RTS first [Invalid argument (os error 22)]",
    ];
    for reason in reasons {
        let line = format!("adverb: {reason}");
        let count = explained.lines().filter(|found| *found == line).count();
        assert_eq!(count, 1, "{line}\n{explained}");
    }
}

#[test]
fn a_program_walks_the_extended_interface_over_udp() {
    walk(PathTo::Udp, "127.45.0.2");
}
