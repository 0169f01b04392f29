//! `adverb store`: the program, and a server with clients of TCP and of RDMA that are killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::server::Server;
use crate::common::{Place, end_of, not_run, signal, wait_for};

#[test]
fn a_store_checks_all_values_on_every_device() {
    for device in [
        "",
        "--processes",
        "--device soft@127.46.1.1,soft@127.46.1.2",
        "--device model:cx3_fdr_nurdma --machines 2",
        "--workers 3",
        "--workers 2 --processes",
        "--workers 3 --device model:cx3_fdr_nurdma",
    ] {
        let place = Place::new();
        let load = "--clients 2 --connections 3 --requests 500 --items 1000 --put 0.2";
        let record = place
            .run(&format!("store {load} {device} --json"))
            .ok()
            .record();
        let metrics = &record["metrics"];
        assert_eq!(metrics["requests"], 3000, "{record}");
        assert_eq!(
            (&metrics["misses"], &metrics["evicted"]),
            (&0.into(), &0.into())
        );
        assert!(
            metrics["checked"]["values"].as_u64().unwrap() > 2000,
            "{record}"
        );
        assert_eq!(record["params"]["value_bytes"], 67);
        assert!(place.shm_files().is_empty(), "{device}");
    }
}

/// A store that evicts, so that blocks are used again and again.
#[test]
fn a_million_operations_return_no_wrong_value() {
    let load = "--connections 32 --requests 31250 --put 0.3 --items 20000 --memory 1M";
    let record = Place::new()
        .run(&format!("store {load} --json"))
        .ok()
        .record();
    let metric = |name: &str| record["metrics"][name].as_u64().unwrap();
    assert_eq!(metric("requests"), 1_000_000);
    let values = record["metrics"]["checked"]["values"].as_u64().unwrap();
    // The others are PUTs.
    let gets = values + metric("misses");
    assert!((690_000..710_000).contains(&gets), "{record}");
    assert!(values > 100_000 && metric("evicted") > 0, "{record}");
}

#[test]
fn bad_sizes_of_a_store_are_refused() {
    let place = Place::new();
    for (args, why) in [
        ("--value 0", "--value 0 B: expected 1 B to 1 MiB"),
        ("--value 2M", "--value 2 MiB: expected 1 B to 1 MiB"),
        (
            "--value 1M --memory 4M --connections 5",
            "no room for a value of 1 MiB for each of 5 connections",
        ),
        ("--memory 3G", "would take more than 2 GiB of memory"),
        (
            "--workers 3 --value 1M --memory 4M --connections 4",
            "for each of 4 connections; expected at least 6 MiB",
        ),
        (
            "--workers 5 --connections 4",
            "4 connections do not suffice for 5 workers",
        ),
        (
            "--workers 5 --connections 8 --items 4",
            "4 items do not suffice for 5 workers",
        ),
        (
            "--server 127.0.0.1:1 --workers 2",
            "--workers: the server at 127.0.0.1:1 is running",
        ),
        (
            "--server 127.0.0.1:1 --device model:cx3",
            "a model runs in virtual time",
        ),
        ("serve --memory 63", "--memory 63 B: expected at least 64 B"),
        (
            "serve --max-value 0",
            "--max-value 0 B: expected at least 1 B",
        ),
        ("serve --threads 0", "invalid count '0'"),
    ] {
        let ended = place.run(&format!("store {args}"));
        assert!(ended.refused(2).contains(why), "{args}: {}", ended.talk);
    }
    let ended = place.run("store serve --listen 192.0.2.1:11211");
    assert!(
        ended.failed(1).contains("cannot listen on 192.0.2.1:11211"),
        "{}",
        ended.talk
    );
    let ended = place.run("store --server 127.0.0.1:1 --requests 1");
    assert!(ended.failed(1).contains("127.0.0.1:1"), "{}", ended.talk);
}

/// A client of TCP.
struct Tcp(BufReader<TcpStream>);

impl Tcp {
    fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(&server.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Tcp(BufReader::new(stream))
    }

    fn line(&mut self, command: &str) -> String {
        self.0.get_mut().write_all(command.as_bytes()).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    /// Reads a number of `stats`.
    fn stat(&mut self, name: &str) -> u64 {
        let mut line = self.line("stats\r\n");
        let mut found = None;
        while line != "END\r\n" {
            if let Some(value) = line.strip_prefix(&format!("STAT {name} ")) {
                found = value.trim().parse().ok();
            }
            line.clear();
            self.0.read_line(&mut line).unwrap();
        }
        found.unwrap()
    }
}

fn serve(place: &Place) -> Server {
    Server::run(place.command("store serve --listen 127.0.0.1:0 --memory 256K --threads 2"))
}

/// The store has room for few more values than its clients may hold: a block that a dead client kept would be missed.
#[test]
fn killed_clients_leave_nothing_torn_and_nothing_held() {
    let place = Place::new();
    let server = serve(&place);
    let mut tcp = Tcp::new(&server);
    let load = format!(
        "store --server {} --connections 16 --items 500 --put 0.5 --value 1000",
        server.address
    );
    for round in 0..5 {
        let client = place.spawn(&format!("{load} --requests 1000000"));
        let stored = tcp.stat("total_items");
        wait_for("requests", || tcp.stat("total_items") > stored + 2000);
        // A client of TCP in the middle of a value.
        let mut half = Tcp::new(&server);
        half.0
            .get_mut()
            .write_all(b"set half 0 0 100000\r\nhalf")
            .unwrap();
        signal(client.id(), Signal::KILL);
        drop(half);
        let ended = end_of(client);
        assert_eq!(ended.code, None, "{}", ended.talk);
        assert_eq!(tcp.line("get half\r\n"), "END\r\n", "round {round}");
    }
    wait_for("the ends of connections", || {
        tcp.stat("curr_connections") == 1
    });
    // Only if no block is held there is room for one of 256 KiB.
    tcp.0
        .get_mut()
        .write_all(b"flush_all\r\nset whole 0 0 262144\r\n")
        .unwrap();
    tcp.0.get_mut().write_all(&[b'w'; 262_144]).unwrap();
    assert_eq!(tcp.line("\r\n"), "OK\r\n");
    assert_eq!(tcp.line(""), "STORED\r\n");
    let after = place
        .run(&format!("{load} --requests 2000 --json"))
        .ok()
        .record();
    assert_eq!(after["metrics"]["requests"], 32_000, "{after}");
    assert_eq!(server.stop(), Some(0));
    wait_for("no shared memory", || place.shm_files().is_empty());
}

#[test]
fn clients_of_a_killed_server_end_with_an_error() {
    let place = Place::new();
    let server = serve(&place);
    let load = format!(
        "store --server {} --connections 4 --requests 100000000",
        server.address
    );
    let client = place.spawn(&load);
    let mut tcp = Tcp::new(&server);
    wait_for("requests", || tcp.stat("total_items") > 10_000);
    signal(server.pid(), Signal::KILL);
    let ended = end_of(client);
    assert!(!ended.failed(1).is_empty(), "{}", ended.talk);
    let mut rest = Vec::new();
    assert!(tcp.0.read_to_end(&mut rest).is_err() || rest.is_empty());
    drop(server);
    // The next program of the device removes what the killed one left.
    place.run("store --requests 10").ok();
    assert!(place.shm_files().is_empty());
}

/// memaslap compares each value that it gets with the one that it has set.
#[test]
fn memaslap_verifies_every_value() {
    let place = Place::new();
    let server = Server::run(place.command("store serve --listen 127.0.0.1:0 --threads 2"));
    let run = Command::new("memcaslap")
        .args(["--servers", &server.address, "--threads", "2"])
        .args(["--concurrency", "16", "--execute_number", "50000"])
        .args(["--verify", "1.0"])
        .output();
    let Ok(done) = run else {
        return not_run(
            "memaslap as a client of the store",
            "libmemcached-tools is not installed",
        );
    };
    let out = String::from_utf8_lossy(&done.stdout);
    let talk = String::from_utf8_lossy(&done.stderr);
    let number = |name: &str| -> u64 {
        let mut lines = out.lines();
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let found = found.unwrap_or_else(|| panic!("{name}: {out}{talk}"));
        found.parse().unwrap()
    };
    assert!(done.status.success(), "{out}{talk}");
    assert!(
        number("cmd_get") > 20_000 && number("cmd_set") > 2000,
        "{out}"
    );
    for wrong in ["get_misses", "verify_misses", "verify_failed"] {
        assert_eq!(number(wrong), 0, "{wrong}: {out}{talk}");
    }
    let mut tcp = Tcp::new(&server);
    assert!(tcp.stat("get_hits") >= number("cmd_get"));
}
