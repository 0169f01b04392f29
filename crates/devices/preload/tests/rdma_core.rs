//! rdma-core's own Python tests over the library, as Debian installs them.
//!
//! `rdma_core.skips` lists the tests that may be skipped, each with the reason that it prints. All others have to pass.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::path::Path;
use std::process::Command;

use common::{library, not_run};

const MODULES: &str = "test_device test_fork";

#[test]
fn rdma_cores_python_tests_pass_or_are_skipped_for_a_known_reason() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let expected = std::fs::read_to_string(here.join("tests/rdma_core.skips")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(here.join("../../../scripts/rdma-core-tests"))
        .arg("env")
        .arg(format!("LD_PRELOAD={}", library().display()))
        .arg(format!("ADVERB_SHM={}", folder.path().display()))
        .env("TESTS", MODULES)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) {
        return not_run("rdma-core's Python tests", errors.trim_end());
    }
    let unexpected: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with("ok ") && !expected.lines().any(|known| known == *line))
        .collect();
    let [summary] = unexpected[..] else {
        panic!("{}\n{errors}", unexpected.join("\n"));
    };
    assert!(summary.ends_with(", 0 failed"), "{summary}\n{errors}");
    let missing: Vec<_> = expected
        .lines()
        .filter(|known| known.starts_with("skip ") && !text.lines().any(|line| line == *known))
        .collect();
    assert!(
        missing.is_empty(),
        "not skipped any more:\n{}",
        missing.join("\n")
    );
}
