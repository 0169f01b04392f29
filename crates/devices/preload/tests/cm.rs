//! Programs of rdmacm-utils and perftest over librdmacm's interface, in pairs: one address, where they share memory, and
//! two addresses, between which they use UDP.

#![allow(missing_docs, reason = "a test program")]

#[expect(dead_code, reason = "the test uses a part of it")]
mod common;

use std::net::Ipv4Addr;

use common::installed;
use common::scene::{Addresses, Scene, TCP_7471, pair};

const RDMACM: &str = "rdmacm-utils";
const PERFTEST: &str = "perftest";

/// Service IDs of the default ports of the programs.
const TCP_7174: &str = ".s1061c06";
const TCP_7175: &str = ".s1061c07";
const UDP_7174: &str = ".s1111c06";
const TCP_18515: &str = ".s1064853";

const RPING: (&str, &str, &str) = (
    RDMACM,
    "rping -s -a SERVER -C 10 -V -v",
    "rping -c -a SERVER -C 10 -V -v",
);

fn check_rping(number: u8, addresses: Addresses) {
    let printed = pair((number, addresses), RPING, TCP_7174);
    for text in printed.into_iter().flatten() {
        assert!(text.contains("rdma-ping-9: JKLMNOP"), "{text}");
    }
}

#[test]
fn rping_within_a_host() {
    check_rping(0, Addresses::One);
}

#[test]
fn rping_over_udp() {
    check_rping(1, Addresses::Two);
}

#[test]
fn ucmatose_makes_forty_connections_at_once() {
    let programs = (
        RDMACM,
        "ucmatose -c 40 -b SERVER",
        "ucmatose -c 40 -s SERVER",
    );
    pair((2, Addresses::One), programs, TCP_7471);
    pair((3, Addresses::Two), programs, TCP_7471);
}

#[test]
fn udaddy_resolves_a_datagram_service() {
    let programs = (RDMACM, "udaddy -b SERVER", "udaddy -s SERVER");
    pair((4, Addresses::One), programs, UDP_7174);
    pair((5, Addresses::Two), programs, UDP_7174);
}

#[test]
fn mckey_sends_to_a_multicast_group() {
    let Some(mckey) = installed("mckey", RDMACM) else {
        return;
    };
    for addresses in [Addresses::One, Addresses::Two] {
        let mut scene = Scene::new(9, addresses);
        let [.., high, low] = std::process::id().to_be_bytes();
        let group = Ipv4Addr::new(239, 9, high, low);
        let address = scene.server.clone();
        let join = format!("-m {group} -b SERVER");
        let receiver = scene.start(&mckey, (&address, &join));
        // As the kernel prints it: the bytes as a number of this machine.
        let row = format!("{:08X}", u32::from_ne_bytes(group.octets()));
        scene.until("it joins", |_| {
            let groups = std::fs::read_to_string("/proc/net/igmp").unwrap();
            groups.contains(&row)
        });
        let sender = scene.client(&mckey, &format!("-m {group} -b CLIENT -s"));
        scene.succeeds(sender);
        scene.succeeds(receiver);
    }
}

#[test]
fn rdma_client_uses_endpoints_without_event_channel() {
    let programs = (RDMACM, "rdma_server", "rdma_client -s SERVER");
    pair((6, Addresses::One), programs, TCP_7471);
    pair((7, Addresses::Two), programs, TCP_7471);
}

#[test]
fn perftest_connects_through_librdmacm() {
    let programs = (
        PERFTEST,
        "ib_send_bw -R -n 200 -F",
        "ib_send_bw -R -n 200 -F SERVER",
    );
    pair((8, Addresses::Two), programs, TCP_18515);
}

#[test]
fn a_port_without_listener_rejects_with_reason_8() {
    let Some(rping) = installed("rping", RDMACM) else {
        return;
    };
    for addresses in [Addresses::One, Addresses::Two] {
        let mut scene = Scene::new(10, addresses);
        scene.serve(&rping, "-s -P -a SERVER", TCP_7174);
        let client = scene.client(&rping, "-c -a SERVER -p 9999 -C 1");
        assert!(!scene.wait(client).success(), "{}", scene.story());
        let told = scene.processes[client].told();
        assert!(
            told.contains("RDMA_CM_EVENT_REJECTED, error 8"),
            "{}",
            scene.story()
        );
    }
}

#[test]
fn cmtime_measures_each_step_of_twenty_connections() {
    let Some(cmtime) = installed("cmtime", RDMACM) else {
        return;
    };
    let mut scene = Scene::new(11, Addresses::Two);
    // It serves until it is killed.
    scene.serve(&cmtime, "-c 20 -b SERVER", TCP_7471);
    let client = scene.client(&cmtime, "-c 20 -s SERVER");
    scene.succeeds(client);
    let told = scene.processes[client].told();
    assert!(told.contains("\nconnect "), "{}", scene.story());
}

/// Starts a ping that would never end, and kills one side of it. The other side gets the event that the connection
/// has ended.
fn kill_one((number, addresses): (u8, Addresses), victim: fn(usize, usize) -> [usize; 2]) {
    let Some(rping) = installed("rping", RDMACM) else {
        return;
    };
    let mut scene = Scene::new(number, addresses);
    let server = scene.serve(&rping, "-s -a SERVER -v", TCP_7174);
    let client = scene.client(&rping, "-c -a SERVER -v");
    scene.until("pings are made", |scene| {
        scene.processes[client].told().contains("rdma-ping-5:")
    });
    let [victim, other] = victim(server, client);
    scene.processes[victim].child.kill().unwrap();
    scene.wait(other);
}

#[test]
fn a_client_ends_when_its_server_is_killed() {
    kill_one((12, Addresses::One), |server, client| [server, client]);
    kill_one((16, Addresses::Two), |server, client| [server, client]);
}

#[test]
fn a_server_ends_when_its_client_is_killed() {
    kill_one((14, Addresses::One), |server, client| [client, server]);
    kill_one((17, Addresses::Two), |server, client| [client, server]);
}

#[test]
fn the_second_process_at_an_address_is_reached_after_the_first_is_killed() {
    let Some(rping) = installed("rping", RDMACM) else {
        return;
    };
    let mut scene = Scene::new(18, Addresses::Two);
    let first = scene.serve(&rping, "-s -P -a SERVER", TCP_7174);
    scene.serve(&rping, "-s -P -a SERVER -p 7175", TCP_7175);
    let ping = |scene: &mut Scene, port: &str| {
        let client = scene.client(&rping, &format!("-c -a SERVER -C 3 -p {port}"));
        scene.succeeds(client);
    };
    ping(&mut scene, "7174");
    ping(&mut scene, "7175");
    scene.processes[first].child.kill().unwrap();
    scene.wait(first);
    ping(&mut scene, "7175");
}
