//! rdma-core's own Python tests over the library, as Debian installs them.
//!
//! `rdma_core.skips` lists the tests that may be skipped, each with the reason that it printed where there are no huge
//! pages and no GPU. All others have to pass.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use common::{library, not_run};

/// Tests that pass on every machine. More pass where there are huge pages.
const PASSED: usize = 108;
/// The address of this test's device, which no other test uses.
const ADDRESS: &str = "127.77.0.1";
/// Seconds for a module. On an idle machine each takes less than 3.
const LIMIT: &str = "600";

/// Returns the names of the tests in lines that begin with `word`.
fn named<'a>(word: &str, lines: &'a str) -> BTreeSet<&'a str> {
    let rests = lines.lines().filter_map(|line| line.strip_prefix(word));
    rests
        .map(|rest| rest.trim_start().split(':').next().unwrap_or(rest))
        .collect()
}

#[test]
fn rdma_cores_python_tests_pass_or_are_skipped_for_a_known_reason() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let known = std::fs::read_to_string(here.join("tests/rdma_core.skips")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(here.join("../../../scripts/rdma-core-tests"))
        .arg("env")
        .arg(format!("LD_PRELOAD={}", library().display()))
        .arg(format!("ADVERB_SHM={}", folder.path().display()))
        .arg(format!("ADVERB_RUN_ADDRESS={ADDRESS}"))
        .env("TIMEOUT", LIMIT)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) {
        return not_run("rdma-core's Python tests", errors.trim_end());
    }
    assert!(output.status.success(), "{text}\n{errors}");
    let skipped = named("skip ", &text);
    let known = named("skip ", &known);
    let unknown: Vec<_> = skipped.difference(&known).collect();
    assert!(
        unknown.is_empty(),
        "skipped without a known reason: {unknown:?}\n{text}"
    );
    assert!(named("ok ", &text).len() >= PASSED, "{text}");
}
