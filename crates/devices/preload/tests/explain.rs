//! Mistakes that a completion reports are explained when the request is posted or the completion polled.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use common::{compiled, over_adverb};

#[test]
fn errors_that_completions_report_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("explain.c", folder.path()) else {
        return;
    };
    let run = |explain: &str| {
        let shared = tempfile::tempdir_in(folder.path()).unwrap();
        let output = over_adverb(&program, shared.path())
            .env("ADVERB_RUN_ADDRESS", "127.45.0.3")
            .env("ADVERB_EXPLAIN", explain)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {errors}", output.status);
        errors
    };
    assert_eq!(run("0"), "");
    let explained = run("1");
    let expected: [(&str, &str); 8] = [
        (
            "ibv_post_send: SGE 0: lkey 0x0 is not the key of a region",
            "[the request will fail]",
        ),
        ("ibv_post_send: SGE 0: 8 B at 0x", "[the request will fail]"),
        (
            "ibv_post_send: SGE 0: the region with lkey 0x",
            "was registered without LOCAL_WRITE, which the request needs [the request will fail]",
        ),
        (
            "ibv_post_send: SGE 0: the region with lkey 0x",
            "belongs to another protection domain [the request will fail]",
        ),
        (
            "ibv_poll_cq: queue pair 0x",
            "lacks IBV_ACCESS_LOCAL_WRITE [local protection error]",
        ),
        (
            "ibv_poll_cq: queue pair 0x",
            "they have different protection domains [remote access error]",
        ),
        (
            "ibv_poll_cq: queue pair 0x",
            "is not a multiple of 8 [remote invalid request error]",
        ),
        (
            "ibv_poll_cq: the completion queue of 1 entries overran;",
            "make it as large as all its queues together [Input/output error (os error 5)]",
        ),
    ];
    for (beginning, end) in expected {
        let is_it = |line: &str| {
            let text = line.strip_prefix("adverb: ").unwrap_or_default();
            text.starts_with(beginning) && text.ends_with(end)
        };
        assert!(
            explained.lines().any(is_it),
            "{beginning} … {end}\n{explained}"
        );
    }
}
