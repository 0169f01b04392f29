//! Sends batches and single packets through both kinds of socket, and checks what arrives.

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use adverb_verbs::TrafficClass;

use super::*;
use crate::udp::ip_id::{IpId, report_ip_id_by_length};
use crate::udp::peer_sockets::SocketOpener;
use crate::udp::rx_batch::RxBatch;
use crate::udp::socket::Remote;

fn bound(at: &str) -> io::Result<RoceSocket> {
    RoceSocket::bind(at.parse().unwrap())
}

/// A socket of the loopback device.
fn socket() -> Arc<RoceSocket> {
    Arc::new(bound("127.0.0.1:0").unwrap())
}

fn address(socket: &RoceSocket) -> SocketAddr {
    let name = rustix::net::getsockname(socket.as_fd()).unwrap();
    name.try_into().unwrap()
}

fn remote(to: SocketAddr) -> Remote {
    let class = TrafficClass(0);
    Remote { to, class }
}

/// Returns the route through `from` itself.
fn route(from: &Arc<RoceSocket>, to: &RoceSocket) -> Route {
    Route::new(from.clone(), remote(address(to))).unwrap()
}

fn connected(from: &RoceSocket, to: &RoceSocket) -> Route {
    let socket = SocketOpener::default()
        .open(address(from).ip(), remote(address(to)))
        .unwrap();
    route(&Arc::new(socket), to)
}

/// Allows or forbids GSO, as an interface that computes checksums or does not.
fn take_batches(socket: &RoceSocket, takes: bool) {
    let unchecked = libc::c_int::from(!takes);
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

/// Sends three packets of 40 B, filled with 1, 2 and 3.
fn send_three(tx: &mut TxBatch, route: &Route) {
    for n in 1..=3 {
        tx.place()[..40].fill(n);
        assert_eq!(tx.add(route, 40), Room::Free);
    }
    assert_eq!(tx.flush(), Room::Free);
    assert_eq!(tx.refused, 0);
}

/// Receives `count` packets; returns the first byte and identification of each, in order.
fn came(to: &RoceSocket, route: &Route, count: usize) -> Vec<(u8, u16)> {
    let (mut came, mut rx) = (Vec::new(), RxBatch::default());
    let deadline = Instant::now() + Duration::from_secs(10);
    while came.len() < count {
        assert!(Instant::now() < deadline, "came: {came:?}");
        rx.fill(to);
        for datagram in rx.datagrams() {
            let found = icrc::find_identification(&route.target.flow, unseen(0), datagram.bytes);
            let (packet, identification) = found.unwrap();
            came.push((packet[0], identification));
        }
    }
    came
}

/// Returns what [`came`] should return for the last `count` packets that were sent by `route`.
fn left(route: &Route, gso: Gso, count: u8) -> Vec<(u8, u16)> {
    let calls = match gso {
        Gso::On => 1,
        Gso::Off => count.into(),
    };
    let ip_id = &route.socket.ip_id;
    let first = ip_id.next().wrapping_sub(ip_id.after(calls));
    let number = |place: u8| match (gso, ip_id) {
        (Gso::Off, IpId::Zero) => 0,
        _ => first.wrapping_add(place.into()),
    };
    (0..count).map(|place| (place + 1, number(place))).collect()
}

#[test]
fn packets_of_a_refused_batch_are_sent_one_by_one() {
    let (from, to) = (socket(), socket());
    for route in [route(&from, &to), connected(&from, &to)] {
        take_batches(&route.socket, false);
        send_three(&mut TxBatch::new(&from), &route);
        assert_eq!(came(&to, &route, 3), left(&route, Gso::Off, 3));
    }
}

#[test]
fn gso_is_not_tried_again_to_a_peer_that_refused_it() {
    let (from, to) = (socket(), socket());
    let elsewhere = bound("127.0.0.2:0").unwrap();
    let (here, there) = (route(&from, &to), route(&from, &elsewhere));
    let mut tx = TxBatch::new(&from);
    take_batches(&from, false);
    send_three(&mut tx, &here);
    for _ in 0..2 {
        send_three(&mut tx, &here);
        send_three(&mut tx, &there);
    }
    let singly = [(1, 0), (2, 0), (3, 0)];
    assert_eq!(came(&to, &here, 9), singly.repeat(3));
    // The kernel numbers the datagrams of a GSO batch.
    let together = [(1, 0), (2, 1), (3, 2)];
    assert_eq!(came(&elsewhere, &there, 6), together.repeat(2));
}

#[test]
fn packets_through_two_sockets_keep_their_order() {
    let (from, to) = (socket(), socket());
    let (main, connected) = (route(&from, &to), connected(&from, &to));
    let mut tx = TxBatch::new(&from);
    for (n, route) in [(1, &connected), (2, &main), (3, &connected)] {
        tx.place()[..40].fill(n);
        assert_eq!(tx.add(route, 40), Room::Free);
    }
    assert_eq!(tx.flush(), Room::Free);
    let next = connected.socket.ip_id.next();
    let numbers = [(1, &connected, next.wrapping_sub(2)), (2, &main, 0)];
    for (n, route, number) in numbers
        .into_iter()
        .chain([(3, &connected, next.wrapping_sub(1))])
    {
        assert_eq!(came(&to, route, 1), [(n, number)]);
    }
}

/// Learns the kernel's identifications from the lengths of the received datagrams.
#[test]
fn icrcs_cover_the_identification_that_the_kernel_uses() {
    let from = socket();
    let to = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    report_ip_id_by_length(&to).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let there = to.local_addr().unwrap();
    let connected = SocketOpener::default()
        .open(address(&from).ip(), remote(there))
        .unwrap();
    for socket in [from.clone(), Arc::new(connected)] {
        let (route, mut tx) = (
            Route::new(socket, remote(there)).unwrap(),
            TxBatch::new(&from),
        );
        for (count, takes) in [(1, true), (3, true), (1, true), (3, false), (1, false)] {
            take_batches(&route.socket, takes);
            for _ in 0..count {
                tx.place()[..300].fill(0);
                tx.add(&route, 300);
            }
            assert_eq!(tx.flush(), Room::Free);
            // The sent packets remain in the buffer until the next one is built.
            for packet in tx.bytes.chunks(304).take(count) {
                let sealed = icrc::find_identification(&route.target.flow, unseen(0), packet);
                let lower = sealed.unwrap().1 & 0xff;
                assert_eq!(to.recv(&mut [0; 304]).unwrap(), 1 + usize::from(lower));
            }
        }
        assert_eq!(tx.refused, 0);
    }
}

#[test]
fn a_batch_whose_identification_is_unknown_uses_the_main_socket() {
    let (from, to) = (socket(), socket());
    let (main, connected) = (route(&from, &to), connected(&from, &to));
    let mut tx = TxBatch::new(&from);
    connected.socket.mute_probe();
    take_batches(&connected.socket, false);
    send_three(&mut tx, &connected);
    assert_eq!(came(&to, &main, 3), left(&main, Gso::Off, 3));
    assert!(Arc::ptr_eq(&tx.lost[0], &connected.socket));
}

#[test]
fn a_connected_socket_survives_a_peer_that_does_not_listen() {
    let (from, to) = (socket(), socket());
    let (connected, there) = (connected(&from, &to), address(&to));
    drop(to);
    let mut tx = TxBatch::new(&from);
    (0..3).for_each(|_| send_three(&mut tx, &connected));
    let to = RoceSocket::bind(there).unwrap();
    send_three(&mut tx, &connected);
    // The last refusal is reported to the first batch that is received.
    assert_eq!(came(&to, &connected, 3), left(&connected, Gso::Off, 3));
    send_three(&mut tx, &connected);
    assert_eq!(came(&to, &connected, 3), left(&connected, Gso::On, 3));
}

#[test]
fn a_packet_that_does_not_fit_is_sent_after_the_batch() {
    let (from, to) = (socket(), socket());
    let route = route(&from, &to);
    for gone in 0..2 {
        let mut tx = TxBatch::new(&from);
        tx.no_gso.note(address(&to).ip());
        for n in 1..=2 {
            tx.place()[..40].fill(n);
            tx.add(&route, 40);
        }
        // Too long for the batch, of which the socket took only the first `gone` packets.
        tx.place()[..44].fill(3);
        tx.held = Some(Held {
            route: route.clone(),
            length: 44,
        });
        tx.keep_from(gone);
        assert_eq!(tx.flush(), Room::Free);
        let left = &[(1, 0), (2, 0), (3, 0)][gone..];
        assert_eq!(came(&to, &route, left.len()), left);
        assert_eq!(tx.count, 0);
    }
}

#[test]
fn packets_are_sent_one_by_one_over_ipv6_too() {
    let (Ok(from), Ok(to)) = (bound("[::1]:0"), bound("[::1]:0")) else {
        let mut stderr = std::io::stderr();
        return writeln!(stderr, "\nNOT RUN: packets at ::1: no IPv6 here").unwrap();
    };
    let from = Arc::new(from);
    for route in [route(&from, &to), connected(&from, &to)] {
        let mut tx = TxBatch::new(&from);
        tx.no_gso.note(address(&to).ip());
        send_three(&mut tx, &route);
        assert_eq!(came(&to, &route, 3), left(&route, Gso::Off, 3));
    }
}
