//! rsockets: a C program that walks the interface, the programs of rdma-core, programs for TCP over librspreload.so, and
//! peers that are killed.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::path::Path;
use std::process::Command;

use common::scene::{Addresses, Scene, TCP_7471, pair};
use common::{PathTo, assert_explained, compiled, installed, not_run, over_adverb};

const RDMACM: &str = "rdmacm-utils";
/// Service IDs of port 7427, which rcopy uses, and of port 5201, which iperf3 uses.
const TCP_7427: &str = ".s1061d03";
const TCP_5201: &str = ".s1061451";
const RSPRELOAD: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";

/// Runs a program over the device at `address`; returns what was explained.
fn walked(program: &str, path: PathTo, address: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(program, folder.path())?;
    let shared = folder.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    let output = over_adverb(program, &shared)
        .arg(address)
        .env("ADVERB_RUN_FAULTS", path.faults())
        .env("ADVERB_RUN_ADDRESS", address)
        .env("ADVERB_EXPLAIN", "1")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    Some(errors.into_owned())
}

#[test]
fn a_program_walks_rsockets_in_shared_memory() {
    let Some(explained) = walked("rsockets.c", PathTo::SharedMemory, "127.41.0.6") else {
        return;
    };
    let lines = [
        "adverb: rsocket: datagrams (SOCK_DGRAM) are not supported: only SOCK_STREAM [Operation not supported (os error 95)]",
        "adverb: riomap: the peer takes 2 mappings (its option RDMA_IOMAPSIZE) [Cannot allocate memory (os error 12)]",
        "adverb: riowrite: the peer has mapped no buffer at offset 0x1 [Invalid argument (os error 22)]",
        "adverb: rsetsockopt: the kernel's IP stack resolves the routes of peers [Operation not supported (os error 95)]",
    ];
    assert_explained(&explained, &lines);
}

#[test]
fn a_program_walks_rsockets_over_udp() {
    walked("rsockets.c", PathTo::Udp, "127.41.0.7");
}

/// Such peers ended the program, or the thread that serves all its connections.
#[test]
fn a_peer_that_breaks_the_protocol_ends_its_own_connection() {
    walked("rsocket_strangers.c", PathTo::SharedMemory, "127.41.0.12");
    walked("rsocket_strangers.c", PathTo::Udp, "127.41.0.13");
}

/// Runs rstream or riostream as server and client with the same options.
fn streams(number: u8, program: &str, options: &str) {
    for (number, addresses) in [(number, Addresses::One), (number + 1, Addresses::Two)] {
        let server = format!("{program} {options} -b SERVER");
        let client = format!("{program} {options} -s SERVER");
        let printed = pair((number, addresses), (RDMACM, &server, &client), TCP_7471);
        for text in printed.into_iter().flatten() {
            let rows = text.lines().filter(|row| row.contains("usec/xfer"));
            assert_eq!(rows.count(), 1, "{program} {options}: {text}");
        }
    }
}

#[test]
fn rstream_moves_and_verifies_bytes_in_all_its_modes() {
    // -T: asynchronous, blocking, non-blocking, resolved by rdma_getaddrinfo; v verifies the bytes.
    for mode in ["-T a", "-T b", "-T n", "-T b -T r", "-T b -k 1"] {
        streams(20, "rstream", &format!("-T v -S 70000 -I 2 -C 10 {mode}"));
    }
}

#[test]
fn riostream_writes_to_mapped_buffers() {
    for mode in ["-T a", "-T b"] {
        streams(24, "riostream", &format!("-T v -S 3000 -I 2 -C 10 {mode}"));
    }
}

/// Bytes that repeat late.
fn pattern() -> Vec<u8> {
    let words = (0..500_000_u32).map(|n| n.wrapping_mul(0x9e37_79b1));
    words.flat_map(u32::to_ne_bytes).collect()
}

#[test]
fn rcopy_copies_a_file() {
    let Some(rcopy) = installed("rcopy", RDMACM) else {
        return;
    };
    for (number, addresses) in [(28, Addresses::One), (29, Addresses::Two)] {
        let mut scene = Scene::new(number, addresses);
        let [from, to] = ["from", "to"].map(|name| scene.folder.path().join(name));
        std::fs::write(&from, pattern()).unwrap();
        // It serves until it is killed.
        scene.serve(&rcopy, "", TCP_7427);
        let client = scene.client(
            &rcopy,
            &format!("{} SERVER:{}", from.display(), to.display()),
        );
        scene.succeeds(client);
        assert!(
            std::fs::read(&to).unwrap() == pattern(),
            "{}",
            scene.story()
        );
    }
}

/// Returns whether librspreload.so is installed, after reporting if it is not.
fn has_rspreload() -> bool {
    let is_there = Path::new(RSPRELOAD).is_file();
    if !is_there {
        not_run(
            "programs for TCP over librspreload.so",
            &format!("{RSPRELOAD} is missing (package librdmacm1)"),
        );
    }
    is_there
}

#[test]
fn iperf3_runs_over_rsockets() {
    let Some(iperf3) = installed("iperf3", "iperf3") else {
        return;
    };
    if !has_rspreload() {
        return;
    }
    for (number, addresses) in [(30, Addresses::One), (31, Addresses::Two)] {
        let mut scene = Scene::new(number, addresses);
        scene.others = RSPRELOAD;
        let server = scene.serve(&iperf3, "-s -1 -B SERVER", TCP_5201);
        let client = scene.client(&iperf3, "-c SERVER -n 4M -P 2");
        scene.succeeds(client);
        scene.succeeds(server);
        let told = scene.processes[client].told();
        assert!(told.contains("iperf Done."), "{}", scene.story());
    }
}

#[test]
fn a_server_that_forks_for_each_connection_runs_over_librspreload() {
    if !has_rspreload() {
        return;
    }
    let Some(rstream) = installed("rstream", RDMACM) else {
        return;
    };
    let mut scene = Scene::new(32, Addresses::One);
    scene.others = RSPRELOAD;
    scene.variables = &[("RDMAV_FORK_SAFE", "1")];
    let address = scene.server.clone();
    // Its listening socket is an ordinary one.
    let server = scene.start(&rstream, (&address, "-T f -S 3000 -I 2 -C 10 -b SERVER"));
    scene.until("it listens", |_| common::is_listening(7471));
    let client = scene.client(&rstream, "-T f -S 3000 -I 2 -C 10 -s SERVER");
    scene.succeeds(client);
    scene.processes[server].child.kill().unwrap();
    let told = scene.processes[client].told();
    assert!(told.contains("usec/xfer"), "{}", scene.story());
}

/// Starts a server that answers and a client, and kills one of them. The other one notices, and ends by itself.
fn kill_one((number, addresses): (u8, Addresses), client: &str, is_server_killed: bool) {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("rsocket_peer.c", folder.path()) else {
        return;
    };
    let mut scene = Scene::new(number, addresses);
    let server = scene.serve(&program, "answer SERVER", TCP_7471);
    let client = scene.client(&program, &format!("{client} SERVER"));
    scene.until("they are connected", |scene| {
        scene.processes[client].told().contains("connected\n")
    });
    let (victim, other) = match is_server_killed {
        true => (server, client),
        false => (client, server),
    };
    scene.processes[victim].child.kill().unwrap();
    scene.succeeds(other);
    let told = scene.processes[other].told();
    assert!(told.contains("ended: "), "{}", scene.story());
}

#[test]
fn a_client_notices_that_its_server_is_killed() {
    for client in ["ask", "wait", "poll"] {
        kill_one((33, Addresses::One), client, true);
        kill_one((34, Addresses::Two), client, true);
    }
}

#[test]
fn a_server_notices_that_its_client_is_killed() {
    for client in ["ask", "wait"] {
        kill_one((35, Addresses::One), client, false);
        kill_one((36, Addresses::Two), client, false);
    }
}

#[test]
fn keepalive_notices_a_peer_that_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("rsocket_peer.c", folder.path()) else {
        return;
    };
    let mut scene = Scene::new(37, Addresses::Two);
    let server = scene.serve(&program, "answer SERVER", TCP_7471);
    let client = scene.client(&program, "keepalive SERVER");
    scene.until("they are connected", |scene| {
        scene.processes[client].told().contains("connected\n")
    });
    // A stopped process looks like a host that has vanished.
    let pid = scene.processes[server].child.id().to_string();
    let stopped = Command::new("kill").args(["-STOP", &pid]).status();
    assert!(stopped.unwrap().success());
    scene.succeeds(client);
    let told = scene.processes[client].told();
    assert!(
        told.contains("ended: Connection timed out"),
        "{}",
        scene.story()
    );
}
