//! Multicast groups between processes and hosts. The rules of groups are in the conformance suite
//! (`udp_conformance`); here several programs share the group's UDP port, and packets cross a wire.

#![allow(unsafe_code)]

mod common;

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Stdio;
use std::time::Duration;

use adverb_softnic::SoftQp;
use adverb_units::Bytes;
use adverb_verbs::{
    AddressHandle, AddressVector, Context, Destination, Gid, Lid, McastError, MemoryRegion,
    Operation, QpCaps, Qpn, QueuePair, RecvRequest, SendFlags, SendRequest, WcStatus, WrId,
};
use common::network::Network;
use common::{End, QKEY, child, isolated, isolated_with, not_run};

const MEMORY: Bytes = Bytes::kib(64);
const LENGTH: u32 = 64;

/// A group that no other test uses.
fn group(number: u8) -> Gid {
    Gid::from_ipv4(Ipv4Addr::new(239, 193, 0, number))
}

/// A UD queue pair on a host.
struct Node {
    end: End,
    qp: SoftQp,
}

impl Node {
    fn new(network: &Network, host: usize) -> Self {
        let end = network.end(host, MEMORY);
        let qp = end.datagram_qp(&end.cq, QpCaps::default());
        Node { end, qp }
    }

    /// One in a group, with receives.
    fn member(network: &Network, host: usize, group: Gid) -> Self {
        Node::joined_on(network, (host, host), group)
    }

    /// One of `host` that a thread on another host has put into a group.
    fn joined_on(network: &Network, (host, caller): (usize, usize), group: Gid) -> Self {
        let node = Node::new(network, host);
        network.on(caller, || node.qp.attach_mcast(group, Lid(0)).unwrap());
        for n in 0..16 {
            let sges = [node.end.mr.sge(4096, 40 + LENGTH).unwrap()];
            node.qp
                .post_recv(&[RecvRequest::new(WrId(n), &sges)])
                .unwrap();
        }
        node
    }

    fn send(&self, group: Gid, byte: u8) {
        let address = AddressVector {
            dgid: group,
            ..self.end.local_address()
        };
        let ah = self.end.context.create_ah(&self.end.pd, &address).unwrap();
        let to = Destination {
            ah: ah.handle(),
            qpn: Qpn::MULTICAST,
            qkey: QKEY,
        };
        self.end.mr.write(0, &[byte; LENGTH as usize]).unwrap();
        let sges = [self.end.mr.sge(0, LENGTH).unwrap()];
        let request = SendRequest::new(WrId(1), Operation::Send, &sges).to(to);
        let request = request.with_flags(SendFlags::SIGNALED);
        self.qp.post_send(&[request]).unwrap();
        assert_eq!(self.end.poll_one("of a SEND").status, WcStatus::Success);
    }

    /// Waits for the next datagram, which is from `from`.
    #[track_caller]
    fn expect(&self, from: Qpn, byte: u8) {
        let completion = self.end.poll_one("of a receive");
        assert_eq!(completion.status, WcStatus::Success);
        assert_eq!(completion.src_qp, Some(from));
        assert_eq!(completion.byte_len, 40 + LENGTH);
        let mut bytes = [0; LENGTH as usize];
        self.end.mr.read(4096 + 40, &mut bytes).unwrap();
        assert_eq!(bytes, [byte; LENGTH as usize]);
    }
}

const PROCESSES: &str = "several_processes_of_a_host_all_get_a_copy";
const NET: u8 = 200;

/// The other process: a member that sleeps until it has got two datagrams.
fn play_member(_: &str) {
    let member = Node::member(&Network::loopback(NET), 1, group(1));
    println!("joined");
    member
        .end
        .sleep_until("two datagrams", |came| came.len() == 2);
    println!("came");
}

#[test]
fn several_processes_of_a_host_all_get_a_copy() {
    isolated_with(PROCESSES, play_member, || {
        let network = Network::loopback(NET);
        let mut children = [(); 2].map(|()| {
            let child = child("member").stdout(Stdio::piped()).spawn();
            child.unwrap()
        });
        let mut lines: Vec<_> = children
            .iter_mut()
            .map(|child| BufReader::new(child.stdout.take().unwrap()).lines())
            .collect();
        let mut all_say = |word: &str| {
            for lines in &mut lines {
                let mut said = lines.by_ref().map(Result::unwrap);
                assert!(said.any(|line| line.ends_with(word)), "a child says {word}");
            }
        };
        all_say("joined");
        // One more in this process, of the sender's own context.
        let sender = Node::member(&network, 0, group(1));
        for byte in [3, 4] {
            sender.send(group(1), byte);
            sender.expect(sender.qp.qpn(), byte);
        }
        all_say("came");
        children
            .iter_mut()
            .for_each(|child| assert!(child.wait().unwrap().success()));
    });
}

const WIRE: &str = "members_on_both_hosts_get_what_one_sends";

#[test]
fn members_on_both_hosts_get_what_one_sends() {
    members_on_both_hosts(WIRE, || Network::wire("mcast"), [group(2), group(3)]);
}

const WIRE_OF_IPV6: &str = "members_on_both_hosts_get_what_one_sends_over_ipv6";

#[test]
fn members_on_both_hosts_get_what_one_sends_over_ipv6() {
    let groups = ["ff15::adbe:2", "ff12::adbe:3"];
    let groups = groups.map(|group| Gid(group.parse::<Ipv6Addr>().unwrap().octets()));
    members_on_both_hosts(WIRE_OF_IPV6, || Network::wire_of_ipv6("mcast6"), groups);
}

/// Calls `check` with a wire, if there can be one.
fn with_wire(
    test: &str,
    wire: impl FnOnce() -> Result<Network, String>,
    check: impl FnOnce(&Network),
) {
    isolated(test, || match wire() {
        Ok(network) => check(&network),
        Err(why) => not_run(&format!("{test}: two network namespaces: {why}")),
    });
}

const ELSEWHERE: &str = "groups_are_of_the_devices_network_namespace_not_of_the_threads";

#[test]
fn groups_are_of_the_devices_network_namespace_not_of_the_threads() {
    with_wire(
        ELSEWHERE,
        || Network::wire("mcastns"),
        |network| {
            reaches_by_other_namespaces(network, group(7));
        },
    );
}

const ELSEWHERE_IPV6: &str = "groups_over_ipv6_are_of_the_devices_network_namespace_too";

#[test]
fn groups_over_ipv6_are_of_the_devices_network_namespace_too() {
    let group = Gid("ff15::adbe:7".parse::<Ipv6Addr>().unwrap().octets());
    with_wire(
        ELSEWHERE_IPV6,
        || Network::wire_of_ipv6("mcastns6"),
        |network| {
            reaches_by_other_namespaces(network, group);
        },
    );
}

/// The threads that join and send are in the other host's network namespace.
fn reaches_by_other_namespaces(network: &Network, group: Gid) {
    let sender = Node::new(network, 0);
    let members = [0, 1].map(|host| Node::joined_on(network, (host, 1 - host), group));
    for byte in 0..4 {
        network.on(1, || sender.send(group, byte));
        for member in &members {
            member.expect(sender.qp.qpn(), byte);
        }
    }
}

fn members_on_both_hosts(
    test: &str,
    wire: impl FnOnce() -> Result<Network, String>,
    [here, there]: [Gid; 2],
) {
    with_wire(test, wire, |network| {
        let sender = Node::new(network, 0);
        let members = [0, 1, 1].map(|host| Node::member(network, host, here));
        let other = Node::member(network, 1, there);
        for byte in 0..10 {
            network.on(0, || sender.send(here, byte));
            members
                .iter()
                .for_each(|member| member.expect(sender.qp.qpn(), byte));
        }
        // In the other direction: its reply is delivered to the others and to itself.
        let [near, far, fellow] = &members;
        network.on(1, || far.send(here, 77));
        [near, far, fellow]
            .iter()
            .for_each(|member| member.expect(far.qp.qpn(), 77));
        // A copy for another group would have arrived here by now.
        network.on(0, || sender.send(there, 88));
        other.expect(sender.qp.qpn(), 88);
        assert!(other.end.poll().is_empty());
        drop((members, other, sender));
    });
}

#[test]
fn a_sleeping_member_is_woken_though_it_slept_before_it_joined() {
    let network = Network::loopback(NET + 1);
    let (sender, member) = (Node::new(&network, 0), Node::member(&network, 1, group(4)));
    std::thread::scope(|scope| {
        scope.spawn(|| member.end.sleep_until("a datagram", |came| came.len() == 1));
        std::thread::sleep(Duration::from_millis(5));
        // Its thread sleeps at the sockets of before.
        member.qp.attach_mcast(group(5), Lid(0)).unwrap();
        sender.send(group(5), 1);
    });
}

#[test]
fn invalid_groups_are_refused_by_name() {
    let end = End::new(MEMORY);
    let qp = end.datagram_qp(&end.cq, QpCaps::default());
    let error = qp.attach_mcast(group(6), Lid(0)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "device soft has no multicast groups without a UDP port (soft@ADDR has one)"
    );
    let node = Node::new(&Network::loopback(NET + 2), 0);
    let refused = |gid| node.qp.attach_mcast(gid, Lid(0)).unwrap_err().to_string();
    assert_eq!(
        refused(Gid::from_ipv4(Ipv4Addr::new(10, 0, 0, 1))),
        "invalid multicast group '::ffff:10.0.0.1': expected ff00::/8 or ::ffff:224.0.0.0/4 \
         (such as ::ffff:239.1.2.3)"
    );
    let v6 = Gid("ff15::5".parse::<Ipv6Addr>().unwrap().octets());
    let error = refused(v6);
    assert!(error.contains("not of the same IP version"), "{error}");
    let error = node.qp.detach_mcast(group(6), Lid(0)).unwrap_err();
    assert!(matches!(error, McastError::NotAttached { .. }), "{error}");
}
