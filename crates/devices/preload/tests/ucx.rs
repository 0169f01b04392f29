//! UCX, a communication library, between two processes.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use common::{PathTo, exchanged, installed};

/// Runs one of UCX's tests over transports of the device, as server and client at an address of the loopback.
fn measured(n: u8, transports: &str, (test, size): (&str, &str), path: PathTo) {
    let Some(program) = installed("ucx_perftest", "ucx-utils") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("ucx");
    let text = format!(
        "#!/bin/sh\nUCX_TLS={transports} UCX_NET_DEVICES=adverb0:1 exec {} \"$@\"\n",
        program.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let arguments = ["-t", test, "-s", size, "-n", "100", "-w", "10"];
    let [_, client] = exchanged(&script, &arguments, &format!("127.47.{n}.1"), path);
    let is_last = |line: &str| line.starts_with("Final:") && line.contains(" 100 ");
    assert!(client.lines().any(is_last), "{client}");
}

#[test]
fn messages_over_connections() {
    measured(1, "rc,self", ("tag_lat", "100000"), PathTo::SharedMemory);
    measured(2, "rc,self", ("tag_lat", "100000"), PathTo::Udp);
}

#[test]
fn messages_in_datagrams() {
    measured(3, "ud,self", ("tag_lat", "20000"), PathTo::SharedMemory);
    measured(4, "ud,self", ("tag_lat", "20000"), PathTo::Udp);
}

#[test]
fn one_sided_operations() {
    measured(5, "rc,self", ("ucp_put_bw", "65536"), PathTo::SharedMemory);
    measured(6, "rc,self", ("ucp_get", "65536"), PathTo::SharedMemory);
    measured(7, "rc,self", ("ucp_fadd", "8"), PathTo::SharedMemory);
}
