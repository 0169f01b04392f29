//! rdma-core's ping-pong programs in pairs.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use common::{PathTo, exchanged, installed};

const PACKAGE: &str = "ibverbs-utils";

/// Runs a program as server and client at address `127.42.N.1`, and checks that both made all exchanges.
fn pingpong(program: &str, n: u8, arguments: &[&str]) {
    let Some(program) = installed(program, PACKAGE) else {
        return;
    };
    let address = format!("127.42.{n}.1");
    for path in [PathTo::SharedMemory, PathTo::Udp] {
        for text in exchanged(&program, arguments, &address, path) {
            let given = format!("{arguments:?}, {path:?}");
            assert!(text.contains("1000 iters in"), "{given}:\n{text}");
        }
    }
}

#[test]
fn ibv_rc_pingpong_polls() {
    pingpong("ibv_rc_pingpong", 1, &[]);
}

#[test]
fn ibv_rc_pingpong_sleeps() {
    pingpong("ibv_rc_pingpong", 2, &["-e"]);
}

#[test]
fn ibv_rc_pingpong_finds_its_data() {
    pingpong("ibv_rc_pingpong", 3, &["-c", "-g", "0"]);
}

#[test]
fn ibv_uc_pingpong_exchanges_messages() {
    pingpong("ibv_uc_pingpong", 4, &[]);
}

#[test]
fn ibv_uc_pingpong_sleeps() {
    pingpong("ibv_uc_pingpong", 5, &["-e"]);
}

#[test]
fn ibv_ud_pingpong_exchanges_datagrams() {
    pingpong("ibv_ud_pingpong", 6, &["-s", "1024"]);
}

#[test]
fn ibv_ud_pingpong_sleeps() {
    pingpong("ibv_ud_pingpong", 7, &["-s", "1024", "-e"]);
}

#[test]
fn ibv_srq_pingpong_exchanges_messages() {
    pingpong("ibv_srq_pingpong", 8, &[]);
}

#[test]
fn ibv_srq_pingpong_sleeps() {
    pingpong("ibv_srq_pingpong", 9, &["-e"]);
}
