//! Datagrams beyond what the conformance suite can ask of every device.

#![allow(unsafe_code)]

mod common;

use adverb_softnic::SoftQp;
use adverb_units::Bytes;
use adverb_verbs::{
    AddressHandle, AddressVector, Context, CreateError, Destination, Gid, MemoryRegion, Operation,
    QpAttr, QpCaps, QpState, QueuePair, RecvRequest, SendFlags, SendRequest, WcStatus, WrId,
};
use common::{End, QKEY, isolated};

fn node() -> (End, SoftQp) {
    let end = End::new(Bytes::kib(64));
    let qp = end.datagram_qp(&end.cq, QpCaps::default());
    (end, qp)
}

fn receive(end: &End, qp: &SoftQp, wr_id: u64) {
    let sges = [end.mr.sge(0, 256).unwrap()];
    qp.post_recv(&[RecvRequest::new(WrId(wr_id), &sges)])
        .unwrap();
}

fn send(end: &End, qp: &SoftQp, length: u32, to: Destination<'_>) {
    let sges = [end.mr.sge(4096, length).unwrap()];
    let request = SendRequest::new(WrId(1), Operation::Send, &sges).to(to);
    qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
        .unwrap();
}

#[test]
fn a_message_begins_with_the_header_of_its_packet() {
    isolated("a_message_begins_with_the_header_of_its_packet", || {
        let ((a, from), (b, qp)) = (node(), node());
        let ah = a.ah();
        for (length, transport) in [(0_u32, 24_u16), (1, 28), (100, 124)] {
            b.mr.write(0, &[0xee; 40]).unwrap();
            receive(&b, &qp, 7);
            let to = Destination {
                ah: ah.handle(),
                qpn: qp.qpn(),
                qkey: QKEY,
            };
            send(&a, &from, length, to);
            assert_eq!(a.poll_one("a send").status, WcStatus::Success);
            assert_eq!(b.poll_one("a datagram").byte_len, 40 + length);
            let mut header = [0; 40];
            b.mr.read(0, &mut header).unwrap();
            assert_eq!(header[..4], [0x60, 0, 0, 0], "version 6");
            assert_eq!(header[4..6], transport.to_be_bytes(), "BTH to ICRC");
            assert_eq!(header[6..8], [0x1b, 1]);
            let (source, destination) = (a.local_address().dgid.0, b.local_address().dgid.0);
            assert_eq!(
                (&header[8..24], &header[24..]),
                (&source[..], &destination[..])
            );
        }
    });
}

#[test]
fn an_address_handle_serves_its_own_domain() {
    isolated("an_address_handle_serves_its_own_domain", || {
        let ((a, from), (b, qp)) = (node(), node());
        receive(&b, &qp, 7);
        let pd = a.context.alloc_pd().unwrap();
        let foreign = a.context.create_ah(&pd, &a.local_address()).unwrap();
        let to = Destination {
            ah: foreign.handle(),
            qpn: qp.qpn(),
            qkey: QKEY,
        };
        send(&a, &from, 8, to);
        assert_eq!(a.poll_one("a send").status, WcStatus::LocQpOpErr);
        assert_eq!(from.state(), QpState::Sqe);
        assert!(b.poll().is_empty());
        let refused = b.context.create_ah(&pd, &a.local_address());
        assert!(matches!(refused, Err(CreateError::Foreign { .. })));
    });
}

#[test]
fn another_hosts_address_is_refused_by_name() {
    isolated("another_hosts_address_is_refused_by_name", || {
        let (a, _) = node();
        let elsewhere = AddressVector {
            dgid: Gid::from_ipv4([192, 0, 2, 7].into()),
            ..a.local_address()
        };
        let refused = a.context.create_ah(&a.pd, &elsewhere).unwrap_err();
        let words = refused.to_string();
        assert!(
            words.contains("192.0.2.7") && words.contains("127.0.0.1"),
            "{words}"
        );
    });
}

#[test]
fn a_drained_queue_pair_keeps_datagrams_and_their_destinations() {
    isolated(
        "a_drained_queue_pair_keeps_datagrams_and_their_destinations",
        || {
            let ((a, from), (b, qp), (c, other)) = (node(), node(), node());
            from.modify(&QpAttr::to(QpState::Sqd)).unwrap();
            for (end, to) in [(&b, &qp), (&c, &other)] {
                receive(end, to, 7);
                let ah = a.ah();
                let to = Destination {
                    ah: ah.handle(),
                    qpn: to.qpn(),
                    qkey: QKEY,
                };
                send(&a, &from, 8, to);
            }
            assert!(a.poll().is_empty() && b.poll().is_empty() && c.poll().is_empty());
            from.modify(&QpAttr::to(QpState::Rts)).unwrap();
            for end in [&a, &a, &b, &c] {
                assert_eq!(end.poll_one("a datagram").status, WcStatus::Success);
            }
        },
    );
}

/// Memory of UD receive queues serves again, for queues of the same size.
#[test]
fn queue_pairs_come_and_go_without_end() {
    isolated("queue_pairs_come_and_go_without_end", || {
        let ((a, from), b) = (node(), End::new(Bytes::kib(64)));
        let ah = a.ah();
        for i in 0..3_000_u64 {
            let max_recv_wr = 1 << (i % 11);
            let caps = QpCaps {
                max_recv_wr,
                ..QpCaps::default()
            };
            let qp = b.datagram_qp(&b.cq, caps);
            receive(&b, &qp, i);
            let to = Destination {
                ah: ah.handle(),
                qpn: qp.qpn(),
                qkey: QKEY,
            };
            send(&a, &from, 8, to);
            assert_eq!(a.poll_one("a send").status, WcStatus::Success);
            let is_taken = i % 3 != 0;
            if is_taken {
                assert_eq!(b.poll_one("a datagram").wr_id, WrId(i));
            }
        }
        assert!(b.poll().is_empty());
    });
}
