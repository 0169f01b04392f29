//! The UDP port: operations, network faults and forged packets. Each test uses other loopback addresses.

#![allow(unsafe_code)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use adverb_softnic::{SoftDevice, SoftQp};
use adverb_units::Bytes;
use adverb_verbs::{
    AddressVector, Comparison, CompletionQueue, Context, CreateError, Device, GidType, Imm,
    LinkLayer, MemoryRegion, NotifyOn, OpenError, Operation, PathMtu, PortNum, Psn, QpAttr, QpCaps,
    QpState, QpType, Qpn, QueuePair, RecvRequest, RemoteAddress, Rkey, RnrTimer, SendFlags,
    SendRequest, WcStatus, WrId,
};
use adverb_wire::frame::{Addresses, Flow};
use adverb_wire::ipv4::Unseen;
use adverb_wire::{Bth, Extension, Opcode, PacketHeaders, Reth, bth, icrc};
use common::network::{FIRST_PSN, Faults, How, connect_error, connect_to};
use common::{Address, End, Random, child, isolated, isolated_with, unused_qpn, wait_until};

const MEMORY: Bytes = Bytes::mib(1);
/// Offset of the memory that each side sends from and receives to. The peer writes and reads below.
const OWN: u64 = 512 << 10;

fn ip(net: u8, host: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 7, net, host))
}

fn end(net: u8, host: u8) -> End {
    End::of(SoftDevice::at(ip(net, host)), MEMORY)
}

const USUAL: How = How {
    mtu: PathMtu::B4096,
    timeout: 14,
    retries: 7,
};

/// Two ends with a connection.
struct Pair {
    a: End,
    b: End,
    qp_a: SoftQp,
    qp_b: SoftQp,
}

impl Pair {
    fn new(net: u8, how: How) -> Self {
        Pair::of((end(net, 1), end(net, 2)), how)
    }

    fn of((a, b): (End, End), how: How) -> Self {
        let (qp_a, qp_b) = (a.qp(), b.qp());
        connect_to(&qp_a, b.local_address(), qp_b.qpn(), how);
        connect_to(&qp_b, a.local_address(), qp_a.qpn(), how);
        Pair { a, b, qp_a, qp_b }
    }

    /// A's request, signaled, with one piece at `OWN`.
    fn post(&self, id: u64, operation: Operation, length: u32) {
        let sges = [self.a.mr.sge(OWN, length).unwrap()];
        let request = SendRequest::new(WrId(id), operation, &sges);
        let request = request.with_flags(SendFlags::SIGNALED);
        self.qp_a.post_send(&[request]).unwrap();
    }

    /// The same, to its end.
    #[track_caller]
    fn carry_out(&self, operation: Operation, length: u32) {
        self.post(1, operation, length);
        let completion = self.a.poll_one("of the request");
        assert_eq!(completion.status, WcStatus::Success, "{operation:?}");
    }

    fn post_receive(&self, length: u32) {
        let sges = [self.b.mr.sge(OWN, length).unwrap()];
        self.qp_b
            .post_recv(&[RecvRequest::new(WrId(2), &sges)])
            .unwrap();
    }
}

fn read(end: &End, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    end.mr.read(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn every_operation_moves_its_bytes_around_the_path_mtu() {
    let mut random = Random(7);
    for (net, mtu) in [(1, PathMtu::B256), (2, PathMtu::B1024), (3, PathMtu::B4096)] {
        let pair = Pair::new(net, How { mtu, ..USUAL });
        let (a, b) = (&pair.a, &pair.b);
        let there = b.mr.remote(64);
        let m = mtu.bytes().as_usize();
        for length in [0, 1, m - 1, m, m + 1, 2 * m, 3 * m + 5, 70 * m + 1] {
            let bytes = random.bytes(length);
            let count = length as u32;
            a.mr.write(OWN, &bytes).unwrap();
            for imm in [None, Some(Imm(0xfeed))] {
                pair.post_receive(count);
                let send = imm.map_or(Operation::Send, Operation::SendWithImm);
                pair.carry_out(send, count);
                let arrived = b.poll_one("of the receive");
                assert_eq!((arrived.byte_len, arrived.imm), (count, imm));
                assert!(read(b, OWN, length) == bytes, "{length} B sent");
            }
            pair.carry_out(Operation::RdmaWrite(there), count);
            assert!(read(b, 64, length) == bytes, "{length} B written");
            pair.post_receive(0);
            pair.carry_out(Operation::RdmaWriteWithImm(b.mr.remote(128), Imm(9)), count);
            let arrived = b.poll_one("of the immediate data");
            assert_eq!((arrived.byte_len, arrived.imm), (count, Some(Imm(9))));
            assert!(read(b, 128, length) == bytes, "{length} B written");
            let other = random.bytes(length);
            b.mr.write(64, &other).unwrap();
            pair.carry_out(Operation::RdmaRead(there), count);
            assert!(read(a, OWN, length) == other, "{length} B read");
        }
        check_atomics(&pair);
        let counters = a.context.counters();
        assert_eq!(counters["send_err"], 0, "{counters:?}");
    }
}

fn check_atomics(pair: &Pair) {
    let (a, b) = (&pair.a, &pair.b);
    let word = |end: &End, at| u64::from_ne_bytes(read(end, at, 8).try_into().unwrap());
    b.mr.write(64, &40u64.to_ne_bytes()).unwrap();
    pair.carry_out(Operation::FetchAdd(b.mr.remote(64), 2), 8);
    assert_eq!((word(a, OWN), word(b, 64)), (40, 42));
    for (expected, found, left) in [(41, 42, 42), (42, 42, 7)] {
        let comparison = Comparison { expected, new: 7 };
        pair.carry_out(Operation::CompareSwap(b.mr.remote(64), comparison), 8);
        assert_eq!((word(a, OWN), word(b, 64)), (found, left));
    }
}

/// The GSO segment size of the socket changes with the length of the packets.
#[test]
fn long_messages_among_many_short_ones_are_not_lost() {
    let pair = Pair::new(40, USUAL);
    let (a, b) = (&pair.a, &pair.b);
    let mut random = Random(11);
    let there = b.mr.remote(64);
    for (rounds, length) in [(20, 64), (40, 300_001), (80, 5000), (160, 1), (20, 100_000)] {
        for _ in 0..rounds {
            pair.post_receive(64);
            pair.carry_out(Operation::Send, 64);
            b.poll_one("of the receive");
        }
        let bytes = random.bytes(length);
        a.mr.write(OWN, &bytes).unwrap();
        pair.carry_out(Operation::RdmaWrite(there), length as u32);
        assert!(read(b, 64, length) == bytes, "{length} B written");
        let other = random.bytes(length);
        b.mr.write(64, &other).unwrap();
        pair.carry_out(Operation::RdmaRead(there), length as u32);
        assert!(read(a, OWN, length) == other, "{length} B read");
    }
    for end in [a, b] {
        let counters = end.context.counters();
        assert_eq!(counters["drop_icrc_err"], 0, "{counters:?}");
    }
}

/// A network with all kinds of faults.
const BAD_NETWORK: Faults = Faults {
    lost: 30,
    repeated: 30,
    delayed: 30,
    damaged: 30,
};

#[test]
fn operations_succeed_on_a_bad_network() {
    let mut random = Random::from_env("operations_succeed_on_a_bad_network");
    let how = How {
        mtu: PathMtu::B1024,
        timeout: 13, // 34 ms: this machine may have other work
        retries: 7,
    };
    let pair = Pair::new(4, how);
    let (a, b) = (&pair.a, &pair.b);
    a.context.inject_faults(BAD_NETWORK.rule(random.next()));
    b.context.inject_faults(BAD_NETWORK.rule(random.next()));
    let mut sum = 0u64;
    b.mr.write(0, &sum.to_ne_bytes()).unwrap();
    for round in 0..400 {
        let length = random.below(9000) as usize;
        let bytes = random.bytes(length);
        let there = 64 + random.below(4096);
        a.mr.write(OWN, &bytes).unwrap();
        let count = length as u32;
        match random.below(4) {
            0 => {
                pair.post_receive(count);
                pair.carry_out(Operation::Send, count);
                assert_eq!(b.poll_one("of the receive").byte_len, count);
                assert!(read(b, OWN, length) == bytes, "round {round}: sent");
            }
            1 => {
                pair.carry_out(Operation::RdmaWrite(b.mr.remote(there)), count);
                assert!(read(b, there, length) == bytes, "round {round}: written");
            }
            2 => {
                b.mr.write(there, &bytes).unwrap();
                a.mr.write(OWN, &vec![0; length]).unwrap();
                pair.carry_out(Operation::RdmaRead(b.mr.remote(there)), count);
                assert!(read(a, OWN, length) == bytes, "round {round}: read");
            }
            _ => {
                pair.carry_out(Operation::FetchAdd(b.mr.remote(0), 3), 8);
                assert_eq!(
                    read(a, OWN, 8),
                    sum.to_ne_bytes(),
                    "round {round}: added once"
                );
                sum += 3;
            }
        }
    }
    assert!(a.poll().is_empty() && b.poll().is_empty());
    let (ca, cb) = (a.context.counters(), b.context.counters());
    let both = |name: &str| ca[name] + cb[name];
    for name in ["drop_icrc_err", "resent_pkts_retry", "duplicate_request"] {
        assert!(both(name) > 0, "{name}: {ca:?} {cb:?}");
    }
}

#[test]
fn outstanding_requests_complete_in_order_on_a_bad_network() {
    let mut random = Random::from_env("outstanding_requests_complete_in_order_on_a_bad_network");
    let how = How {
        mtu: PathMtu::B256,
        timeout: 13, // 34 ms: this machine may have other work
        retries: 7,
    };
    let pair = Pair::new(5, how);
    pair.a
        .context
        .inject_faults(BAD_NETWORK.rule(random.next()));
    pair.b
        .context
        .inject_faults(BAD_NETWORK.rule(random.next()));
    const COUNT: u64 = 600;
    const BATCH: u64 = 12;
    let (mut posted, mut done, mut received) = (0, 0, 0);
    while done.min(received) < COUNT {
        while posted < COUNT && posted < done.min(received) + BATCH {
            let (at, length) = (OWN + posted % BATCH * 1024, 8 + random.below(900) as u32);
            let receive = [pair.b.mr.sge(at, 1024).unwrap()];
            let request = RecvRequest::new(WrId(posted), &receive);
            pair.qp_b.post_recv(&[request]).unwrap();
            pair.a.mr.write(at, &posted.to_ne_bytes()).unwrap();
            let sges = [pair.a.mr.sge(at, length).unwrap()];
            let request = SendRequest::new(WrId(posted), Operation::Send, &sges);
            let request = request.with_flags(SendFlags::SIGNALED);
            pair.qp_a.post_send(&[request]).unwrap();
            posted += 1;
        }
        for completion in pair.a.poll() {
            assert_eq!(
                (completion.wr_id.0, completion.status),
                (done, WcStatus::Success)
            );
            done += 1;
        }
        // Its buffer is written again once both have completed.
        for completion in pair.b.poll() {
            assert_eq!(
                (completion.wr_id.0, completion.status),
                (received, WcStatus::Success)
            );
            let at = OWN + received % BATCH * 1024;
            assert_eq!(read(&pair.b, at, 8), received.to_ne_bytes());
            received += 1;
        }
    }
}

#[test]
fn a_side_that_sleeps_is_read_from_and_written_to() {
    let pair = Pair::new(6, USUAL);
    let there = pair.b.mr.remote(0);
    for i in 0..20u64 {
        pair.a.mr.write(OWN, &i.to_ne_bytes()).unwrap();
        // Nobody polls B.
        pair.carry_out(Operation::RdmaWrite(there), 8);
        pair.carry_out(Operation::RdmaRead(there), 8);
        assert_eq!(read(&pair.a, OWN, 8), i.to_ne_bytes());
        std::thread::sleep(Duration::from_millis(i));
    }
}

#[test]
fn a_message_is_seen_by_who_looks_at_memory_only() {
    let pair = Pair::new(7, USUAL);
    for i in 1..=50u8 {
        pair.a.mr.write(OWN, &[i]).unwrap();
        pair.post(1, Operation::RdmaWrite(pair.b.mr.remote(0)), 1);
        let came = || pair.b.mr.load(0).unwrap() == i;
        assert!(wait_until(came), "message {i}");
        assert_eq!(pair.a.poll_one("of the WRITE").status, WcStatus::Success);
    }
}

#[test]
fn a_side_that_enters_the_error_state_has_acknowledged_what_arrived() {
    let pair = Pair::new(22, USUAL);
    let (a, b) = (&pair.a, &pair.b);
    let sent = || b.context.counters()["sent_pkts"];
    // A program that replies at once: its acknowledgements are delayed until its replies.
    for _ in 0..10 {
        let into = [a.mr.sge(0, 8).unwrap()];
        pair.qp_a
            .post_recv(&[RecvRequest::new(WrId(3), &into)])
            .unwrap();
        pair.post_receive(8);
        pair.post(1, Operation::Send, 8);
        b.poll_one("of the message");
        let from = [b.mr.sge(OWN, 8).unwrap()];
        let reply = SendRequest::new(WrId(4), Operation::Send, &from);
        pair.qp_b
            .post_send(&[reply.with_flags(SendFlags::SIGNALED)])
            .unwrap();
        for end in [a, a, b] {
            assert_eq!(end.poll_one("of a round").status, WcStatus::Success);
        }
    }
    pair.post_receive(8);
    let before = sent();
    pair.post(1, Operation::Send, 8);
    b.poll_one("of the last message");
    pair.qp_b.modify(&QpAttr::to(QpState::Err)).unwrap();
    assert_eq!(sent(), before + 1);
    assert_eq!(a.poll_one("of the last one").status, WcStatus::Success);
}

const PEER: &str = "a_peer_that_is_killed_exceeds_the_retries";

/// The peer that is killed: takes a connection to the address on its standard input.
fn play_peer(_: &str) {
    let end = end(8, 2);
    let qp = end.qp();
    println!("address {}", end.address(&qp).to_line());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let to = AddressVector {
        dgid: end_gid(8, 1),
        ..end.local_address()
    };
    connect_to(&qp, to, Address::from_line(&line).qpn, USUAL);
    println!("connected");
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn end_gid(net: u8, host: u8) -> adverb_verbs::Gid {
    match ip(net, host) {
        IpAddr::V4(ip) => adverb_verbs::Gid::from_ipv4(ip),
        IpAddr::V6(ip) => adverb_verbs::Gid(ip.octets()),
    }
}

#[test]
fn a_peer_that_is_killed_exceeds_the_retries() {
    isolated_with(PEER, play_peer, || {
        let mut child = child("peer")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line_with = |word: &str| {
            let lines = lines.by_ref().map(Result::unwrap);
            let mut found =
                lines.filter_map(|l| l.split_once(word).map(|(_, rest)| rest.to_owned()));
            found.next().expect("the peer speaks")
        };
        let peer = Address::from_line(&line_with("address "));
        let end = end(8, 1);
        let qp = end.qp();
        let how = How {
            timeout: 11, // 8.4 ms
            retries: 3,
            ..USUAL
        };
        let to = AddressVector {
            dgid: end_gid(8, 2),
            ..end.local_address()
        };
        connect_to(&qp, to, peer.qpn, how);
        writeln!(
            child.stdin.as_mut().unwrap(),
            "{}",
            end.address(&qp).to_line()
        )
        .unwrap();
        line_with("connected");
        let write = |id| {
            let sges = [end.mr.sge(OWN, 5000).unwrap()];
            let request = SendRequest::new(WrId(id), Operation::RdmaWrite(peer.memory), &sges);
            qp.post_send(&[request.with_flags(SendFlags::SIGNALED)])
                .unwrap();
        };
        write(1);
        assert_eq!(end.poll_one("while it lives").status, WcStatus::Success);
        child.kill().unwrap();
        child.wait().unwrap();
        let begin = Instant::now();
        write(2);
        write(3);
        let ended = [(); 2].map(|()| end.poll_one("after its death"));
        let ended = ended.map(|completion| (completion.wr_id.0, completion.status));
        assert_eq!(
            ended,
            [(2, WcStatus::RetryExcErr), (3, WcStatus::WrFlushErr)]
        );
        // Not before its time; how long after it depends on what else this machine does.
        let retry_time = Duration::from_micros(4096) * 2 * 4;
        let elapsed = begin.elapsed();
        assert!(elapsed >= retry_time / 2, "{elapsed:?}");
        assert_eq!(qp.state(), QpState::Err);
        // The next process that opens the dead peer's address removes its files.
        drop(End::of(SoftDevice::at(ip(8, 2)), MEMORY));
    });
}

/// A socket that sends forged packets to the port of a queue pair.
struct Forger {
    socket: UdpSocket,
    flow: Flow,
}

impl Forger {
    /// Sends from host `from` to the port of `qpn` at host 2.
    fn new(net: u8, from: u8, qpn: Qpn) -> Self {
        let socket = UdpSocket::bind((ip(net, from), 0)).unwrap();
        let flow = Flow {
            addresses: Addresses::of(ip(net, from), ip(net, 2)).unwrap(),
            source_port: socket.local_addr().unwrap().port(),
            destination_port: 4791 + common::slot_of(qpn) as u16,
        };
        Forger { socket, flow }
    }

    fn send(&self, packet: &[u8]) {
        let to = (
            self.flow.addresses.destination(),
            self.flow.destination_port,
        );
        self.socket.send_to(packet, to).unwrap();
    }
}

/// Returns a forged WRITE of 8 bytes.
fn forged(flow: &Flow, dest: Qpn, psn: Psn, to: RemoteAddress) -> Vec<u8> {
    let headers = PacketHeaders {
        xrc: None,
        bth: Bth::new(Opcode::RcWriteOnly, dest, psn),
        extension: Extension::Rdma(Reth {
            remote: to,
            length: 8,
        }),
    };
    let mut buffer = [0; 128];
    let (length, place) = headers.lay_out(8, &mut buffer).unwrap();
    place.fill(0xee);
    let length = icrc::seal(flow, Unseen::default(), &mut buffer, length).unwrap();
    buffer[..length].to_vec()
}

#[test]
fn forged_packets_are_dropped_and_counted() {
    let pair = Pair::new(9, USUAL);
    let (b, qpn) = (&pair.b, pair.qp_b.qpn());
    let forger = Forger::new(9, 3, qpn);
    let flow = forger.flow;
    let at = b.mr.remote(0);
    let expected = FIRST_PSN;
    let right = forged(&flow, qpn, expected, at);
    let mut damaged = right.clone();
    damaged[30] ^= 4;
    let nobody = unused_qpn(qpn);
    // The same index in another process's slot.
    let elsewhere = Qpn::new(qpn.get() ^ (1 << 20)).unwrap();
    let mut of_others = right[..right.len() - icrc::LEN].to_vec();
    of_others[2..4].copy_from_slice(&0x8001_u16.to_be_bytes());
    let crc = icrc::compute(&flow, Unseen::default(), &of_others);
    of_others.extend(crc.to_bytes());
    let mut truncated = right[..10].to_vec();
    let crc = icrc::compute(&flow, Unseen::default(), &truncated);
    truncated.extend(crc.to_bytes());
    let packets = [
        ("drop_wrong_source", right),
        ("drop_icrc_err", damaged),
        (
            "drop_unknown_queue_pair",
            forged(&flow, nobody, expected, at),
        ),
        (
            "drop_unknown_queue_pair",
            forged(&flow, elsewhere, expected, at),
        ),
        ("drop_partition", of_others),
        ("drop_malformed", truncated),
    ];
    for (_, packet) in &packets {
        forger.send(packet);
    }
    let mut random = Random(3);
    for length in 0..200 {
        forger.send(&random.bytes(length));
    }
    let counts = || b.context.counters();
    let of = |name: &str| packets.iter().filter(|(why, _)| *why == name).count() as u64;
    let all_counted = || {
        assert!(b.poll().is_empty());
        packets.iter().all(|(name, _)| counts()[*name] >= of(name))
            && counts()["drop_icrc_err"] > 190
    };
    assert!(wait_until(all_counted), "{:?}", counts());
    assert_eq!(read(b, 0, 8), [0; 8]);
    pair.a.mr.write(OWN, &[5; 8]).unwrap();
    pair.carry_out(Operation::RdmaWrite(at), 8);
    assert_eq!(read(b, 0, 8), [5; 8]);
}

#[test]
fn counters_include_destroyed_queue_pairs() {
    let pair = Pair::new(19, USUAL);
    let at = pair.b.mr.remote(0);
    pair.carry_out(Operation::RdmaWrite(at), 8);
    let Pair { a, b, qp_a, qp_b } = pair;
    let counted = [&a, &b].map(|end| end.context.counters());
    assert!(counted[0]["sent_pkts"] > 0 && counted[1]["rcvd_pkts"] > 0);
    drop((qp_a, qp_b));
    for (end, before) in [&a, &b].into_iter().zip(&counted) {
        let after = end.context.counters();
        for (name, count) in before {
            assert!(after[name] >= *count, "{name}: {before:?} {after:?}");
        }
    }
}

/// Each RNR NAK contains the timer (IBTA vol. 1, 9.7.5.2.8).
#[test]
fn rnr_naks_contain_a_changed_timer() {
    let pair = Pair::new(20, USUAL);
    let (told, hears) = std::sync::mpsc::channel();
    pair.a.context.inject_faults(move |packet| {
        let syndrome = packet[bth::LEN];
        if packet[0] == Opcode::RcAck.code() && syndrome >> 5 == 1 {
            // The test may have ended.
            let _ = told.send(RnrTimer::new(syndrome & 0x1f));
        }
        None
    });
    let changed = RnrTimer::new(9);
    let mut attr = QpAttr::default();
    attr.min_rnr_timer = changed;
    pair.qp_b.modify(&attr).unwrap();
    pair.post(1, Operation::Send, 8);
    let mut timer = None;
    let is_told = || {
        assert!(pair.a.poll().is_empty() && pair.b.poll().is_empty());
        timer = hears.try_recv().ok();
        timer.is_some()
    };
    assert!(wait_until(is_told));
    assert_eq!(timer, Some(changed));
}

/// Waits until a counter has this value.
#[track_caller]
fn wait_for_counter(end: &End, name: &str, count: u64) {
    let is_reached = || {
        assert!(end.poll().is_empty());
        end.context.counters()[name] == count
    };
    let is_reached = wait_until(is_reached);
    assert!(is_reached, "{name}: {:?}", end.context.counters());
}

/// Returns the same packet with another opcode.
fn of_other_opcode(flow: &Flow, code: u8, dest: Qpn) -> Vec<u8> {
    let at = RemoteAddress {
        addr: 0,
        rkey: Rkey(0),
    };
    let mut bytes = forged(flow, dest, FIRST_PSN, at);
    bytes[0] = code;
    let length = bytes.len() - icrc::LEN;
    let length = icrc::seal(flow, Unseen::default(), &mut bytes, length).unwrap();
    bytes.truncate(length);
    bytes
}

/// RC sends a NAK and ends the connection, as after any invalid request. UD drops the packet.
#[test]
fn a_packet_of_an_unknown_opcode_reaches_its_queue_pair() {
    let pair = Pair::new(16, USUAL);
    let (b, reliable) = (&pair.b, pair.qp_b.qpn());
    let datagrams = b.datagram_qp(&b.cq, QpCaps::default());
    // The peer's address, but another port.
    let forger = Forger::new(16, 1, reliable);
    let counted = |name, count| wait_for_counter(b, name, count);
    let send = |code, qpn| forger.send(&of_other_opcode(&forger.flow, code, qpn));
    send(0x66, datagrams.qpn());
    counted("drop_unknown_opcode", 1);
    send(0x40, reliable);
    counted("drop_unknown_service", 1);
    send(0x2c, reliable);
    counted("drop_wrong_service", 1);
    assert_eq!(pair.qp_b.state(), QpState::Rts);
    send(0x15, unused_qpn(reliable));
    counted("drop_unknown_queue_pair", 1);
    send(0x15, reliable);
    counted("drop_unknown_opcode", 2);
    let is_over = || pair.qp_b.state() == QpState::Err;
    assert!(wait_until(is_over));
    assert_eq!(datagrams.state(), QpState::Rts);
    assert_eq!(b.context.counters()["drop_malformed"], 0);
}

/// A congestion notification to `dest`.
fn notification(flow: &Flow, dest: Qpn) -> Vec<u8> {
    let headers = PacketHeaders {
        xrc: None,
        bth: Bth::new(Opcode::Cnp, dest, FIRST_PSN),
        extension: Extension::None,
    };
    let mut bytes = vec![0; 64];
    let (length, _) = headers.lay_out(16, &mut bytes).unwrap();
    let length = icrc::seal(flow, Unseen::default(), &mut bytes, length).unwrap();
    bytes.truncate(length);
    bytes
}

/// After several of them, they use neither the socket's buffer nor the driver's time. Longer packets pass the filter,
/// because the kernel may have joined the peer's packets to them.
#[test]
fn congestion_notifications_are_dropped_by_the_socket() {
    let pair = Pair::new(21, USUAL);
    let (b, qpn) = (&pair.b, pair.qp_b.qpn());
    let forger = Forger::new(21, 1, qpn);
    let flow = forger.flow;
    let send = |packet: &[u8]| forger.send(packet);
    let counted = |name, count| wait_for_counter(b, name, count);
    let congestion = notification(&flow, qpn);
    (0..16).for_each(|_| send(&congestion));
    counted("drop_unknown_service", 16);
    (0..4).for_each(|_| send(&congestion));
    counted("drop_at_socket", 4);
    send(&of_other_opcode(&flow, Opcode::Cnp.code(), qpn));
    counted("drop_unknown_service", 17);
    let other_slot = Qpn::new(qpn.get() ^ (1 << 20)).unwrap();
    send(&of_other_opcode(
        &flow,
        Opcode::RcSendOnly.code(),
        other_slot,
    ));
    counted("drop_unknown_queue_pair", 1);
    send(&of_other_opcode(&flow, 0x2c, qpn));
    counted("drop_wrong_service", 1);
    // Two empty SENDs that the kernel has joined are as long as a notification.
    let two = [&congestion[..bth::LEN + icrc::LEN], &[0x04; 16]].concat();
    send(&two);
    counted("drop_icrc_err", 1);
    pair.carry_out(Operation::RdmaWrite(b.mr.remote(0)), 8);
    assert_eq!(b.context.counters()["drop_at_socket"], 4);
}

/// The packet is a WRITE's with the opcode of a READ, which has no payload.
#[test]
fn a_read_request_with_a_payload_ends_the_connection() {
    let pair = Pair::new(17, USUAL);
    let forger = Forger::new(17, 1, pair.qp_b.qpn());
    let read = Opcode::RcReadRequest.code();
    forger.send(&of_other_opcode(&forger.flow, read, pair.qp_b.qpn()));
    let is_over = |qp: &SoftQp| {
        let over = || {
            assert!(pair.a.poll().is_empty() && pair.b.poll().is_empty());
            qp.state() == QpState::Err
        };
        wait_until(over)
    };
    assert!(is_over(&pair.qp_b));
    let counters = pair.b.context.counters();
    assert_eq!(counters["drop_invalid_request"], 1, "{counters:?}");
    assert_eq!(counters["drop_malformed"], 0);
}

/// A peer that answers nothing, so the packet is sent again.
#[test]
fn a_connection_sends_from_the_udp_port_of_its_slot() {
    let peer = UdpSocket::bind((ip(18, 2), 4791)).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let end = end(18, 1);
    let qp = end.qp();
    let address = AddressVector {
        dgid: end_gid(18, 2),
        ..end.local_address()
    };
    let dest = Qpn::new(77).unwrap();
    connect_to(
        &qp,
        address,
        dest,
        How {
            timeout: 11, // 8.4 ms
            ..USUAL
        },
    );
    let sges = [end.mr.sge(OWN, 64).unwrap()];
    let request = SendRequest::new(WrId(1), Operation::Send, &sges);
    qp.post_send(&[request]).unwrap();
    let flow = Flow {
        addresses: Addresses::of(ip(18, 1), ip(18, 2)).unwrap(),
        source_port: 4791 + common::slot_of(qp.qpn()) as u16,
        destination_port: 4791,
    };
    for _ in 0..4 {
        let mut packet = [0; 100];
        let (length, from) = peer.recv_from(&mut packet).unwrap();
        assert_eq!((from.ip(), from.port()), (ip(18, 1), flow.source_port));
        // A packet that is sent alone has identification 0, which the ICRC covers.
        icrc::check(&flow, Unseen::default(), &packet[..length]).unwrap();
    }
}

#[test]
fn a_refused_request_fails_after_the_requests_before_it() {
    for (host, place) in [(1, "shared memory"), (2, "UDP")] {
        let pair = Pair::of((end(99, 1), end(99, host)), USUAL);
        let write = [pair.a.mr.sge(OWN, 256 << 10).unwrap()];
        let short = [pair.a.mr.sge(0, 4).unwrap()];
        let requests = [
            SendRequest::new(WrId(1), Operation::RdmaWrite(pair.b.mr.remote(0)), &write),
            SendRequest::new(WrId(2), Operation::FetchAdd(pair.b.mr.remote(0), 1), &short),
        ];
        let requests = requests.map(|request| request.with_flags(SendFlags::SIGNALED));
        pair.qp_a.post_send(&requests).unwrap();
        let ends = [(); 2].map(|()| pair.a.poll_one("of a request"));
        let ends = ends.map(|done| (done.wr_id.0, done.status));
        let expected = [(1, WcStatus::Success), (2, WcStatus::LocLenErr)];
        assert_eq!(ends, expected, "{place}");
        assert_eq!(pair.qp_a.state(), QpState::Err);
    }
}

#[test]
fn the_port_has_the_attributes_of_roce_v2() {
    let end = end(10, 1);
    let port = end.context.port(PortNum::ONE).unwrap();
    assert_eq!(port.link_layer, LinkLayer::Ethernet);
    assert_eq!(port.gid_type, Some(GidType::RoceV2));
    assert_eq!(port.gid.to_string(), "::ffff:127.7.10.1");
    assert_eq!(port.active_mtu, PathMtu::B4096);
    assert_eq!(end.context.name().0, "soft@127.7.10.1");
}

#[test]
fn an_ipv6_address_is_its_gid() {
    let v6 = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);
    if UdpSocket::bind((v6, 0)).is_err() {
        return common::not_run("an_ipv6_address_is_its_gid: no IPv6 here");
    }
    // There is one address only; `adverb`'s tests measure between two, in network namespaces.
    let end = End::of(SoftDevice::at(v6), MEMORY);
    assert_eq!(
        end.context.port(PortNum::ONE).unwrap().gid.to_string(),
        "::1"
    );
    let error = connect_error(&end, QpType::Rc, end_gid(11, 2));
    assert!(error.contains("not of the same IP version"), "{error}");
}

#[test]
fn unreachable_addresses_are_refused() {
    let local = End::new(MEMORY);
    for service in [QpType::Rc, QpType::Uc] {
        let error = connect_error(&local, service, end_gid(12, 2));
        assert!(error.contains("open the device as soft@ADDR"), "{error}");
    }
    let handle_error = |end: &End, dgid| {
        let address = AddressVector {
            dgid,
            ..end.local_address()
        };
        let error = end.context.create_ah(&end.pd, &address).err().unwrap();
        assert!(matches!(error, CreateError::System { .. }), "{error}");
        error.to_string()
    };
    let error = handle_error(&local, end_gid(12, 2));
    assert!(error.contains("open the device as soft@ADDR"), "{error}");
    let end = end(12, 1);
    let v6 = adverb_verbs::Gid(std::net::Ipv6Addr::LOCALHOST.octets());
    let error = handle_error(&end, v6);
    assert!(error.contains("not of the same IP version"), "{error}");
    let error = SoftDevice::at("192.0.2.1".parse().unwrap())
        .open()
        .err()
        .unwrap();
    let error = error.to_string();
    assert!(
        error.contains("192.0.2.1 is not an address of this host"),
        "{error}"
    );
}

/// Sockets can be bound to most of these addresses, but would receive packets for others.
#[test]
fn addresses_of_more_or_less_than_one_host_are_refused() {
    for (at, what) in [
        ("0.0.0.0", "the unspecified address"),
        ("::", "the unspecified address"),
        ("239.1.2.3", "a multicast group"),
        ("ff15::1", "a multicast group"),
        ("255.255.255.255", "the broadcast address"),
        ("fe80::1", "a link-local address"),
    ] {
        let error = SoftDevice::at(at.parse().unwrap()).open().err().unwrap();
        assert!(matches!(error, OpenError::Unavailable { .. }), "{error}");
        let begin = format!("cannot open device soft@{at}: {at} is {what}");
        assert!(error.to_string().starts_with(&begin), "{error}");
    }
}

const TAKEN: &str = "a_slot_whose_udp_port_is_taken_is_skipped";

#[test]
fn a_slot_whose_udp_port_is_taken_is_skipped() {
    isolated(TAKEN, || {
        let taken = UdpSocket::bind((ip(13, 1), 4791)).unwrap();
        let pair = Pair::of((end(13, 1), end(13, 2)), USUAL);
        assert_eq!(pair.a.address(&pair.qp_a).slot(), 1);
        assert_eq!(pair.b.address(&pair.qp_b).slot(), 0);
        pair.carry_out(Operation::RdmaWrite(pair.b.mr.remote(0)), 8);
        drop(taken);
    });
}

const LOCAL: &str = "to_the_same_address_the_way_is_shared_memory";

#[test]
fn to_the_same_address_the_way_is_shared_memory() {
    isolated(LOCAL, || {
        let pair = Pair::of((end(14, 1), end(14, 1)), USUAL);
        pair.post_receive(100);
        pair.carry_out(Operation::Send, 100);
        assert_eq!(pair.b.poll_one("of the receive").byte_len, 100);
        assert!(pair.a.context.counters().values().all(|count| *count == 0));
        let mut none = [];
        assert_eq!(pair.a.cq.poll(&mut none), Ok(0));
    });
}

#[test]
fn requests_to_a_queue_pair_that_does_not_exist_exceed_the_retries() {
    let (a, b) = (end(42, 1), end(42, 1));
    let how = How {
        timeout: 11, // 8.4 ms
        retries: 3,
        ..USUAL
    };
    let neighbour = b.qp();
    let next = Qpn::new(neighbour.qpn().get() + 1).unwrap();
    let qp = a.qp();
    connect_to(&qp, b.local_address(), next, how);
    let sges = [a.mr.sge(OWN, 8).unwrap()];
    let write = SendRequest::new(WrId(1), Operation::RdmaWrite(b.mr.remote(0)), &sges);
    qp.post_send(&[write.with_flags(SendFlags::SIGNALED)])
        .unwrap();
    let status = a.poll_one("of the request").status;
    assert_eq!(status, WcStatus::RetryExcErr);
}

/// Posting only sends: the engine serves the peer of a program that never polls.
#[test]
fn a_side_that_posts_and_never_polls_serves_its_peer() {
    let (a, b) = (end(41, 1), end(41, 2));
    let caps = QpCaps {
        max_send_wr: 16_384,
        ..QpCaps::default()
    };
    let (qp_a, qp_b) = (a.qp(), b.qp_of(caps));
    // Longer than B posts.
    let how = How {
        timeout: 16,
        ..USUAL
    };
    connect_to(&qp_a, b.local_address(), qp_b.qpn(), how);
    connect_to(&qp_b, a.local_address(), qp_a.qpn(), how);
    let is_served = AtomicBool::new(false);
    let posted = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let sges = [b.mr.sge(OWN, 8).unwrap()];
            let write = SendRequest::new(WrId(9), Operation::RdmaWrite(a.mr.remote(0)), &sges);
            while !is_served.load(Ordering::Acquire)
                && posted.load(Ordering::Relaxed) < caps.max_send_wr
            {
                qp_b.post_send(std::slice::from_ref(&write)).unwrap();
                posted.fetch_add(1, Ordering::Relaxed);
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_micros(100) {
                    std::hint::spin_loop();
                }
            }
        });
        let is_busy = || posted.load(Ordering::Relaxed) >= 200;
        assert!(wait_until(is_busy), "B does not post");
        let sges = [a.mr.sge(OWN, 8).unwrap()];
        let write = SendRequest::new(WrId(1), Operation::RdmaWrite(b.mr.remote(64)), &sges);
        qp_a.post_send(&[write.with_flags(SendFlags::SIGNALED)])
            .unwrap();
        let status = a.poll_one("of the request").status;
        is_served.store(true, Ordering::Release);
        assert_eq!(status, WcStatus::Success);
        let posted = posted.load(Ordering::Relaxed);
        assert!(
            posted < caps.max_send_wr,
            "served after the last of B's posts"
        );
    });
}

/// Installs a handler that does nothing, with these flags.
fn handle(signal: libc::c_int, flags: libc::c_int) {
    extern "C" fn nothing(_: libc::c_int) {}
    let handler: extern "C" fn(libc::c_int) = nothing;
    // SAFETY: all zeros is a valid action; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler as usize, flags);
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

const RESTARTS: &str = "a_signal_whose_handler_restarts_calls_does_not_end_a_wait";

/// `poll` ended, although the program had asked for restarts, as a read of libibverbs' channel does.
#[test]
fn a_signal_whose_handler_restarts_calls_does_not_end_a_wait() {
    // The other test's handler would be one of the process's, too.
    isolated(RESTARTS, || {
        handle(libc::SIGUSR1, libc::SA_RESTART);
        let pair = Pair::new(202, USUAL);
        let events = pair.a.channel.open_events().unwrap();
        // SAFETY: it only returns the name of this thread.
        let waiter = unsafe { libc::pthread_self() };
        pair.a.cq.req_notify(NotifyOn::Any).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..50 {
                    // SAFETY: the thread waits for this one before it ends.
                    unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
                    std::thread::sleep(Duration::from_millis(1));
                }
                let at = pair.b.mr.remote(0);
                pair.post(1, Operation::RdmaWrite(at), 8);
            });
            let event = pair.a.channel.read_event(events.as_fd()).unwrap();
            assert_eq!(event, pair.a.cq.id());
        });
    });
}

/// Programs end a wait with an alarm, as they end a read of libibverbs' channel.
#[test]
fn a_signal_ends_a_blocking_wait_for_events() {
    handle(libc::SIGUSR2, 0); // no other test uses the signal
    let pair = Pair::new(201, USUAL);
    let events = pair.a.channel.open_events().unwrap();
    // SAFETY: it only returns the name of this thread.
    let waiter = unsafe { libc::pthread_self() };
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The first ones may arrive before the thread waits.
            while !is_done.load(Ordering::Relaxed) {
                // SAFETY: the thread waits for this one before it ends.
                unsafe { libc::pthread_kill(waiter, libc::SIGUSR2) };
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let waited = pair.a.channel.read_event(events.as_fd());
        is_done.store(true, Ordering::Relaxed);
        let error = waited.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted);
    });
}
