//! A C program that walks the verbs and their errors, over both paths between queue pairs.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use common::{PathTo, assert_empty, assert_explained, compiled, over_adverb, printed, walked};

const PROGRAM: &str = "verbs.c";

#[test]
fn a_program_walks_the_verbs_in_shared_memory() {
    let Some(explained) = walked(PROGRAM, PathTo::SharedMemory, "127.41.0.1") else {
        return;
    };
    let lines = [
        "adverb: ibv_modify_qp: RESET to INIT: missing PORT [Invalid argument (os error 22)]",
        "adverb: ibv_post_send: requests need an address handle on UD queue pairs [Invalid argument (os error 22)]",
        "adverb: ibv_dealloc_pd: the protection domain: 1 objects still use it [Device or resource busy (os error 16)]",
    ];
    assert_explained(&explained, &lines);
}

#[test]
fn a_program_walks_the_verbs_over_udp() {
    walked(PROGRAM, PathTo::Udp, "127.41.0.2");
}

#[test]
fn asynchronous_events_are_reported_in_shared_memory() {
    walked("async_events.c", PathTo::SharedMemory, "127.41.0.4");
}

#[test]
fn asynchronous_events_are_reported_over_udp() {
    walked("async_events.c", PathTo::Udp, "127.41.0.5");
}

#[test]
fn children_do_not_disturb_the_connections_of_their_parent() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("forks.c", folder.path()) else {
        return;
    };
    for (n, path) in [PathTo::SharedMemory, PathTo::Udp].into_iter().enumerate() {
        for arguments in [&[][..], &["daemon"]] {
            let shared = folder.path().join(format!("{n}{}", arguments.len()));
            std::fs::create_dir(&shared).unwrap();
            let mut command = over_adverb(&program, &shared);
            command
                .args(arguments)
                .env("ADVERB_RUN_FAULTS", path.faults())
                .env("ADVERB_RUN_ADDRESS", format!("127.41.1.{}", n + 1));
            // A daemon ends when its output does.
            let output = command.output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() && told.ends_with("done\n"),
                "{told}{errors}"
            );
            assert_empty(&shared);
        }
    }
}

#[test]
fn children_do_not_wait_for_locks_of_their_parents_threads() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("forks.c", folder.path()) else {
        return;
    };
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let mut command = over_adverb(&program, &shared);
    command
        .arg("threads")
        .env("ADVERB_RUN_ADDRESS", "127.41.1.3")
        .env("ADVERB_RUN_STATS", "table");
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

#[test]
fn a_program_that_exits_without_destroying_its_objects_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("exits.c", folder.path()) else {
        return;
    };
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    for arguments in [&[][..], &["fork"]] {
        let mut command = over_adverb(&program, &shared);
        command
            .args(arguments)
            .env("ADVERB_RUN_ADDRESS", "127.41.0.3");
        printed(&command.output().unwrap());
        assert_empty(&shared);
    }
}
