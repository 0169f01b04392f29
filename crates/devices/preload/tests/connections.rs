//! C programs that walk librdmacm: events, options and errors over IPv4 and IPv6; how connections end.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::net::UdpSocket;
use std::os::unix::fs::MetadataExt as _;

use common::namespaces::Wire;
use common::{PathTo, assert_empty, assert_explained, compiled, not_run, over_adverb};

/// Runs a program over the device at the first of its arguments; returns what it explained.
fn walked(program: &str, arguments: &[&str], path: PathTo) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(program, folder.path())?;
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let output = over_adverb(program, &shared)
        .args(arguments)
        .env("ADVERB_RUN_ADDRESS", arguments[0])
        .env("ADVERB_RUN_FAULTS", path.faults())
        .env("ADVERB_EXPLAIN", "1")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert_empty(&shared);
    Some(errors.into_owned())
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

#[test]
fn a_program_walks_connections_over_ipv4() {
    let arguments = ["127.41.0.4", "127.41.0.5", "239.41.0.4"];
    let Some(explained) = walked("connections.c", &arguments, PathTo::SharedMemory) else {
        return;
    };
    let lines = [
        "adverb: rdma_bind_addr: the address is NULL [Invalid argument (os error 22)]",
        "adverb: rdma_set_option: invalid ACK timeout 32: expected 0 to 31 [Invalid argument (os error 22)]",
        "adverb: rdma_connect: 57 B of private data exceed the maximum of 56 B [Invalid argument (os error 22)]",
    ];
    assert_explained(&explained, &lines);
}

#[test]
fn a_program_walks_connections_over_ipv6() {
    if let Err(error) = UdpSocket::bind("[::1]:0") {
        return not_run("connections over IPv6", &format!("no address ::1: {error}"));
    }
    walked(
        "connections.c",
        &["::1", "", "ff02::4104"],
        PathTo::SharedMemory,
    );
}

/// Requests from other addresses were lost without a word.
#[test]
fn a_program_that_has_the_standard_port_is_named() {
    let _foreign = UdpSocket::bind("127.41.0.11:4791").unwrap();
    let Some(explained) = walked("endings.c", &["127.41.0.11"], PathTo::SharedMemory) else {
        return;
    };
    let holder = format!(
        "(process {}) has UDP port 4791 at 127.41.0.11",
        std::process::id()
    );
    assert_eq!(explained.matches(&holder).count(), 1, "{explained}");
}

#[test]
fn a_disconnection_follows_the_last_message_in_shared_memory() {
    walked("endings.c", &["127.41.0.8"], PathTo::SharedMemory);
}

#[test]
fn a_disconnection_follows_the_last_message_over_udp() {
    walked("endings.c", &["127.41.0.9"], PathTo::Udp);
}

/// One side used shared memory, the other one UDP.
#[test]
fn a_process_that_has_changed_its_user_or_root_directory_is_reached() {
    if !is_root() {
        return not_run("a process that changes its user", "only root may change it");
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("privileges.c", folder.path()) else {
        return;
    };
    let ways = [
        ("user", "path: 2 UDP: the peer shares no memory"),
        ("root", "path: 2 shared memory"),
        ("both", "path: 2 UDP: the peer shares no memory"),
    ];
    for (what, way) in ways {
        let shared = folder.path().join(what);
        std::fs::create_dir(&shared).unwrap();
        let address = "127.41.0.10";
        let output = over_adverb(&program, &shared)
            .args([address, what])
            .env("ADVERB_RUN_ADDRESS", address)
            .env("ADVERB_RUN_STATS", "table")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", output.status);
        assert_eq!(errors.matches(way).count(), 2, "{errors}");
        assert_empty(&shared);
    }
}

#[test]
fn connections_to_a_loopback_address_have_it_at_both_ends() {
    let wire = match Wire::new("loopback") {
        Ok(wire) => wire,
        Err(reason) => return not_run("loopback addresses of a host", &reason),
    };
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("endings.c", folder.path()) else {
        return;
    };
    let own = Wire::ADDRESSES[0];
    let output = over_adverb("ip", folder.path())
        .args(["netns", "exec", &wire.names[0]])
        .args([&*program, own.as_ref()])
        .env("ADVERB_RUN_ADDRESS", own)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
}
