//! `adverb ping --all-pairs`: a ping and blasts between every two of several hosts.

use crate::common::server::Server;
use crate::common::{Place, end_of, records, signal, wait_for};
use rustix::process::Signal;
use serde_json::Value;

/// Servers at loopback addresses of their own, from 127.`net`.0.2 on.
fn serve(place: &Place, net: u8, n: u8) -> Vec<Server> {
    let start = |host: u8| {
        let bind = format!("127.{net}.0.{host}:0");
        Server::start_with(place, &format!("--bind {bind}"))
    };
    (2..2 + n).map(start).collect()
}

/// `adverb ping --all-pairs` at 127.`net`.0.1, with these servers.
fn args(net: u8, servers: &[Server], more: &str) -> String {
    let line = format!("ping --op send --all-pairs --device soft@127.{net}.0.1 {more}");
    let with = |line, server: &Server| format!("{line} --peer {}", server.address);
    servers.iter().fold(line, with)
}

/// Last byte of the addresses in `from` and `to`, which are the number of the host plus one.
fn ends(record: &Value) -> (u32, u32) {
    let host = |name: &str| {
        let name = record["params"][name].as_str().unwrap();
        let (_, byte) = name.rsplit_once('.').unwrap();
        byte.parse::<u32>().unwrap() - 1
    };
    (host("from"), host("to"))
}

#[test]
fn all_pairs_of_four_hosts_are_measured_once_or_in_both_directions() {
    let place = Place::new();
    let servers = serve(&place, 64, 3);
    let out = args(64, &servers, "--size 4K --duration 20ms --out pairs");
    let ended = place.run(&out).ok();

    let mut measured = Vec::new();
    for record in records(&place.path("pairs")) {
        let (from, to) = ends(&record);
        assert_eq!(record["status"], "ok", "{record}");
        assert_eq!(record["device"]["name"], "soft@127.64.0.1");
        let theirs = format!("soft@127.64.0.{}", to + 1);
        assert_eq!(
            record["roles"][1]["device"].as_str(),
            (to > 0).then_some(&*theirs)
        );
        let passive = record["provenance"]["passive"]["device"]["port"].as_str();
        assert!(
            passive.unwrap().contains(&theirs["soft@".len()..]),
            "{record}"
        );
        // Two servers on one machine do not choose the same core.
        let core = |side: &str| record["params"][side].as_u64();
        let (active, passive) = (core("active_core"), core("passive_core"));
        assert!(active.is_none() || active != passive, "{record}");
        measured.push((record["program"].as_str().unwrap().to_owned(), from, to));
    }
    let pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)];
    let expected = pairs.iter().flat_map(|(a, b)| {
        [("ping", *a, *b), ("blast", *a, *b), ("blast", *b, *a)]
            .map(|(program, from, to)| (program.to_owned(), from, to))
    });
    assert_eq!(measured, expected.collect::<Vec<_>>());

    let out_lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!(out_lines[0], "hosts:");
    assert!(out_lines[4].starts_with("   3  ") && out_lines[4].ends_with(":soft@127.64.0.4"));
    assert!(
        ended
            .out
            .contains("\nping send of 4 KiB on soft@127.64.0.1: one-way time, ")
    );
    assert!(
        ended
            .out
            .contains("\nblast write of 4 KiB on soft@127.64.0.1: throughput, ")
    );
    let values = |line: &&str| line.split_whitespace().count();
    let first = out_lines
        .iter()
        .position(|line| line.starts_with("ping send"))
        .unwrap();
    let rows: Vec<usize> = out_lines[first + 2..first + 6].iter().map(values).collect();
    assert_eq!(rows, [4, 3, 2, 1], "{}", ended.out);
    assert!(
        out_lines.iter().all(|line| line.chars().count() <= 100),
        "{}",
        ended.out
    );
    assert_eq!(
        ended.out.matches("more than 1.5 times slower than").count(),
        2,
        "{}",
        ended.out
    );

    let page = std::fs::read_to_string(place.path("pairs/report.html")).unwrap();
    assert_eq!(page.matches("class=\"pt\"").count(), 18);
    assert!(page.contains("rows from, columns to"));

    let again = args(
        64,
        &servers,
        "--size 4K --duration 20ms --out pairs --resume --json",
    );
    assert_eq!(place.run(&again).ok().out, "");
    let json = args(64, &servers[..1], "--size 4K,8K --duration 20ms --json");
    let sizes = place.run(&json).ok().json();
    assert_eq!(sizes.len(), 6);
    assert_eq!(sizes[3]["params"]["size_bytes"], 8192);
}

#[test]
fn pairs_with_a_server_that_died_are_named_and_the_others_are_kept() {
    let place = Place::new();
    let mut servers = serve(&place, 65, 3);
    let out = args(65, &servers, "--duration 100ms --out pairs");
    let child = place.spawn(&out);
    wait_for("a record", || records(&place.path("pairs")).len() > 1);
    // Host 3.
    let dead = servers.pop().unwrap();
    signal(dead.pid(), Signal::KILL);
    let ended = end_of(child);
    assert_eq!(ended.code, Some(1), "{}\n{}", ended.out, ended.talk);

    let of_the_dead = |record: &Value| ends(record).0 == 3 || ends(record).1 == 3;
    let records = records(&place.path("pairs"));
    assert_eq!(records.len(), 18);
    for record in &records {
        let status = if of_the_dead(record) { "failed" } else { "ok" };
        assert_eq!(record["status"], status, "{record}");
    }
    let last = ended.talk.lines().last().unwrap();
    assert!(
        last.starts_with(
            "error: 9 of 18 measurements failed: ping 0 → 3, blast 0 → 3, blast 3 → 0, "
        ),
        "{last}"
    );
    assert!(
        ended
            .out
            .contains("3 of 6 pairs failed: 0 → 3, 1 → 3 and 2 → 3. Host 3 ("),
        "{}",
        ended.out
    );
}

#[test]
fn all_pairs_is_refused_for_programs_without_pairs() {
    let place = Place::new();
    let refused = |args: &str| place.run(args).refused(2).to_owned();
    assert_eq!(
        refused("ping --op send --all-pairs"),
        "error: --all-pairs needs another host; name at least one with --peer HOST, where `adverb serve` runs"
    );
    assert_eq!(
        refused("ping --op send --all-pairs --device model:cx3"),
        "error: --all-pairs: model:cx3 is a model, in which all pairs of hosts are alike; leave out --all-pairs, or name a real device"
    );
    assert_eq!(
        refused("ping --op send --all-pairs --place active=1 --peer nowhere"),
        "error: --place: --all-pairs runs both sides on every two hosts; leave it out"
    );
}

#[test]
fn several_addresses_of_one_host_are_hosts() {
    let place = Place::new();
    let device = "soft@127.66.0.1,soft@127.66.0.2,soft@127.66.0.3";
    let args = format!("ping --op send --all-pairs --device {device}");
    let ended = place.run(&format!("{args} --duration 20ms --json"));
    let records = ended.ok().json();
    let ends: Vec<_> = records.iter().map(ends).collect();
    assert_eq!(ends.len(), 9);
    assert_eq!(ends[6..], [(1, 2), (1, 2), (2, 1)]);
}
