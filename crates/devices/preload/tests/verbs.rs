//! A C program that walks the verbs and their errors, over both paths between queue pairs.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::path::Path;

use common::{PathTo, compiled, over_adverb};

/// Runs the program with its shared memory in `folder`; returns what it explained.
fn walk(folder: &Path, path: PathTo, address: &str) -> Option<String> {
    let program = compiled("verbs.c", folder)?;
    let shared = folder.join("shared");
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
fn a_program_walks_the_verbs_in_shared_memory() {
    let folder = tempfile::tempdir().unwrap();
    let Some(explained) = walk(folder.path(), PathTo::SharedMemory, "127.41.0.1") else {
        return;
    };
    for line in [
        "adverb: ibv_modify_qp: RESET to INIT: missing PORT [Invalid argument (os error 22)]",
        "adverb: ibv_post_send: requests need an address handle on UD queue pairs [Invalid argument (os error 22)]",
        "adverb: ibv_dealloc_pd: the protection domain: 1 objects still use it [Device or resource busy (os error 16)]",
    ] {
        let count = explained.lines().filter(|found| *found == line).count();
        assert_eq!(count, 1, "{line}\n{explained}");
    }
}

#[test]
fn a_program_walks_the_verbs_over_udp() {
    let folder = tempfile::tempdir().unwrap();
    walk(folder.path(), PathTo::Udp, "127.41.0.2");
}
