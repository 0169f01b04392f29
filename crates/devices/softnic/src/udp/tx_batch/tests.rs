//! Sends batches and single packets, and checks what arrives.

use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use adverb_verbs::TrafficClass;

use super::*;
use crate::udp::packet::Remote;
use crate::udp::rx_batch::RxBatch;

/// How long to wait for packets of the loopback device.
const TIMEOUT: Duration = Duration::from_secs(60);

fn bound(at: &str) -> io::Result<Arc<RoceSocket>> {
    RoceSocket::bind(at.parse().unwrap()).map(Arc::new)
}

/// A socket of the loopback device.
fn socket() -> Arc<RoceSocket> {
    bound("127.0.0.1:0").unwrap()
}

fn target(from: &RoceSocket, to: &RoceSocket) -> Target {
    let class = TrafficClass(0);
    Target::new(from.at(), Remote { to: to.at(), class }).unwrap()
}

/// Forbids GSO, as an interface that does not compute checksums.
fn refuse_batches(socket: &RoceSocket) {
    let unchecked: libc::c_int = 1;
    // SAFETY: the option's value is an int.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NO_CHECK,
            (&raw const unchecked).cast(),
            size_of_val(&unchecked) as libc::socklen_t,
        )
    };
    assert_eq!(done, 0);
}

/// Sends packets of these lengths without their ICRCs, filled with 1, 2, 3 …
fn send(tx: &mut TxBatch, target: &Target, lengths: &[usize]) {
    for (n, length) in lengths.iter().enumerate() {
        tx.place()[..*length].fill(n as u8 + 1);
        assert_eq!(tx.add(target, *length), Room::Free);
    }
    assert_eq!(tx.flush(), Room::Free);
    assert_eq!(tx.refused, 0);
}

/// Receives `count` packets; returns the first byte, the identification and the length without the ICRC of each.
fn received(to: &RoceSocket, target: &Target, count: usize) -> Vec<(u8, u16, usize)> {
    let (mut received, mut rx) = (Vec::new(), RxBatch::default());
    let deadline = Instant::now() + TIMEOUT;
    while received.len() < count {
        assert!(Instant::now() < deadline, "received: {received:?}");
        rx.fill(to);
        for datagram in rx.datagrams() {
            let found = icrc::find_identification(&target.flow, unseen(0), datagram.bytes);
            let (packet, identification) = found.unwrap();
            received.push((packet[0], identification, packet.len()));
        }
    }
    received
}

const THREE: [usize; 3] = [40; 3];
/// [`THREE`], each packet sent alone.
const ALONE: [(u8, u16, usize); 3] = [(1, 0, 40), (2, 0, 40), (3, 0, 40)];
/// [`THREE`], as one GSO batch, whose packets the kernel numbers.
const BATCHED: [(u8, u16, usize); 3] = [(1, 0, 40), (2, 1, 40), (3, 2, 40)];

#[test]
fn gso_is_not_tried_again_to_a_peer_that_refused_it() {
    let (from, to) = (socket(), socket());
    let elsewhere = bound("127.0.0.2:0").unwrap();
    let (here, there) = (target(&from, &to), target(&from, &elsewhere));
    let mut tx = TxBatch::new(&from);
    refuse_batches(&from);
    send(&mut tx, &here, &THREE);
    for _ in 0..2 {
        send(&mut tx, &here, &THREE);
        send(&mut tx, &there, &THREE);
    }
    assert_eq!(received(&to, &here, 9), ALONE.repeat(3));
    assert_eq!(received(&elsewhere, &there, 6), BATCHED.repeat(2));
}

/// The kernel joins packets of one length, except that the last may be shorter, and reports this length.
#[test]
fn gro_buffers_are_split_at_the_segment_size() {
    let (from, to) = (socket(), socket());
    let target = target(&from, &to);
    let mut tx = TxBatch::new(&from);
    for (lengths, identifications) in [
        (&[40][..], &[0][..]),
        (&[40, 40, 40], &[0, 1, 2]),
        (&[40, 20], &[0, 1]),
        (&[40, 40, 20], &[0, 1, 2]),
        // A longer packet begins another batch, and so does one after a shorter packet.
        (&[20, 40], &[0, 0]),
        (&[40, 20, 20], &[0, 1, 0]),
        (&[1024, 1024, 4], &[0, 1, 2]),
    ] {
        send(&mut tx, &target, lengths);
        let sent = lengths.iter().zip(identifications).zip(1..);
        let sent: Vec<_> = sent.map(|((length, id), n)| (n, *id, *length)).collect();
        assert_eq!(received(&to, &target, sent.len()), sent);
    }
}

#[test]
fn a_packet_that_does_not_fit_is_sent_after_the_batch() {
    let (from, to) = (socket(), socket());
    let target = target(&from, &to);
    for gone in 0..2 {
        let mut tx = TxBatch::new(&from);
        tx.no_gso.note(to.at().ip());
        for n in 1..=2 {
            tx.place()[..40].fill(n);
            tx.add(&target, 40);
        }
        // Too long for the batch; the socket sent only its first `gone` packets.
        tx.place()[..44].fill(3);
        tx.overflow = Some(Overflow { target, length: 44 });
        tx.keep_from(gone);
        assert_eq!(tx.flush(), Room::Free);
        let left = &[(1, 0, 40), (2, 0, 40), (3, 0, 44)][gone..];
        assert_eq!(received(&to, &target, left.len()), left);
        assert_eq!(tx.count, 0);
    }
}

#[test]
fn packets_are_sent_one_by_one_over_ipv6_too() {
    let (Ok(from), Ok(to)) = (bound("[::1]:0"), bound("[::1]:0")) else {
        let mut stderr = std::io::stderr();
        return writeln!(stderr, "\nNOT RUN: packets at ::1: no IPv6 here").unwrap();
    };
    let target = target(&from, &to);
    let mut tx = TxBatch::new(&from);
    tx.no_gso.note(to.at().ip());
    send(&mut tx, &target, &THREE);
    assert_eq!(received(&to, &target, 3), ALONE);
}
