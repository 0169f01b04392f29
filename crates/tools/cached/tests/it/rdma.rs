//! Clients of RDMA and of TCP use the same items.

use adverb_patterns::store::attach::{ATTACH, Hello};
use adverb_patterns::store::{Store, run_store};
use adverb_patterns::{ServiceTally, Timing};
use adverb_softnic::SoftDevice;
use adverb_units::Bytes;
use adverb_verbs::{
    Endpoint, Gid, Lid, NodeChoice, NumaPlacement, PathOptions, PortNum, Psn, Qpn, RemoteAddress,
    Rkey,
};

use crate::common::Ours;

fn load(ours: &Ours) -> Store {
    Store {
        server: Some(ours.address),
        workers: 1,
        memory: Bytes::mib(1),
        items: 300,
        value: 67,
        put_ratio: 0.3,
        clients: 2,
        machines: 1,
        connections: 2,
        requests: 2000,
        timing: Timing::Whole,
        numa_client: NodeChoice::Any,
        numa_server: NumaPlacement::default(),
        load: None,
        seed: 5,
        path: PathOptions::default(),
    }
}

fn run(load: &Store) -> Vec<ServiceTally> {
    let clients = adverb_host::threads(&SoftDevice::new(), load.members(), |station, role| {
        run_store(station, load, role).unwrap_or_else(|e| panic!("{role}: {e}"))
    });
    clients.unwrap()
}

#[test]
fn clients_of_rdma_and_of_tcp_use_the_same_items() {
    let ours = Ours::start(Bytes::mib(1), true, 20);
    let mut tcp = ours.connect();
    for tally in run(&load(&ours)) {
        assert_eq!((tally.requests, tally.misses), (4000, 0));
        assert!(tally.values_checked > 1000);
    }
    // The key of item 3 begins with its number in 8 B; no byte of the rest is a space or an end of line.
    let stats = String::from_utf8(tcp.ask(b"stats\r\n")).unwrap();
    assert!(stats.contains("STAT curr_items 300\r\n"), "{stats}");
    tcp.ask(b"flush_all\r\n");
    let mut reads = load(&ours);
    (reads.items, reads.put_ratio) = (1, 0.0);
    assert_eq!(run(&reads)[0].misses, 0, "its clients PUT the item first");
}

/// All while clients of TCP replace and evict items.
#[test]
fn no_value_is_torn_while_tcp_clients_evict() {
    // 256 blocks of 128 B: too few for 300 items, so that some are missing however fast the clients of TCP are.
    let ours = Ours::start(Bytes::kib(32), true, 20);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut tcp = ours.connect();
            let mut key = 0;
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                key += 1;
                let set = format!("set key{key} 0 0 100\r\n{}\r\n", "x".repeat(100));
                assert_eq!(tcp.ask(set.as_bytes()), b"STORED\r\n");
            }
        });
        let tallies = scope.spawn(|| run(&load(&ours))).join();
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        let tallies = tallies.unwrap();
        let sum = |of: fn(&ServiceTally) -> u64| tallies.iter().map(of).sum::<u64>();
        assert!(sum(|tally| tally.values_checked) > 0 && sum(|tally| tally.misses) > 0);
    });
}

#[test]
fn queue_pairs_end_with_their_connections_of_tcp() {
    let ours = Ours::start(Bytes::mib(1), true, 20);
    let mut clients: Vec<_> = (0..4).map(|_| ours.connect()).collect();
    let hello = Hello {
        endpoint: Endpoint {
            qpn: Qpn::new(77).unwrap(),
            psn: Psn::new(1),
            gid: Gid::default(),
            lid: Lid(0),
            port: PortNum::ONE,
            cm: None,
        },
        region: RemoteAddress {
            addr: 0,
            rkey: Rkey(1),
        },
    };
    let attach = |word: &str| [&ATTACH[..], word.as_bytes(), b"\r\n"].concat();
    let mut other = ours.connect();
    for bad in ["", "!", "AAAA"] {
        let answer = String::from_utf8(other.ask(&attach(bad))).unwrap();
        assert_eq!(answer, "CLIENT_ERROR bad command line format\r\n");
    }
    // A peer that does not exist is refused, and holds no place.
    for number in 0..12 {
        let client = &mut clients[number % 4];
        let answer = String::from_utf8(client.ask(&attach(&hello.to_word()))).unwrap();
        assert!(
            answer.starts_with("SERVER_ERROR ") && !answer.contains("in use"),
            "{answer}"
        );
    }
    // Each run holds all four places, which are free when the next one begins.
    for _ in 0..3 {
        let mut load = load(&ours);
        load.requests = 10;
        run(&load);
    }
}
