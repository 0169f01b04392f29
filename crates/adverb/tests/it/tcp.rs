//! `ping` and `blast` over the kernel's TCP.

use std::net::TcpListener;

use crate::common::server::Server;
use crate::common::{Place, cpu_time_of, end_of, sides_of, signal, wait_for};
use rustix::process::Signal;
use serde_json::Value;

const FEW: &str = "--iters 50 --json";

fn measured(args: &str) -> Value {
    Place::new().run(&format!("{args} {FEW}")).record()
}

#[test]
fn ping_and_blast_poll_or_sleep_and_their_records_name_the_kind() {
    for program in ["ping", "blast"] {
        for completion in ["poll", "event"] {
            for size in ["1", "64", "100K"] {
                let args = format!("{program} --op send --device tcp --size {size}");
                let record = measured(&format!("{args} --completion {completion} --verify"));
                assert_eq!(record["device"]["kind"], "tcp", "{record}");
                assert_eq!(record["device"]["name"], "tcp");
                assert_eq!(record["params"]["transport"], "tcp");
                assert_eq!(record["params"]["path_mtu_bytes"], Value::Null);
                assert_eq!(
                    record["metrics"]["repetitions"].as_array().unwrap().len(),
                    5
                );
                for figure in ["mean", "p50", "p99", "max"] {
                    let time = record["metrics"]["one_way_ns"][figure].as_f64();
                    assert!(time.is_some_and(|ns| ns > 0.0), "{figure}: {record}");
                }
                for side in ["active", "passive"] {
                    assert!(record["metrics"]["cpu"][side]["system"].is_number());
                }
            }
        }
    }
}

#[test]
fn a_duration_ends_runs_early_and_both_sides_agree_on_the_messages() {
    for program in ["ping", "blast"] {
        let args = format!("{program} --op send --device tcp --duration 100ms --verify --json");
        let record = Place::new().run(&args).record();
        let sum: f64 = record["metrics"]["repetitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|repetition| repetition["iters"].as_f64().unwrap())
            .sum();
        assert!(sum > 0.0, "{record}");
    }
}

#[test]
fn options_that_tcp_lacks_are_refused_by_name() {
    let place = Place::new();
    for (args, words) in [
        ("ping --op read --device tcp", "tcp has no operation read"),
        (
            "ping --op send --device tcp --inline",
            "tcp has no inline data",
        ),
        ("ping --op send --device tcp --size 0", "1 B to 64 MiB"),
        (
            "blast --op send --device tcp --post list",
            "tcp has no posting of lists",
        ),
        (
            "blast --op send --device tcp --signal periodic",
            "tcp has no signaling periodic",
        ),
        (
            "blast --op send --device tcp --qps 2",
            "tcp has no queue pairs",
        ),
        (
            "blast --op send --device tcp --bidirectional",
            "--bidirectional",
        ),
        ("blast --op send --device tcp --mtu 1024", "kernel TCP"),
        ("blast --op send --device tcp --timeout 14", "kernel TCP"),
        (
            "blast --op send --device tcp --traffic-class 1",
            "kernel TCP",
        ),
        ("blast --op send --device tcp --api wr", "--api wr: tcp"),
        ("blast --op send --device tcp --loss 1%", "soft@ADDR"),
        (
            "blast --op send --device tcp --transport ud",
            "--transport ud: tcp has no queue pairs",
        ),
        ("blast --op send --device tcp --gid 1", "--gid: tcp"),
        ("ping --op send --transport tcp", "name --device tcp"),
        (
            "ping --op write --device model:cx3 --over tcp",
            "tcp has no operation write",
        ),
        (
            "connect --device model:cx3 --over tcp --size 1M",
            "TCP on model:cx3 registers no memory",
        ),
        ("connect --transport tcp", "name --device tcp"),
        (
            "ping --op send --device tcp --all-pairs",
            "--all-pairs: tcp",
        ),
        (
            "sequencer --by atomics --device tcp",
            "--by atomics: TCP has no queue pairs",
        ),
        (
            "sequencer --device tcp --qps 3",
            "--qps: over TCP a core sends all answers",
        ),
        ("kv --device tcp", "tcp: this program needs an RDMA device"),
        (
            "study --device tcp",
            "--device tcp: the studies are of RDMA",
        ),
        (
            "doctor --device tcp",
            "--device tcp: the checks are of RDMA",
        ),
        (
            "ping --op send --device tcp@nowhere",
            "invalid address 'nowhere'",
        ),
    ] {
        let ended = place.run(args);
        let line = ended.refused(2);
        assert!(line.contains(words), "{args}: {line}");
    }
}

#[test]
fn a_port_in_use_and_a_foreign_address_are_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    for (device, words) in [
        (format!("tcp@{at}"), "Address already in use"),
        ("tcp@192.0.2.1".to_owned(), "name an address of this host"),
    ] {
        let ended = Place::new().run(&format!("ping --op send --device {device}"));
        let line = ended.refused(1);
        assert!(
            line.contains("cannot listen at") && line.contains(words),
            "{line}"
        );
    }
}

#[test]
fn a_side_that_dies_in_the_middle_ends_the_other() {
    for program in ["ping", "blast"] {
        for victim in ["active", "passive"] {
            let place = Place::new();
            let child = place.spawn(&format!(
                "{program} --op send --device tcp --duration 3600s"
            ));
            let mut sides = None;
            wait_for("both sides", || {
                sides = sides_of(child.id());
                sides.is_some()
            });
            let (active, passive) = sides.unwrap();
            wait_for("work", || cpu_time_of(active).own > 20);
            signal(
                if victim == "active" { active } else { passive },
                Signal::KILL,
            );
            let ended = end_of(child);
            assert_eq!(ended.code, Some(1), "{}", ended.talk);
            let reason = format!("{victim} side: killed by signal 9");
            assert!(ended.talk.contains(&reason), "{}", ended.talk);
        }
    }
}

#[test]
fn the_passive_side_runs_at_a_server_and_the_record_names_its_host() {
    let place = Place::new();
    let server = Server::start(&place);
    for args in [
        "ping --op send",
        "blast --op send",
        "blast --op send --reversed",
    ] {
        let peer = &server.address;
        let record = place
            .run(&format!("{args} --device tcp --verify --peer {peer} {FEW}"))
            .record();
        assert_eq!(record["device"]["kind"], "tcp", "{record}");
        assert!(record["provenance"]["passive"].is_object(), "{record}");
    }
    let args = format!(
        "ping --op send --device tcp --peer {} --duration 3600s",
        server.address
    );
    let child = place.spawn(&args);
    let side = server.side();
    wait_for("work", || cpu_time_of(side).own > 20);
    signal(side, Signal::KILL);
    let ended = end_of(child);
    assert_eq!(ended.code, Some(1), "{}", ended.talk);
    assert!(
        ended.talk.contains("passive side: killed by signal 9"),
        "{}",
        ended.talk
    );
}

#[test]
fn reports_and_comparisons_keep_tcp_apart() {
    let place = Place::new();
    for device in ["tcp", "soft"] {
        let args = format!("ping --op send --iters 50 --device {device} --out {device}");
        place.run(&args).ok();
    }
    let page = std::fs::read_to_string(place.path("tcp/report.html")).unwrap();
    assert!(page.contains("TCP is the baseline, not RDMA"));
    let ended = place.run("compare soft tcp");
    let line = ended.refused(2);
    assert!(
        line.contains("soft and tcp are different devices"),
        "{line}"
    );
}

#[test]
fn a_model_has_tcp_for_comparison() {
    let place = Place::new();
    for (args, title) in [
        ("ping --op send", "ping send on model:cx3: polling sockets"),
        (
            "blast --op send --size 64K --completion event",
            "blast send on model:cx3: sleeping sockets",
        ),
        (
            "connect --connections 10",
            "connect on model:cx3: 10 connections",
        ),
    ] {
        let ended = place.run(&format!("{args} --device model:cx3 --over tcp"));
        let table = ended.ok().out;
        assert!(table.contains(title), "{table}");
        assert!(!table.contains("Not modelled"), "{table}");
    }
}
