//! The UDP port at IPv6 addresses: the conformance cases of what crosses a wire, between two network
//! namespaces, and what a port of one IP version says of addresses of the other.

#![allow(unsafe_code)] // in what tests share

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use adverb_conformance::cases;
use adverb_conformance::threads::Subject;
use adverb_softnic::SoftDevice;
use adverb_units::Bytes;
use adverb_verbs::{AddressVector, Context, Device, Gid, Lid, QpCaps, QpType, QueuePair};
use common::network::{Network, connect_error};
use common::{End, isolated, not_run};

/// The modules that say something of what two ends tell each other. (Groups are joined, and handles to
/// them made, from within a namespace: `udp_multicast`.)
const ON_THE_WIRE: [&str; 9] = [
    "data::",
    "order::",
    "rnr::",
    "atomics::",
    "unreliable::",
    "datagram::",
    "dropped_datagram::",
    "shared_receive::",
    "shared_datagram::",
];

const WIRE: &str = "two_namespaces_conform_over_ipv6";

#[test]
fn two_namespaces_conform_over_ipv6() {
    isolated(WIRE, || {
        let network = match Network::wire_of_ipv6("ipv6") {
            Ok(network) => network,
            Err(why) => return not_run(&format!("{WIRE}: two network namespaces: {why}")),
        };
        let (mut count, opened) = (0, AtomicUsize::new(0));
        let at = |host| network.on(host, || SoftDevice::at(network.ip(host)).open());
        let subject = Subject {
            // One host and the other in turn.
            open: &|| at(opened.fetch_add(1, Ordering::Relaxed) % 2),
            station: &|| SoftDevice::new().open(),
        };
        for case in cases() {
            if ON_THE_WIRE
                .iter()
                .any(|module| case.name.starts_with(module))
            {
                println!("{}", case.name);
                assert_eq!(subject.run(&case), Ok(()), "{}", case.name);
                count += 1;
            }
        }
        assert!(count > ON_THE_WIRE.len(), "{count} cases");
    });
}

#[test]
fn a_port_of_one_ip_version_names_addresses_of_the_other() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        return not_run("ports at ::1: this machine has no IPv6");
    }
    for (at, other, group) in [
        ("::1", "::ffff:10.1.2.3", "::ffff:239.1.2.3"),
        ("127.11.0.1", "fd00::7", "ff15::7"),
    ] {
        let end = End::of(SoftDevice::at(at.parse().unwrap()), Bytes::kib(4));
        let gid = |text: &str| Gid(text.parse::<std::net::Ipv6Addr>().unwrap().octets());
        for service in [QpType::Rc, QpType::Uc] {
            assert_eq!(
                connect_error(&end, service, gid(other)),
                format!(
                    "peer {other} QP 0x00004d cannot be reached: it is not of the same IP version as {at}"
                )
            );
        }
        for to in [other, group] {
            let address = AddressVector {
                dgid: gid(to),
                ..end.local_address()
            };
            let error = end.context.create_ah(&end.pd, &address).err().unwrap();
            let error = error.to_string();
            assert!(error.contains(to), "{error}");
            assert!(error.contains("not of the same IP version"), "{error}");
        }
        let qp = end.datagram_qp(&end.cq, QpCaps::default());
        let error = qp.attach_mcast(gid(group), Lid(0)).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("not of the same IP version"), "{error}");
    }
}

#[test]
fn groups_that_the_loopback_interface_does_not_carry_are_refused() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        return not_run("ports at ::1: this machine has no IPv6");
    }
    let end = End::of(SoftDevice::at("::1".parse().unwrap()), Bytes::kib(4));
    let group = Gid("ff15::7".parse::<std::net::Ipv6Addr>().unwrap().octets());
    let address = AddressVector {
        dgid: group,
        ..end.local_address()
    };
    let qp = end.datagram_qp(&end.cq, QpCaps::default());
    let errors = [
        end.context
            .create_ah(&end.pd, &address)
            .err()
            .unwrap()
            .to_string(),
        qp.attach_mcast(group, Lid(0)).unwrap_err().to_string(),
    ];
    for error in errors {
        assert!(error.contains("carries no IPv6 groups"), "{error}");
    }
}
