//! `soft@ADDR` where nobody is, where nobody can be, and where somebody else is already: named at once,
//! or the completion status of the specification, and never a hang.

use std::fs::Permissions;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::server::Server;
use crate::common::wire::{Wire, ip};
use crate::common::{Ended, Place, end_of, not_run, signal};
use rustix::process::Signal;
use serde_json::Value;

const SHORT: &str = "ping --op send --iters 50 --json";

/// `SHORT` at a device, with a server.
fn over(device: &str, peer: &str) -> String {
    format!("{SHORT} --device {device} --peer {peer}")
}

fn record_of(ended: Ended) -> Value {
    let record = ended.record();
    assert_eq!(record["status"], "ok", "{record}");
    record
}

#[test]
fn an_address_of_no_host_is_refused_by_name_on_either_side() {
    let place = Place::new();
    let of_this_host = "use an address of this host; `ip address` lists them";
    for (at, what) in [
        ("0.0.0.0", "the unspecified address"),
        ("::", "the unspecified address"),
        (
            "239.1.2.3",
            "a multicast group; attach queue pairs of the device to it instead",
        ),
        ("255.255.255.255", "the broadcast address"),
        (
            "fe80::1",
            "a link-local address, whose interface a GID does not contain",
        ),
    ] {
        let device = format!("soft@{at}");
        let line = format!("error: cannot open device {device}: {at} is {what}; {of_this_host}");
        assert_eq!(
            place.run(&format!("{SHORT} --device {device}")).refused(1),
            line
        );
        assert_eq!(
            place
                .run(&format!("serve --bind 127.0.0.1:0 --device {device}"))
                .refused(1),
            line
        );
    }
    let elsewhere = "serve --bind 127.0.0.1:0 --device soft@192.0.2.1";
    assert_eq!(
        place.run(elsewhere).refused(1),
        "error: cannot open device soft@192.0.2.1: 192.0.2.1 is not an address of this host and network namespace; use an address of this host; `ip address` lists them"
    );
    assert!(place.shm_files().is_empty());
}

#[test]
fn where_nobody_listens_is_named() {
    let place = Place::new();
    let ended = place.run(&over("soft@127.44.0.2", "127.44.0.9:1"));
    let line = ended.refused(1);
    let closed = "error: cannot reach a server at 127.44.0.9:1: Connection refused";
    assert!(line.starts_with(closed), "{line}");
    assert!(place.shm_files().is_empty());
}

#[test]
fn a_server_at_a_port_that_is_in_use_is_refused() {
    let place = Place::new();
    let server = Server::start(&place);
    let ended = place.run(&format!("serve --bind {}", server.address));
    let line = ended.refused(1).replace(&server.address, "PORT");
    assert_eq!(
        line,
        "error: cannot listen at PORT: choose an address of this host and a free port with --bind: Address already in use (os error 98)"
    );
}

#[test]
fn a_udp_port_that_is_in_use_is_skipped_and_recorded() {
    let (here, there) = (Place::new(), Place::new());
    let _taken = UdpSocket::bind("127.44.0.3:4791").unwrap();
    let serve = "--bind 127.0.0.1:0 --device soft@127.44.0.3";
    let server = Server::start_with(&there, serve);
    let record = record_of(here.run(&over("soft@127.44.0.4", &server.address)));
    let passive = &record["provenance"]["passive"]["device"]["port"];
    let passive = passive.as_str().unwrap();
    assert!(passive.contains("127.44.0.3:4792"), "{record}");
}

#[test]
fn an_address_without_a_free_udp_port_is_refused_by_name() {
    let bind = |port| UdpSocket::bind(("127.44.0.5", port)).unwrap();
    let _all: Vec<UdpSocket> = (4791..4791 + 512).map(bind).collect();
    let place = Place::new();
    let ended = place.run(&format!("{SHORT} --device soft@127.44.0.5"));
    assert_eq!(
        ended.refused(1),
        "error: cannot open device soft@127.44.0.5: all UDP ports from 4791 to 5302 at 127.44.0.5 are in use; use another address of this host, or end a process that uses one of them (`ss -ulpn`)"
    );
    let left: Vec<_> = std::fs::read_dir(place.shm()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The control connection is there, and no packet ever arrives: the server's device is at an address
/// to which the client's host has no way.
#[test]
fn packets_that_never_arrive_exceed_the_retries() {
    let wire = match Wire::new("lost") {
        Ok(wire) => wire,
        Err(why) => return not_run("packets_that_never_arrive_exceed_the_retries", &why),
    };
    let host = &wire.names[0];
    ip(&format!("-n {host} link set lo up")).unwrap();
    ip(&format!("-n {host} address add 10.88.0.1/32 dev lo")).unwrap();
    let (here, there) = (Place::new(), Place::new());
    let server = Server::run(wire.inside(
        0,
        &there.command("serve --bind 10.77.0.1 --device soft@10.88.0.1"),
    ));
    for op in ["send", "write", "read"] {
        let args = format!("ping --op {op} --iters 50 --device soft@10.77.0.2");
        let ping = here.command(&format!("{args} --peer 10.77.0.1"));
        let begin = Instant::now();
        let ended: Ended = wire.inside(1, &ping).output().unwrap().into();
        let line = ended.refused(1);
        let exceeded = "completed with: transport retry counter exceeded: no answer from QP ";
        assert!(line.contains(exceeded), "{line}");
        let what = " at ::ffff:10.88.0.1 (retry_cnt 7, timeout 67.1 ms, up to four times as long on some devices): check that ";
        assert!(line.contains(what), "{line}");
        assert!(line.contains("no firewall stops UDP port 4791"), "{line}");
        assert!(line.starts_with(&format!("error: ping/{op}/")), "{line}");
        let elapsed = begin.elapsed();
        assert!(elapsed < Duration::from_secs(60), "{elapsed:?}");
    }
    assert_eq!(server.stop(), Some(0));
    assert!(here.shm_files().is_empty() && there.shm_files().is_empty());
}

#[test]
fn a_side_that_dies_is_named_over_udp_too() {
    let (here, there) = (Place::new(), Place::new());
    let server = Server::start(&there);
    let long = "ping --op send --duration 60s --completion event";
    let over = format!("--device soft@127.44.0.6 --peer {}", server.address);
    let child = here.spawn(&format!("{long} {over}"));
    signal(server.side(), Signal::KILL);
    let ended = end_of(child);
    let line = ended.refused(1);
    assert!(line.starts_with("error: ping/send/64/"), "{line}");
    record_of(here.run(&format!("{SHORT} {over}")));
}

/// A user that owns nothing.
const NOBODY: u32 = 65534;

#[test]
fn another_users_server_at_the_own_address_is_measured_over_udp() {
    const TEST: &str = "another_users_server_at_the_own_address_is_measured_over_udp";
    let place = Place::new();
    // Both users' directories are in one place, as in /dev/shm.
    std::fs::set_permissions(place.shm(), Permissions::from_mode(0o1777)).unwrap();
    let mut serve = place.command("serve --bind 127.0.0.1:0");
    serve.current_dir("/").uid(NOBODY);
    let mut may = Command::new(serve.get_program());
    if let Err(why) = may.arg("--version").uid(NOBODY).output() {
        return not_run(TEST, &format!("cannot run as user {NOBODY}: {why}"));
    }
    let server = Server::run(serve);
    // The local port trusts one user.
    let ended = place.run(&over("soft", &server.address));
    let line = ended.refused(1);
    assert!(line.contains("device soft cannot reach from "), "{line}");
    let record = record_of(place.run(&over("soft@127.0.0.1", &server.address)));
    assert_eq!(record["device"]["name"], "soft@127.0.0.1", "{record}");
    let passive = &record["provenance"]["passive"]["device"]["memory"];
    assert!(
        passive.as_str().unwrap().contains("adverb-65534@"),
        "{record}"
    );
    assert!(record["counters"]["passive"]["rcvd_pkts"].as_u64() > Some(0));
    assert_eq!(server.stop(), Some(0));
}
