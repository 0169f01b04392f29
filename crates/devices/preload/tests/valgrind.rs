//! Memcheck finds no errors in the library.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::os::unix::fs::PermissionsExt as _;

use common::{PathTo, exchanged, installed};

fn checks(path: PathTo, address: &str) {
    let valgrind = installed("valgrind", "valgrind");
    let (Some(valgrind), Some(program)) = (valgrind, installed("ibv_rc_pingpong", "ibverbs-utils"))
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("checked");
    let text = format!(
        "#!/bin/sh\nexec {} -q --error-exitcode=9 {} \"$@\"\n",
        valgrind.display(),
        program.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    for told in exchanged(&script, &["-n", "20", "-c"], address, path) {
        assert!(told.contains("20 iters in"), "{told}");
        let reported = told.lines().any(|line| line.contains("== "));
        assert!(!reported, "{told}");
    }
}

#[test]
fn a_ping_pong_in_shared_memory_has_no_memory_errors() {
    checks(PathTo::SharedMemory, "127.41.0.7");
}

#[test]
fn a_ping_pong_over_udp_has_no_memory_errors() {
    checks(PathTo::Udp, "127.41.0.8");
}
