//! Full memory, many connections, clients that end in the middle.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use adverb_cached::Server;
use adverb_units::Bytes;
use rustix::process::{Resource, Rlimit, geteuid, setrlimit};

use crate::common::{Client, Ours, store};

fn set(client: &mut Client, key: &str, length: usize) -> String {
    let value = vec![key.as_bytes()[0]; length];
    let command = [
        format!("set {key} 0 0 {length}\r\n").as_bytes(),
        &value,
        b"\r\n",
    ]
    .concat();
    String::from_utf8(client.ask(&command)).unwrap()
}

#[test]
fn a_full_store_evicts_or_refuses() {
    let ours = Ours::start(Bytes::kib(64), true, 10);
    let mut client = ours.connect();
    for key in 0..100 {
        assert_eq!(set(&mut client, &format!("k{key}"), 4000), "STORED\r\n");
    }
    assert_eq!(client.ask(b"get k0\r\n"), b"END\r\n");
    assert!(
        client
            .ask(b"get k99\r\n")
            .starts_with(b"VALUE k99 0 4000\r\n")
    );
    let stats = String::from_utf8(client.ask(b"stats\r\n")).unwrap();
    assert!(
        stats.contains("STAT evictions 84\r\nSTAT reclaimed 0\r\n"),
        "{stats}"
    );
    assert!(stats.contains("STAT curr_items 16\r\n"), "{stats}");

    let ours = Ours::start(Bytes::kib(64), false, 10);
    let mut client = ours.connect();
    for key in 0..16 {
        assert_eq!(set(&mut client, &format!("k{key}"), 4000), "STORED\r\n");
    }
    assert_eq!(
        set(&mut client, "more", 4000),
        "SERVER_ERROR out of memory storing object\r\n"
    );
    assert_eq!(
        set(&mut client, "k3", 100_000),
        "SERVER_ERROR object too large for cache\r\n"
    );
    // A reader that got the old value would not see that it is out of date.
    assert_eq!(client.ask(b"get k3\r\n"), b"END\r\n");
    assert_eq!(set(&mut client, "more", 4000), "STORED\r\n");
    assert!(
        client
            .ask(b"get k0\r\n")
            .starts_with(b"VALUE k0 0 4000\r\n")
    );
}

#[test]
fn a_value_that_never_arrives_whole_gives_its_memory_back() {
    let ours = Ours::start(Bytes::kib(64), false, 10);
    let mut client = ours.connect();
    for _ in 0..20 {
        let mut ends = ours.connect();
        ends.ask(b"");
        ends.send(b"set a 0 0 60000\r\nhalf");
        drop(ends);
    }
    // The server notices each end, in turn.
    while set(&mut client, "b", 60_000) != "STORED\r\n" {
        std::thread::yield_now();
    }
    assert_eq!(client.ask(b"get a\r\n"), b"END\r\n");
}

#[test]
fn further_connections_are_refused_until_one_ends() {
    let ours = Ours::start(Bytes::kib(64), true, 3);
    let mut clients: Vec<Client> = (0..3).map(|_| ours.connect()).collect();
    clients
        .iter_mut()
        .for_each(|client| assert_eq!(client.ask(b""), b""));
    assert_eq!(
        ours.connect().rest(),
        b"ERROR Too many open connections\r\n"
    );
    clients[1].send(b"quit\r\n");
    assert_eq!(clients[1].rest(), b"");
    let stats = loop {
        let stats = String::from_utf8(clients[0].ask(b"stats\r\n")).unwrap();
        if stats.contains("STAT curr_connections 2\r\n") {
            break stats;
        }
    };
    assert!(stats.contains("STAT rejected_connections 1\r\n"), "{stats}");
    assert_eq!(ours.connect().ask(b"mn\r\n"), b"MN\r\n");
}

const FEW_THREADS: &str = "limits::a_server_whose_threads_cannot_be_started_ends";

/// It waited for the threads that had started.
#[test]
fn a_server_whose_threads_cannot_be_started_ends() {
    const INSIDE: &str = "ADVERB_TEST_FEW_THREADS";
    if std::env::var_os(INSIDE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", FEW_THREADS]).env(INSIDE, "1");
        if geteuid().is_root() {
            // The limit is of a user, and not for root.
            alone.uid(65534);
        }
        let ended = alone.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(
            ended.status.success() && said.contains("1 passed"),
            "{said}"
        );
        return;
    }
    let address = "127.0.0.1:0".parse().unwrap();
    let shared = Arc::new(store(Bytes::mib(1), true));
    let server = Server::bind(address, (100, 1), shared).unwrap();
    let own = std::fs::read_dir("/proc/self/task").unwrap().count() as u64;
    let limit = Rlimit {
        current: Some(own + 2),
        maximum: Some(own + 2),
    };
    setrlimit(Resource::Nproc, limit).unwrap();
    let refused = server.run().unwrap_err().to_string();
    assert!(refused.starts_with("cannot start 10"), "{refused}");
    assert!(refused.contains(" threads: "), "{refused}");
}
