//! RC over networks that lose, repeat, reorder and damage packets: every byte arrives, and every atomic
//! happens once. The faults are made in user space, by rules from a seed; below them are real sockets,
//! on the loopback and (as root) between two network namespaces.

#![allow(unsafe_code)]

mod common;

use std::time::{Duration, Instant};

use adverb_softnic::SoftQp;
use adverb_units::{Bytes, Span};
use adverb_verbs::{
    Comparison, Impairment, MemoryRegion, Operation, PathMtu, Probability, QueuePair, RecvRequest,
    SendFlags, SendRequest, WcOpcode, WcStatus, WorkCompletion, WrId,
};
use common::network::{Faults, How, Network, connect_to};
use common::{End, Random, not_run};

const MEMORY: Bytes = Bytes::mib(1);
/// Number of requests in flight, each with a separate place in both memories.
const BATCH: u64 = 8;
const BATCHES: u64 = 15;
/// Length of such a place.
const PLACE: u64 = 12 << 10;
/// Where places begin; the word of the atomics is before.
const PLACES: u64 = 64;
/// Where A keeps what its requests take or bring.
const OWN: u64 = 512 << 10;

/// Two ends with a connection.
struct Pair {
    a: End,
    b: End,
    qp_a: SoftQp,
    qp_b: SoftQp,
}

impl Pair {
    fn new(network: &Network) -> Self {
        let how = How {
            mtu: PathMtu::B1024,
            timeout: 14, // 67 ms; the NIC waits four times as long. This machine may have other work.
            retries: 7,
        };
        let (a, b) = (network.end(0, MEMORY), network.end(1, MEMORY));
        let (qp_a, qp_b) = (a.qp(), b.qp());
        connect_to(&qp_a, network.address(1), qp_b.qpn(), how);
        connect_to(&qp_b, network.address(0), qp_a.qpn(), how);
        Pair { a, b, qp_a, qp_b }
    }

    /// The completions of a batch, with this number of receives. This thread drives both sides: where
    /// the machine has other work, neither waits for the other's engine.
    fn finish(&self, receives: usize) -> (Vec<WorkCompletion>, Vec<WorkCompletion>) {
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        let deadline = Instant::now() + Duration::from_secs(60);
        while sent.len() < BATCH as usize || received.len() < receives {
            let ended = sent.len() + received.len();
            sent.extend(self.a.poll());
            received.extend(self.b.poll());
            let now = Instant::now();
            assert!(now < deadline, "{} and {}", sent.len(), received.len());
            if sent.len() + received.len() == ended {
                // Other tests need the cores, too.
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        (sent, received)
    }
}

fn read(end: &End, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    end.mr.read(offset, &mut bytes).unwrap();
    bytes
}

/// What has to be so when a batch has ended.
#[derive(Default)]
struct Expected {
    /// Memory of A or of B, by offset.
    a: Vec<(u64, Vec<u8>)>,
    b: Vec<(u64, Vec<u8>)>,
    /// Lengths of messages that B receives, in order.
    received: Vec<u32>,
}

/// Requests of all kinds, and what they shall do.
struct Exerciser {
    random: Random,
    /// The word that the atomics work on.
    word: u64,
}

impl Exerciser {
    /// Posts a request with the `i`th places.
    fn post(&mut self, pair: &Pair, i: u64, expected: &mut Expected) {
        let (own, there) = (OWN + i * PLACE, PLACES + i * PLACE);
        let length = 1 + self.random.below(PLACE - 1);
        let bytes = self.random.bytes(length as usize);
        let at = pair.b.mr.remote(there);
        match self.random.below(5) {
            0 => {
                pair.a.mr.write(own, &bytes).unwrap();
                let sges = [pair.b.mr.sge(there, PLACE as u32).unwrap()];
                let receive = RecvRequest::new(WrId(i), &sges);
                pair.qp_b.post_recv(&[receive]).unwrap();
                expected.received.push(length as u32);
                expected.b.push((there, bytes));
                request(pair, i, Operation::Send, length);
            }
            1 => {
                pair.a.mr.write(own, &bytes).unwrap();
                expected.b.push((there, bytes));
                request(pair, i, Operation::RdmaWrite(at), length);
            }
            2 => {
                pair.b.mr.write(there, &bytes).unwrap();
                expected.a.push((own, bytes));
                request(pair, i, Operation::RdmaRead(at), length);
            }
            3 => {
                let by = self.random.next();
                expected.a.push((own, self.word.to_ne_bytes().into()));
                self.word = self.word.wrapping_add(by);
                request(pair, i, Operation::FetchAdd(pair.b.mr.remote(0), by), 8);
            }
            _ => {
                let (new, is_equal) = (self.random.next(), self.random.chance(50));
                let expected_word = if is_equal { self.word } else { !self.word };
                expected.a.push((own, self.word.to_ne_bytes().into()));
                let comparison = Comparison {
                    expected: expected_word,
                    new,
                };
                if is_equal {
                    self.word = new;
                }
                let operation = Operation::CompareSwap(pair.b.mr.remote(0), comparison);
                request(pair, i, operation, 8);
            }
        }
    }
}

fn request(pair: &Pair, i: u64, operation: Operation, length: u64) {
    let sges = [pair.a.mr.sge(OWN + i * PLACE, length as u32).unwrap()];
    let request = SendRequest::new(WrId(i), operation, &sges).with_flags(SendFlags::SIGNALED);
    pair.qp_a.post_send(&[request]).unwrap();
}

/// Requests of all kinds, some in flight together, each checked.
fn exercise(pair: &Pair, random: Random) {
    let mut exerciser = Exerciser { random, word: 0 };
    for batch in 0..BATCHES {
        let mut expected = Expected::default();
        (0..BATCH).for_each(|i| exerciser.post(pair, i, &mut expected));
        let (sent, received) = pair.finish(expected.received.len());
        for (i, end) in sent.iter().enumerate() {
            let what = (end.wr_id.0, end.status);
            assert_eq!(what, (i as u64, WcStatus::Success), "batch {batch}");
        }
        for (end, length) in received.iter().zip(&expected.received) {
            let what = (end.opcode, end.status, end.byte_len);
            assert_eq!(what, (WcOpcode::Recv, WcStatus::Success, *length));
        }
        let word = exerciser.word.to_ne_bytes().to_vec();
        expected.b.push((0, word));
        for (end, pieces) in [(&pair.a, &expected.a), (&pair.b, &expected.b)] {
            for (at, bytes) in pieces {
                assert!(read(end, *at, bytes.len()) == *bytes, "{batch}: at {at}");
            }
        }
    }
    assert!(pair.a.poll().is_empty() && pair.b.poll().is_empty());
}

/// The same on each kind of network; what of the counters moves if the faults do what they say.
fn hold(name: &str, net: u8, faults: Faults, moved: &[&str]) {
    let mut networks = vec![Network::loopback(net)];
    match Network::wire(name) {
        Ok(wire) => networks.push(wire),
        Err(why) => not_run(&format!("{name} between network namespaces: {why}")),
    }
    for network in networks {
        let mut random = Random::from_env(name);
        let pair = Pair::new(&network);
        pair.a.context.inject_faults(faults.rule(random.next()));
        pair.b.context.inject_faults(faults.rule(random.next()));
        exercise(&pair, random);
        check_moved(&pair, moved);
    }
}

fn check_moved(pair: &Pair, moved: &[&str]) {
    let counters = [&pair.a, &pair.b].map(|end| adverb_verbs::Context::counters(&end.context));
    for counter in moved {
        let sum: u64 = counters.iter().map(|of| of[*counter]).sum();
        assert!(sum > 0, "{counter}: {counters:?}");
    }
}

/// The same where the ports themselves do it: packets that really leave so, also between two sides at
/// one address, which share memory.
fn hold_impaired(name: &str, net: u8, how: Impairment, moved: &[&str]) {
    let mut networks = vec![Network::one_address(net), Network::loopback(net)];
    match Network::wire(name) {
        Ok(wire) => networks.push(wire),
        Err(why) => not_run(&format!("{name} between network namespaces: {why}")),
    }
    for network in networks {
        let mut random = Random::from_env(name);
        let seed = random.next();
        let pair = Pair::new(&network.impaired(Impairment { seed, ..how }));
        exercise(&pair, random);
        check_moved(&pair, moved);
    }
}

const ONE_IN_TWENTY: Probability = Probability::per_million(50_000);

#[test]
fn ports_that_lose_packets() {
    let how = Impairment {
        loss: ONE_IN_TWENTY,
        ..Impairment::default()
    };
    let moved = ["impaired_lost_pkts", "resent_pkts_retry"];
    hold_impaired("lose", 7, how, &moved);
}

#[test]
fn ports_that_duplicate_packets() {
    let how = Impairment {
        duplicate: ONE_IN_TWENTY,
        ..Impairment::default()
    };
    let moved = ["impaired_duplicated_pkts", "duplicate_request"];
    hold_impaired("dup", 8, how, &moved);
}

#[test]
fn ports_that_reorder_packets() {
    let how = Impairment {
        reorder: ONE_IN_TWENTY,
        ..Impairment::default()
    };
    let moved = ["impaired_reordered_pkts", "drop_out_of_sequence"];
    hold_impaired("reorder", 9, how, &moved);
}

#[test]
fn ports_that_corrupt_packets() {
    let how = Impairment {
        corrupt: ONE_IN_TWENTY,
        ..Impairment::default()
    };
    let moved = ["impaired_corrupted_pkts", "drop_icrc_err"];
    hold_impaired("corrupt", 10, how, &moved);
}

#[test]
fn ports_that_delay_packets() {
    let how = Impairment {
        delay: Span::from_us(600),
        jitter: Span::from_us(100),
        rate: "1Gbit".parse().ok(),
        ..Impairment::default()
    };
    for network in [Network::one_address(13), Network::loopback(13)] {
        let pair = Pair::new(&network.impaired(how));
        let began = Instant::now();
        exercise(&pair, Random(1));
        // Each batch takes at least a round trip.
        assert!(began.elapsed() >= Duration::from_millis(BATCHES));
        let counters = adverb_verbs::Context::counters(&pair.a.context);
        assert_eq!(counters["drop_out_of_sequence"], 0, "{counters:?}");
        assert_eq!(counters["impaired_overflow_pkts"], 0, "{counters:?}");
    }
}

#[test]
fn a_port_that_is_closed_sends_what_its_link_still_holds() {
    let how = Impairment {
        delay: Span::from_ms(50),
        ..Impairment::default()
    };
    let pair = Pair::new(&Network::loopback(14).impaired(how));
    pair.a.mr.write(OWN, &[7; 8]).unwrap();
    let at = pair.b.mr.remote(PLACES);
    request(&pair, 0, Operation::RdmaWrite(at), 8);
    let Pair { a, b, qp_a, qp_b } = pair;
    drop((qp_a, a));
    let deadline = Instant::now() + Duration::from_secs(60);
    while read(&b, PLACES, 8) != [7; 8] {
        assert!(Instant::now() < deadline, "the packet never arrived");
        assert!(b.poll().is_empty());
    }
    drop(qp_b);
}

#[test]
fn a_port_that_impairs_nothing_goes_by_udp_to_who_shares_its_memory() {
    let moved = ["sent_pkts", "rcvd_pkts"];
    let network = Network::one_address(11).impaired(Impairment::default());
    let pair = Pair::new(&network);
    exercise(&pair, Random(1));
    check_moved(&pair, &moved);
    let counters = adverb_verbs::Context::counters(&pair.a.context);
    assert_eq!(counters["impaired_lost_pkts"], 0);
}

#[test]
fn one_packet_in_a_hundred_lost() {
    let faults = Faults {
        lost: 10,
        ..Faults::default()
    };
    hold("loss-1", 1, faults, &["resent_pkts_retry"]);
}

#[test]
fn one_packet_in_ten_lost() {
    let faults = Faults {
        lost: 100,
        ..Faults::default()
    };
    let moved = ["resent_pkts_retry", "ack_timeout", "drop_out_of_sequence"];
    hold("loss-10", 2, faults, &moved);
}

#[test]
fn one_packet_in_ten_twice() {
    let faults = Faults {
        repeated: 100,
        ..Faults::default()
    };
    hold("twice", 3, faults, &["duplicate_request"]);
}

#[test]
fn one_packet_in_ten_late() {
    let faults = Faults {
        delayed: 100,
        ..Faults::default()
    };
    hold("late", 4, faults, &["drop_out_of_sequence"]);
}

#[test]
fn one_packet_in_ten_damaged() {
    let faults = Faults {
        damaged: 100,
        ..Faults::default()
    };
    hold("damage", 5, faults, &["drop_icrc_err"]);
}

#[test]
fn all_of_it_at_once() {
    let faults = Faults {
        lost: 30,
        repeated: 30,
        delayed: 30,
        damaged: 30,
    };
    hold("all", 6, faults, &["drop_icrc_err", "resent_pkts_retry"]);
}
