//! A peer that dies, stops or is replaced by another, a link that is cut, full sockets, and peers that do
//! not exist: requests complete with the status of the specification, in time.

#![allow(unsafe_code)]

mod common;

use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use adverb_softnic::SoftQp;
use adverb_units::Bytes;
use adverb_verbs::{
    Context, MemoryRegion, ModifyQpError, Operation, PathMtu, PortNum, QpAttr, QpCaps, QpInit,
    QpState, QpType, Qpn, QueuePair, RemoteAddress, SendFlags, SendRequest, WcStatus,
    WorkCompletion, WrId,
};
use common::network::{FIRST_PSN, How, Network, connect_to, gid_of};
use common::peer::{self, Peer};
use common::{
    End, NOBODY, Random, connect_uc, isolated, isolated_with, not_run, to_init, wait_at_most,
    wait_until, with_another_user,
};

const MEMORY: Bytes = Bytes::mib(1);
const LENGTH: u32 = 16 << 10;

/// Gives up within about a second: 4 tries of 268 ms.
const HASTY: How = How {
    mtu: PathMtu::B1024,
    timeout: 14,
    retries: 3,
};
/// Does not give up before 8 s.
const PATIENT: How = How {
    mtu: PathMtu::B1024,
    timeout: 16,
    retries: 7,
};

/// On the loopback, and between two namespaces where that can be had.
fn networks(test: &str, net: u8) -> Vec<Network> {
    let mut networks = vec![Network::loopback(net)];
    networks.extend(wire(test));
    networks
}

fn wire(test: &str) -> Option<Network> {
    Network::wire(test)
        .map_err(|why| not_run(&format!("{test} between network namespaces: {why}")))
        .ok()
}

/// This side, connected to a peer's queue pairs.
struct Side {
    end: End,
    qps: Vec<SoftQp>,
    to: RemoteAddress,
}

impl Side {
    fn new(network: &Network, peer: &mut Peer, how: How) -> Self {
        let end = network.end(0, MEMORY);
        let qps: Vec<SoftQp> = peer.qpns.iter().map(|_| end.qp()).collect();
        for (qp, dest) in qps.iter().zip(&peer.qpns) {
            connect_to(qp, network.address(1), *dest, how);
        }
        peer.connect(network, &qps, how);
        let to = peer.memory;
        Side { end, qps, to }
    }

    /// A WRITE of the first bytes of this side's memory to `offset` of the peer's.
    fn write(&self, qp: usize, id: u64, (offset, length): (u64, u32)) {
        let sges = [self.end.mr.sge(0, length).unwrap()];
        let to = RemoteAddress {
            addr: self.to.addr + offset,
            ..self.to
        };
        let request = SendRequest::new(WrId(id), Operation::RdmaWrite(to), &sges);
        let request = request.with_flags(SendFlags::SIGNALED);
        self.qps[qp].post_send(&[request]).unwrap();
    }

    /// Reads the peer's memory back.
    fn read(&self, (offset, length): (u64, u32)) -> Vec<u8> {
        let half = MEMORY.get() / 2;
        let sges = [self.end.mr.sge(half, length).unwrap()];
        let from = RemoteAddress {
            addr: self.to.addr + offset,
            ..self.to
        };
        let request = SendRequest::new(WrId(99), Operation::RdmaRead(from), &sges);
        let request = request.with_flags(SendFlags::SIGNALED);
        self.qps[0].post_send(&[request]).unwrap();
        assert_eq!(self.completion().status, WcStatus::Success);
        let mut bytes = vec![0; length as usize];
        self.end.mr.read(half, &mut bytes).unwrap();
        bytes
    }

    /// The next completion, which may take longer than the longest retry time here.
    fn completion(&self) -> WorkCompletion {
        let mut found = None;
        let came = wait_until(|| {
            found = found.take().or_else(|| self.next());
            found.is_some()
        });
        assert!(came, "a request has no end: {:?}", self.counters());
        found.expect("it came")
    }

    fn next(&self) -> Option<WorkCompletion> {
        let mut one = [WorkCompletion::default()];
        let count = adverb_verbs::CompletionQueue::poll(&self.end.cq, &mut one).unwrap();
        (count == 1).then_some(one[0])
    }

    fn counters(&self) -> adverb_verbs::Counters {
        self.end.context.counters()
    }

    fn counter(&self, name: &str) -> u64 {
        self.counters()[name]
    }

    /// The outcomes of requests until all of those in flight have ended in one.
    fn outcomes(&self, count: u64) -> Vec<WcStatus> {
        (0..count).map(|_| self.completion().status).collect()
    }
}

/// As many requests as there were end well, one exceeds its retries, the rest is flushed.
#[track_caller]
fn check_gave_up(outcomes: &[WcStatus]) {
    let well = outcomes.iter().take_while(|s| **s == WcStatus::Success);
    let rest = &outcomes[well.count()..];
    assert_eq!(rest.first(), Some(&WcStatus::RetryExcErr), "{outcomes:?}");
    let mut flushed = rest[1..].iter();
    assert!(flushed.all(|s| *s == WcStatus::WrFlushErr), "{outcomes:?}");
}

const KILLED: &str = "a_peer_killed_amid_a_stream_exceeds_the_retries";

#[test]
fn a_peer_killed_amid_a_stream_exceeds_the_retries() {
    isolated_with(KILLED, peer::play, || {
        for network in networks("killed", 41) {
            let mut peer = Peer::start(&network, MEMORY, 1);
            let side = Side::new(&network, &mut peer, HASTY);
            const DEPTH: u64 = 32;
            (0..DEPTH).for_each(|id| side.write(0, id, (0, LENGTH)));
            for id in 0..100 {
                assert_eq!(side.completion().status, WcStatus::Success);
                side.write(0, DEPTH + id, (0, LENGTH));
            }
            peer.kill();
            let begin = Instant::now();
            // All that was in flight may have ended before the peer did; a request after that cannot end well.
            let mut outcomes = side.outcomes(1);
            side.write(0, DEPTH + 100, (0, LENGTH));
            outcomes.extend(side.outcomes(DEPTH));
            check_gave_up(&outcomes);
            let elapsed = begin.elapsed();
            assert!(elapsed < Duration::from_secs(60), "{elapsed:?}");
            assert_eq!(side.qps[0].state(), QpState::Err);
            drop(side);
            network.tidy();
        }
    });
}

const MENDED: &str = "a_wire_that_is_mended_in_time_costs_nothing_but_time";

#[test]
fn a_wire_that_is_mended_in_time_costs_nothing_but_time() {
    isolated_with(MENDED, peer::play, || {
        let Some(network) = wire("mended") else {
            return;
        };
        let mut peer = Peer::start(&network, MEMORY, 1);
        let side = Side::new(&network, &mut peer, PATIENT);
        let bytes = Random(5).bytes(LENGTH as usize);
        side.end.mr.write(0, &bytes).unwrap();
        const COUNT: u64 = 16;
        let place = |id: u64| (id * u64::from(LENGTH), LENGTH);
        (0..COUNT / 2).for_each(|id| side.write(0, id, place(id)));
        assert_eq!(side.completion().status, WcStatus::Success);
        network.set_wire("down");
        (COUNT / 2..COUNT).for_each(|id| side.write(0, id, place(id)));
        // Nobody polls: the engine waits and tries again.
        let is_felt = || side.counter("ack_timeout") > 0;
        assert!(wait_until(is_felt));
        network.set_wire("up");
        let outcomes = side.outcomes(COUNT - 1);
        assert!(
            outcomes.iter().all(|s| *s == WcStatus::Success),
            "{outcomes:?}"
        );
        for id in 0..COUNT {
            assert!(side.read(place(id)) == bytes, "{id}");
        }
        end_of(side, peer, &network);
    });
}

const CUT: &str = "a_wire_that_stays_cut_exceeds_the_retries_and_serves_again_later";

#[test]
fn a_wire_that_stays_cut_exceeds_the_retries_and_serves_again_later() {
    isolated_with(CUT, peer::play, || {
        let Some(network) = wire("cut") else {
            return;
        };
        let mut peer = Peer::start(&network, MEMORY, 1);
        let mut side = Side::new(&network, &mut peer, HASTY);
        side.write(0, 1, (0, LENGTH));
        assert_eq!(side.completion().status, WcStatus::Success);
        network.set_wire("down");
        (0..4).for_each(|id| side.write(0, id, (0, LENGTH)));
        check_gave_up(&side.outcomes(4));
        assert_eq!(side.qps[0].state(), QpState::Err);
        peer.kill();
        network.set_wire("up");
        let mut peer = Peer::start(&network, MEMORY, 1);
        side.qps[0].modify(&QpAttr::to(QpState::Reset)).unwrap();
        connect_to(&side.qps[0], network.address(1), peer.qpns[0], PATIENT);
        peer.connect(&network, &side.qps, PATIENT);
        side.to = peer.memory;
        side.write(0, 7, (0, LENGTH));
        assert_eq!(side.completion().status, WcStatus::Success);
        end_of(side, peer, &network);
    });
}

/// Leaves nothing behind.
fn end_of(side: Side, peer: Peer, network: &Network) {
    drop(side);
    peer.kill();
    network.tidy();
}

const STOPPED: &str = "packets_lost_by_a_full_socket_of_a_stopped_peer_are_sent_again";

#[test]
fn packets_lost_by_a_full_socket_of_a_stopped_peer_are_sent_again() {
    isolated_with(STOPPED, peer::play, || {
        const QPS: usize = 24;
        let each = MEMORY.get() / 2;
        for network in networks("stopped", 42) {
            let memory = Bytes::new(each * QPS as u64);
            let mut peer = Peer::start(&network, memory, QPS);
            let side = Side::new(&network, &mut peer, PATIENT);
            let bytes = Random(6).bytes(each as usize);
            side.end.mr.write(0, &bytes).unwrap();
            let overflows = || network.on(1, udp_receive_errors);
            let before = overflows();
            peer.stop();
            // Each queue pair has as much in flight as it may; all together more than a socket holds.
            for i in 0..QPS {
                side.write(i, i as u64, (i as u64 * each, each as u32));
            }
            let is_full = || {
                assert!(side.next().is_none(), "nobody acknowledges");
                overflows() > before
            };
            let overflowed = wait_at_most(Duration::from_secs(4), is_full);
            peer.go_on();
            if !overflowed {
                not_run("the overflow of a socket: it holds all that may be under way");
            }
            let outcomes = side.outcomes(QPS as u64);
            assert_eq!(outcomes, [WcStatus::Success; QPS]);
            for i in 0..QPS as u64 {
                assert!(side.read((i * each, each as u32)) == bytes, "{i}");
            }
            end_of(side, peer, &network);
        }
    });
}

/// Datagrams that found a full socket in this network namespace.
fn udp_receive_errors() -> u64 {
    let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let column = names.split(' ').position(|name| name == "RcvbufErrors");
    values
        .split(' ')
        .nth(column.unwrap())
        .unwrap()
        .parse()
        .unwrap()
}

const SLOW: &str = "a_socket_that_takes_no_more_for_a_while_loses_nothing";

#[test]
fn a_socket_that_takes_no_more_for_a_while_loses_nothing() {
    isolated_with(SLOW, peer::play, || {
        let Some(network) = wire("slow") else {
            return;
        };
        if let Err(why) = network.slow_down("100mbit") {
            return not_run(&format!("{SLOW}: {why}"));
        }
        let each = MEMORY.get() / 2;
        let mut peer = Peer::start(&network, Bytes::mib(4), 8);
        let side = Side::new(&network, &mut peer, PATIENT);
        let bytes = Random(7).bytes(each as usize);
        side.end.mr.write(0, &bytes).unwrap();
        (0..8).for_each(|i| side.write(i, i as u64, (i as u64 * each, each as u32)));
        assert_eq!(side.outcomes(8), [WcStatus::Success; 8]);
        for i in 0..8 {
            assert!(side.read((i * each, each as u32)) == bytes, "{i}");
        }
        end_of(side, peer, &network);
    });
}

const FAIR: &str = "queue_pairs_share_a_socket_that_takes_no_more_for_a_while";

/// The queue pair that had found the socket full was always the next to send.
#[test]
fn queue_pairs_share_a_socket_that_takes_no_more_for_a_while() {
    isolated(FAIR, || {
        let Some(network) = wire("fair") else {
            return;
        };
        if let Err(why) = network.slow_down("100mbit") {
            return not_run(&format!("{FAIR}: {why}"));
        }
        const QPS: usize = 3;
        const EACH: usize = 32;
        let (here, there) = (network.end(0, MEMORY), network.end(1, MEMORY));
        let qps = [(); QPS].map(|()| {
            let init = QpInit::new(QpType::Uc, &here.cq, QpCaps::default());
            let qp = here.context.create_qp(&here.pd, &init).unwrap();
            let to = (network.address(1), there.qp().qpn());
            connect_uc(&qp, to, FIRST_PSN, PathMtu::B1024);
            qp
        });
        let sges = [here.mr.sge(0, 256 << 10).unwrap()];
        let request = SendRequest::new(WrId(1), Operation::RdmaWrite(there.mr.remote(0)), &sges);
        let request = request.with_flags(SendFlags::SIGNALED);
        for _ in 0..EACH {
            qps.iter().for_each(|qp| qp.post_send(&[request]).unwrap());
        }
        let mut ended = Vec::new();
        assert!(wait_until(|| {
            ended.extend(here.poll());
            ended.len() == EACH * QPS
        }));
        // When one has sent all of its messages, the others have sent most of theirs.
        let sent = |before: usize, qp: &SoftQp| {
            let ended = ended[..before].iter();
            ended.filter(|wc| wc.qp_num == qp.qpn()).count()
        };
        let first = (1..=ended.len()).find(|n| qps.iter().any(|qp| sent(*n, qp) == EACH));
        let each = qps.each_ref().map(|qp| sent(first.unwrap(), qp));
        assert!(each.iter().all(|n| *n >= EACH * 3 / 4), "{each:?}");
    });
}

const AGAIN: &str = "packets_to_a_process_that_is_gone_do_nothing_to_the_next_one_at_its_address";

#[test]
fn packets_to_a_process_that_is_gone_do_nothing_to_the_next_one_at_its_address() {
    isolated_with(AGAIN, peer::play, || {
        for network in networks("again", 43) {
            let mut first = Peer::start(&network, MEMORY, 1);
            let old = Side::new(&network, &mut first, PATIENT);
            old.end.mr.write(0, &[0xee; 8]).unwrap();
            let mut numbers = vec![first.qpns[0]];
            first.kill();
            // It retransmits for seconds, while two other ports use the address one after the other.
            (0..4).for_each(|id| old.write(0, id, (0, LENGTH)));
            for _ in 0..2 {
                let mut next = Peer::start(&network, MEMORY, 1);
                numbers.push(next.qpns[0]);
                let side = Side::new(&network, &mut next, PATIENT);
                let tries = old.counter("ack_timeout");
                let tried = || old.counter("ack_timeout") > tries + 1;
                assert!(wait_until(tried));
                assert_eq!(next.word(), 0, "of an earlier process's peer");
                assert!(next.counter("drop_unknown_queue_pair") > 0);
                side.end.mr.write(0, &[3; 8]).unwrap();
                side.write(0, 9, (0, 8));
                assert_eq!(side.completion().status, WcStatus::Success);
                assert_eq!(next.word(), u64::from_ne_bytes([3; 8]));
                drop(side);
                next.kill();
            }
            assert!(numbers.iter().any(|n| *n != numbers[0]), "{numbers:?}");
            check_gave_up(&old.outcomes(4));
            drop(old);
            network.tidy();
        }
    });
}

/// A queue pair that sends to where nobody is.
fn to_nobody(end: &End, to: IpAddr, qpn: u32) -> SoftQp {
    let qp = end.qp();
    let address = adverb_verbs::AddressVector {
        dgid: gid_of(to),
        ..end.local_address()
    };
    connect_to(&qp, address, Qpn::new(qpn).unwrap(), HASTY);
    qp
}

#[test]
fn a_queue_pair_or_address_that_nobody_has_exceeds_the_retries() {
    let network = Network::loopback(44);
    let (end, _other) = (network.end(0, MEMORY), network.end(1, MEMORY));
    // No such queue pair; no such process; no such host; no way at all.
    let loopback = |last| IpAddr::V4(std::net::Ipv4Addr::new(127, 9, 44, last));
    let cases = [
        (network.ip(1), 9),
        (network.ip(1), 700 << 14 | 9),
        (loopback(77), 9),
        ("240.0.0.1".parse().unwrap(), 9),
        (network.ip(0), 700 << 14 | 9),
    ];
    for (to, qpn) in cases {
        let qp = to_nobody(&end, to, qpn);
        let sges = [end.mr.sge(0, 8).unwrap()];
        let request = SendRequest::new(WrId(1), Operation::Send, &sges);
        let request = request.with_flags(SendFlags::SIGNALED);
        qp.post_send(&[request]).unwrap();
        let ended = end.poll_one("to nobody");
        assert_eq!(ended.status, WcStatus::RetryExcErr, "{to} QP {qpn:#x}");
    }
}

#[test]
fn a_path_mtu_beyond_the_interface_is_refused() {
    let Some(network) = wire("mtu") else {
        return;
    };
    let end = network.end(0, MEMORY);
    let mtu = end.context.port(PortNum::ONE).unwrap().active_mtu;
    assert_eq!(mtu, PathMtu::B1024, "a wire takes 1500 B");
    let qp = end.qp();
    to_init(&qp);
    let dest = Qpn::new(9).unwrap();
    let rtr = QpAttr::to_rtr(network.address(1), dest, FIRST_PSN, PathMtu::B4096);
    let refused = qp.modify(&rtr).unwrap_err();
    let is_named = matches!(
        refused,
        ModifyQpError::AttributeRange {
            attribute: "path_mtu",
            value: 4096,
            max: 1024,
            ..
        }
    );
    assert!(is_named, "{refused}");
}

/// Writes to a peer at the own address that shares no memory with this process, and reads it back.
fn check_goes_by_udp(network: &Network, mut peer: Peer) {
    let side = Side::new(network, &mut peer, PATIENT);
    let bytes = Random(8).bytes(LENGTH as usize);
    side.end.mr.write(0, &bytes).unwrap();
    side.write(0, 1, (0, LENGTH));
    assert_eq!(side.completion().status, WcStatus::Success);
    assert!(side.read((0, LENGTH)) == bytes);
    assert!(side.counter("sent_pkts") > 0, "{:?}", side.counters());
    assert!(peer.counter("sent_pkts") > 0);
    drop(side);
    peer.kill();
}

const ELSEWHERE: &str = "a_process_at_the_own_address_with_other_shared_memory_is_reached_by_udp";

#[test]
fn a_process_at_the_own_address_with_other_shared_memory_is_reached_by_udp() {
    isolated_with(ELSEWHERE, peer::play, || {
        let place = tempfile::tempdir().unwrap();
        let network = Network::one_address(45);
        let elsewhere = || {
            Peer::start_as(&network, MEMORY, 1, |command| {
                command.env("ADVERB_SHM", place.path())
            })
        };
        // The peer has the first slot of the address, then the second.
        check_goes_by_udp(&network, elsewhere());
        let here = network.end(0, MEMORY);
        check_goes_by_udp(&network, elsewhere());
        drop(here);
    });
}

const STRANGER: &str = "another_users_process_at_the_own_address_is_reached_by_udp";

#[test]
fn another_users_process_at_the_own_address_is_reached_by_udp() {
    with_another_user(STRANGER, peer::play, || {
        let network = Network::one_address(46);
        let peer = Peer::start_as(&network, MEMORY, 1, |command| command.uid(NOBODY));
        check_goes_by_udp(&network, peer);
    });
}
