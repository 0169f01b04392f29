//! Batches, single packets and lanes, by what comes at the other end.

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use adverb_verbs::TrafficClass;

use super::*;
use crate::udp::inbox::Inbox;
use crate::udp::lanes::Opener;
use crate::udp::numbering::{Numbering, tell_by_length};
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

/// The way from one to another: by itself, which all peers know, or by a lane.
fn way(from: &Arc<RoceSocket>, to: &RoceSocket) -> Way {
    Way::new(from.clone(), remote(address(to))).unwrap()
}

fn lane(from: &RoceSocket, to: &RoceSocket) -> Way {
    let by = Opener::default()
        .open(address(from).ip(), remote(address(to)))
        .unwrap();
    way(&Arc::new(by), to)
}

/// Whether the kernel takes batches: not as on an interface that computes no checksums.
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

/// Sends three packets of 40 B, and what is in them.
fn send_three(outbox: &mut Outbox, way: &Way) {
    for n in 1..=3 {
        outbox.place()[..40].fill(n);
        assert_eq!(outbox.add(way, 40), Room::Free);
    }
    assert_eq!(outbox.flush(), Room::Free);
    assert_eq!(outbox.refused, 0);
}

/// Each packet's first byte and the identification that it was sealed with, in the order of coming.
fn came(to: &RoceSocket, way: &Way, count: usize) -> Vec<(u8, u16)> {
    let (mut came, mut inbox) = (Vec::new(), Inbox::default());
    let deadline = Instant::now() + Duration::from_secs(10);
    while came.len() < count {
        assert!(Instant::now() < deadline, "came: {came:?}");
        inbox.fill(to);
        for datagram in inbox.datagrams() {
            let found = icrc::find_identification(&way.target.flow, unseen(0), datagram.bytes);
            let (packet, identification) = found.unwrap();
            came.push((packet[0], identification));
        }
    }
    came
}

/// What `came` of the last packets that left by `way`, so many, in one batch or each for itself.
fn left(way: &Way, leaving: Leaving, count: u8) -> Vec<(u8, u16)> {
    let calls = match leaving {
        Leaving::Together => 1,
        Leaving::Singly => count.into(),
    };
    let numbering = &way.by.numbering;
    let first = numbering.next().wrapping_sub(numbering.after(calls));
    let number = |place: u8| match (leaving, numbering) {
        (Leaving::Singly, Numbering::Zero) => 0,
        _ => first.wrapping_add(place.into()),
    };
    (0..count).map(|place| (place + 1, number(place))).collect()
}

#[test]
fn packets_of_a_batch_that_is_refused_leave_one_by_one() {
    let (from, to) = (socket(), socket());
    for way in [way(&from, &to), lane(&from, &to)] {
        take_batches(&way.by, false);
        send_three(&mut Outbox::new(&from), &way);
        assert_eq!(came(&to, &way, 3), left(&way, Leaving::Singly, 3));
    }
}

#[test]
fn no_batch_is_tried_where_one_was_refused_and_elsewhere_they_are() {
    let (from, to) = (socket(), socket());
    let elsewhere = bound("127.0.0.2:0").unwrap();
    let (here, there) = (way(&from, &to), way(&from, &elsewhere));
    let mut outbox = Outbox::new(&from);
    take_batches(&from, false);
    send_three(&mut outbox, &here);
    for _ in 0..2 {
        send_three(&mut outbox, &here);
        send_three(&mut outbox, &there);
    }
    let singly = [(1, 0), (2, 0), (3, 0)];
    assert_eq!(came(&to, &here, 9), singly.repeat(3));
    // The kernel numbers the datagrams of a batch.
    let together = [(1, 0), (2, 1), (3, 2)];
    assert_eq!(came(&elsewhere, &there, 6), together.repeat(2));
}

#[test]
fn packets_by_a_lane_and_beside_it_leave_in_their_order() {
    let (from, to) = (socket(), socket());
    let (main, lane) = (way(&from, &to), lane(&from, &to));
    let mut outbox = Outbox::new(&from);
    for (n, way) in [(1, &lane), (2, &main), (3, &lane)] {
        outbox.place()[..40].fill(n);
        assert_eq!(outbox.add(way, 40), Room::Free);
    }
    assert_eq!(outbox.flush(), Room::Free);
    let next = lane.by.numbering.next();
    let numbers = [(1, &lane, next.wrapping_sub(2)), (2, &main, 0)];
    for (n, way, number) in numbers
        .into_iter()
        .chain([(3, &lane, next.wrapping_sub(1))])
    {
        assert_eq!(came(&to, way, 1), [(n, number)]);
    }
}

/// What the kernel numbers packets with, by the lengths of what comes.
#[test]
fn packets_are_sealed_with_the_identification_that_they_have() {
    let from = socket();
    let to = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    tell_by_length(&to).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let there = to.local_addr().unwrap();
    let lane = Opener::default()
        .open(address(&from).ip(), remote(there))
        .unwrap();
    for by in [from.clone(), Arc::new(lane)] {
        let (way, mut outbox) = (Way::new(by, remote(there)).unwrap(), Outbox::new(&from));
        for (count, takes) in [(1, true), (3, true), (1, true), (3, false), (1, false)] {
            take_batches(&way.by, takes);
            for _ in 0..count {
                outbox.place()[..300].fill(0);
                outbox.add(&way, 300);
            }
            assert_eq!(outbox.flush(), Room::Free);
            // What has left lies there until something else is built.
            for packet in outbox.bytes.chunks(304).take(count) {
                let sealed = icrc::find_identification(&way.target.flow, unseen(0), packet);
                let lower = sealed.unwrap().1 & 0xff;
                assert_eq!(to.recv(&mut [0; 304]).unwrap(), 1 + usize::from(lower));
            }
        }
        assert_eq!(outbox.refused, 0);
    }
}

#[test]
fn a_batch_whose_lane_has_lost_count_leaves_beside_it() {
    let (from, to) = (socket(), socket());
    let (main, lane) = (way(&from, &to), lane(&from, &to));
    let mut outbox = Outbox::new(&from);
    lane.by.lose_count();
    take_batches(&lane.by, false);
    send_three(&mut outbox, &lane);
    assert_eq!(came(&to, &main, 3), left(&main, Leaving::Singly, 3));
    assert!(Arc::ptr_eq(&outbox.lost[0], &lane.by));
}

#[test]
fn a_lane_outlives_that_nobody_listens_at_its_end() {
    let (from, to) = (socket(), socket());
    let (lane, there) = (lane(&from, &to), address(&to));
    drop(to);
    let mut outbox = Outbox::new(&from);
    (0..3).for_each(|_| send_three(&mut outbox, &lane));
    let to = RoceSocket::bind(there).unwrap();
    send_three(&mut outbox, &lane);
    // The last refusal comes with the first batch that somebody hears.
    assert_eq!(came(&to, &lane, 3), left(&lane, Leaving::Singly, 3));
    send_three(&mut outbox, &lane);
    assert_eq!(came(&to, &lane, 3), left(&lane, Leaving::Together, 3));
}

#[test]
fn a_packet_that_no_room_was_for_leaves_behind_the_batch() {
    let (from, to) = (socket(), socket());
    let way = way(&from, &to);
    for gone in 0..2 {
        let mut outbox = Outbox::new(&from);
        outbox.refusing.note(address(&to).ip());
        for n in 1..=2 {
            outbox.place()[..40].fill(n);
            outbox.add(&way, 40);
        }
        // Too long for the batch; and the socket took only the first `gone` packets of that.
        outbox.place()[..44].fill(3);
        outbox.held = Some(Held {
            way: way.clone(),
            length: 44,
        });
        outbox.keep_from(gone);
        assert_eq!(outbox.flush(), Room::Free);
        let left = &[(1, 0), (2, 0), (3, 0)][gone..];
        assert_eq!(came(&to, &way, left.len()), left);
        assert_eq!(outbox.count, 0);
    }
}

#[test]
fn packets_leave_one_by_one_over_ipv6_too() {
    let (Ok(from), Ok(to)) = (bound("[::1]:0"), bound("[::1]:0")) else {
        let mut stderr = std::io::stderr();
        return writeln!(stderr, "NOT RUN: packets at ::1: no IPv6 here").unwrap();
    };
    let from = Arc::new(from);
    for way in [way(&from, &to), lane(&from, &to)] {
        let mut outbox = Outbox::new(&from);
        outbox.refusing.note(address(&to).ip());
        send_three(&mut outbox, &way);
        assert_eq!(came(&to, &way, 3), left(&way, Leaving::Singly, 3));
    }
}
