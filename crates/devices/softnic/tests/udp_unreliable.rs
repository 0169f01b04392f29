//! UD over UDP: which queue pairs receive messages. `udp_unreliable_loss` has UC, and lossy networks; the rules of the
//! services are in the conformance suite (`udp_conformance`). Each test uses other loopback addresses.

#![allow(unsafe_code)]

mod common;

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt;
use std::time::Duration;

use adverb_softnic::{SoftDevice, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    AddressHandle, Context, Destination, MemoryRegion, Operation, QpCaps, QpState, Qpn, QueuePair,
    RecvRequest, SendFlags, SendRequest, WcStatus, WrId,
};
use common::victim::{Victim, hear, tell};
use common::{End, NOBODY, QKEY, Random, isolated, unused_qpn, wait_until, with_another_user};

const MEMORY: Bytes = Bytes::mib(1);

fn ip(net: u8, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 10, net, host))
}

fn end(net: u8, host: u8) -> End {
    End::of(SoftDevice::at(ip(net, host)), MEMORY)
}

const ROOM: u64 = 2048;
const RECEIVES: u64 = 16;

fn post_receive(end: &End, qp: &SoftQp, n: u64) {
    let sges = [end.mr.sge(n % RECEIVES * ROOM, ROOM as u32).unwrap()];
    qp.post_recv(&[RecvRequest::new(WrId(n), &sges)]).unwrap();
}

/// A UD queue pair in RTS at a separate address.
struct Node {
    end: End,
    qp: SoftQp,
}

impl Node {
    fn new(net: u8, host: u8) -> Self {
        let end = end(net, host);
        let qp = end.datagram_qp(&end.cq, QpCaps::default());
        Node { end, qp }
    }

    /// Sends `length` bytes from offset 0.
    fn send(&self, to: &Node, there: (Qpn, u32), length: u32) {
        self.send_from(0, to, there, length);
    }

    fn send_from(&self, offset: u64, to: &Node, (qpn, qkey): (Qpn, u32), length: u32) {
        let address = to.end.local_address();
        let ah = self.end.context.create_ah(&self.end.pd, &address).unwrap();
        let to = Destination {
            ah: ah.handle(),
            qpn,
            qkey,
        };
        let sges = [self.end.mr.sge(offset, length).unwrap()];
        let request = SendRequest::new(WrId(1), Operation::Send, &sges).to(to);
        let request = request.with_flags(SendFlags::SIGNALED);
        self.qp.post_send(&[request]).unwrap();
        assert_eq!(self.end.poll_one("of a SEND").status, WcStatus::Success);
    }
}

#[test]
fn datagrams_that_are_not_taken_are_counted_by_reason() {
    let (a, b) = (Node::new(2, 1), Node::new(2, 2));
    let there = b.qp.qpn();
    let nobody = unused_qpn(there);
    let counted = |name: &str| {
        let came = || {
            assert!(b.end.poll().is_empty());
            b.end.context.counters()[name] == 1
        };
        assert!(wait_until(came), "{name}: {:?}", b.end.context.counters());
    };
    a.send(&b, (nobody, QKEY), 64);
    counted("drop_unknown_queue_pair");
    a.send(&b, (there, QKEY), 64);
    counted("drop_receiver_not_ready");
    post_receive(&b.end, &b.qp, 0);
    a.send(&b, (there, QKEY + 1), 64);
    counted("drop_wrong_qkey");
    a.send(&b, (there, QKEY), 64);
    assert_eq!(b.end.poll_one("of the receive").byte_len, 104);
    let (sender, receiver) = (a.end.context.counters(), b.end.context.counters());
    assert_eq!((sender["sent_pkts"], receiver["rcvd_pkts"]), (4, 1));
}

#[test]
fn one_queue_gets_datagrams_of_this_host_and_of_others() {
    let (far, b) = (Node::new(3, 1), Node::new(3, 2));
    let near = Node::new(3, 2);
    let mut random = Random::from_env("one_queue_gets_datagrams_of_this_host_and_of_others");
    (0..RECEIVES).for_each(|n| post_receive(&b.end, &b.qp, n));
    for n in 0..500 {
        let from = if random.chance(50) { &far } else { &near };
        let length = 8 + random.below(2000) as usize;
        let bytes = random.bytes(length);
        from.end.mr.write(0, &bytes).unwrap();
        from.send(&b, (b.qp.qpn(), QKEY), length as u32);
        let completion = b.end.poll_one("of the receive");
        assert_eq!(
            (completion.wr_id.0, completion.status),
            (n, WcStatus::Success)
        );
        assert_eq!(completion.src_qp, Some(from.qp.qpn()));
        assert_eq!(completion.byte_len as usize, 40 + length);
        let mut came = vec![0; 40 + length];
        b.end.mr.read(n % RECEIVES * ROOM, &mut came).unwrap();
        assert!(came[40..] == bytes, "message {n}");
        // Addresses of the IPv4 header: source and destination.
        let IpAddr::V4(source) = ip(3, if std::ptr::eq(from, &far) { 1 } else { 2 }) else {
            unreachable!("made of IPv4");
        };
        assert_eq!(came[32..36], source.octets(), "message {n}");
        assert_eq!(came[36..40], [127, 10, 3, 2], "message {n}");
        post_receive(&b.end, &b.qp, n + RECEIVES);
    }
}

const STRANGER: &str = "a_stranger_at_the_own_address_gets_datagrams_over_udp";

/// Another container's process, say: it has other shared memory.
#[test]
fn a_stranger_at_the_own_address_gets_datagrams_over_udp() {
    isolated(STRANGER, || {
        let here = Node::new(6, 1);
        let own = std::env::var("ADVERB_SHM").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        // SAFETY: this test is alone in its process, and no other thread reads the environment during the call.
        unsafe { std::env::set_var("ADVERB_SHM", elsewhere.path()) };
        let stranger = Node::new(6, 1);
        // SAFETY: as above.
        unsafe { std::env::set_var("ADVERB_SHM", own) };
        let near = Node::new(6, 1);
        (0..8).for_each(|n| post_receive(&stranger.end, &stranger.qp, n));
        (0..8).for_each(|n| post_receive(&near.end, &near.qp, n));
        for n in 0..8u64 {
            here.end.mr.write(0, &[n as u8; 100]).unwrap();
            for there in [&stranger, &near] {
                here.send(there, (there.qp.qpn(), QKEY), 100);
                let completion = there.end.poll_one("of the receive");
                assert_eq!((completion.wr_id.0, completion.byte_len), (n, 140));
                assert_eq!(completion.src_qp, Some(here.qp.qpn()));
                let mut came = [0; 100];
                there
                    .end
                    .mr
                    .read(n % RECEIVES * ROOM + 40, &mut came)
                    .unwrap();
                assert_eq!(came, [n as u8; 100]);
            }
        }
        let counted = |node: &Node| node.end.context.counters()["rcvd_pkts"];
        assert_eq!((counted(&stranger), counted(&near)), (8, 0));
        // What nobody has is dropped, and a fault of this side is one, here as there.
        let nobody = unused_qpn(stranger.qp.qpn());
        here.send(&stranger, (nobody, QKEY), 8);
        assert!(near.end.poll().is_empty() && stranger.end.poll().is_empty());
        drop(stranger);
        here.send(&near, (nobody, QKEY), 8);
    });
}

const FOREIGN: &str = "another_users_datagrams_at_the_own_address_come_and_go_over_udp";

/// The program of another user: returns each datagram to its sender. Ends with the test.
fn echo(_: &str) {
    let node = Node::new(7, 1);
    (0..RECEIVES).for_each(|n| post_receive(&node.end, &node.qp, n));
    tell(&node.qp.qpn().get().to_string());
    loop {
        let completion = node.end.poll_one("of a datagram");
        let n = completion.wr_id.0;
        let mut bytes = vec![0; completion.byte_len as usize - 40];
        node.end
            .mr
            .read(n % RECEIVES * ROOM + 40, &mut bytes)
            .unwrap();
        post_receive(&node.end, &node.qp, n + RECEIVES);
        node.end.mr.write(RECEIVES * ROOM, &bytes).unwrap();
        let from = completion.src_qp.unwrap();
        node.send_from(RECEIVES * ROOM, &node, (from, QKEY), bytes.len() as u32);
        tell(&node.end.context.counters()["rcvd_pkts"].to_string());
        hear();
    }
}

#[test]
fn another_users_datagrams_at_the_own_address_come_and_go_over_udp() {
    with_another_user(FOREIGN, echo, || {
        let here = Node::new(7, 1);
        let mut other = Victim::start_as("echo", |command| command.uid(NOBODY));
        let there = Qpn::new(other.hear().parse().unwrap()).unwrap();
        (0..8).for_each(|n| post_receive(&here.end, &here.qp, n));
        for n in 0..8u64 {
            here.end.mr.write(RECEIVES * ROOM, &[n as u8; 100]).unwrap();
            here.send_from(RECEIVES * ROOM, &here, (there, QKEY), 100);
            let completion = here.end.poll_one("of the echo");
            assert_eq!((completion.wr_id.0, completion.byte_len), (n, 140));
            assert_eq!(completion.src_qp, Some(there));
            let mut came = [0; 100];
            here.end.mr.read(n * ROOM + 40, &mut came).unwrap();
            assert_eq!(came, [n as u8; 100]);
            assert_eq!(other.hear(), (n + 1).to_string(), "they came by UDP");
            other.tell("next");
        }
        assert_eq!(here.end.context.counters()["rcvd_pkts"], 8);
        other.kill();
    });
}

#[test]
fn a_receiver_that_sleeps_is_woken_by_a_datagram() {
    let (a, b) = (Node::new(4, 1), Node::new(4, 2));
    for n in 0..5 {
        post_receive(&b.end, &b.qp, n);
        std::thread::scope(|scope| {
            scope.spawn(|| b.end.sleep_until("a datagram", |came| came.len() == 1));
            std::thread::sleep(Duration::from_millis(n));
            a.send(&b, (b.qp.qpn(), QKEY), 64);
        });
    }
}

#[test]
fn an_ended_handle_leads_nowhere_and_is_not_used_again() {
    let (a, b) = (Node::new(5, 1), Node::new(5, 2));
    let address = b.end.local_address();
    let handles: Vec<_> = (0..3)
        .map(|_| a.end.context.create_ah(&a.end.pd, &address).unwrap())
        .collect();
    let names: Vec<u64> = handles.iter().map(|ah| ah.handle().name()).collect();
    drop(handles);
    let again = a.end.context.create_ah(&a.end.pd, &address).unwrap();
    assert!(!names.contains(&again.handle().name()));
    // A handle of another domain's is none of this one's.
    let other = a.end.context.alloc_pd().unwrap();
    let foreign = a.end.context.create_ah(&other, &address).unwrap();
    let sges = [a.end.mr.sge(0, 8).unwrap()];
    let to = Destination {
        ah: foreign.handle(),
        qpn: b.qp.qpn(),
        qkey: QKEY,
    };
    let request = SendRequest::new(WrId(1), Operation::Send, &sges).to(to);
    a.qp.post_send(&[request]).unwrap();
    let ended = a.end.poll_one("of a SEND");
    assert_eq!(ended.status, WcStatus::LocQpOpErr);
    assert_eq!(a.qp.state(), QpState::Sqe);
}
