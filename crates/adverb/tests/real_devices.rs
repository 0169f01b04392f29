//! The real program on a real device: the kernel's Soft-RoCE, in virtual machines.
//!
//! What is measured there is the time of an emulated processor: these tests are about what is
//! recorded, never how much.

#[path = "it/common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use adverb_units::Span;
use adverb_vm::{Ending, Lab, LabSpec, Machine, Output, Program, missing};
use common::{not_run, records, wait_for};
use serde_json::Value;

const ADVERB: &str = env!("CARGO_BIN_EXE_adverb");
/// How long a program may run, the server of all others included, on a host that does other work, too.
const LIMIT: Span = Span::from_secs(1200);
/// Where `adverb serve` listens.
const SERVE: u16 = 18600;

/// A single lab: on a host with two cores, machines that emulate more processors than that stall
/// each other for longer than a queue pair's timeout.
static ALONE: Mutex<()> = Mutex::new(());

/// Boots machines that have the program, or prints why it cannot.
fn boot(test: &str, spec: &LabSpec) -> Option<(Lab, MutexGuard<'static, ()>)> {
    // A failed test does not affect the next one.
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let missing: Vec<String> = missing().iter().map(ToString::to_string).collect();
    if !missing.is_empty() {
        not_run(test, &format!("needs the packages {}", missing.join(", ")));
        return None;
    }
    let lab = spec.boot().unwrap_or_else(|e| panic!("{e}"));
    Some((lab, alone))
}

/// The library of `verbs+cm:`, in the folders of Debian and Fedora.
fn librdmacm() -> Option<PathBuf> {
    let folders = [
        "/usr/lib/x86_64-linux-gnu",
        "/lib/x86_64-linux-gnu",
        "/usr/lib64",
    ];
    let paths = folders.map(|folder| Path::new(folder).join("librdmacm.so.1"));
    paths.into_iter().find(|path| path.is_file())
}

/// The names under which the device is to be measured: each way of connecting.
fn devices(test: &str) -> Vec<(&'static str, &'static str)> {
    let mut devices = vec![("verbs:rxe0", "exchange of queue pair numbers")];
    match librdmacm() {
        Some(_) => devices.push(("verbs+cm:rxe0", "librdmacm")),
        None => not_run(test, "needs the package librdmacm1"),
    }
    devices
}

fn adverb(args: &str) -> Program {
    let program = Program::new(ADVERB).args(args.split_whitespace());
    program.limit(LIMIT)
}

fn run(machine: &Machine, args: &str) -> Output {
    machine.run(&adverb(args)).unwrap_or_else(|e| panic!("{e}"))
}

#[track_caller]
fn ok(machine: &Machine, args: &str) -> String {
    let output = run(machine, args);
    let talk = String::from_utf8_lossy(&output.stderr);
    let out = String::from_utf8(output.stdout).unwrap();
    let ending = output.ending;
    assert_eq!(ending, Ending::Exited(0), "adverb {args}: {talk}{out}");
    out
}

fn json(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn one_host() {
    let Some((lab, _alone)) = boot("adverb on Soft-RoCE, one host", &LabSpec::one()) else {
        return;
    };
    let host = lab.machine(0);
    the_device_is_listed_with_its_gid(host);
    the_doctor_finds_it_in_order(host);
    every_operation_works_and_payload_arrives(host);
    for (device, connected_by) in devices("connections by verbs+cm:rxe0") {
        payload_arrives(host, "blast --op read", device, connected_by);
        connections_are_made_by_hand_or_by_the_manager(host, device);
    }
    requests_are_posted_through_the_extended_interface(host);
    a_gid_is_chosen_by_its_index_and_a_wrong_one_is_refused_by_name(host);
    a_port_that_is_down_is_refused_by_name(host);
}

#[test]
fn numbers_and_values_of_one_host() {
    let Some((lab, _alone)) = boot("sequencer and kv on Soft-RoCE", &LabSpec::one()) else {
        return;
    };
    let host = lab.machine(0);
    for (command, checked) in [
        ("sequencer --by rpc", Some("numbers")),
        (
            "sequencer --by rpc --batch 1 --outstanding 1",
            Some("numbers"),
        ),
        ("sequencer --by rpc-imm", Some("numbers")),
        ("sequencer --by atomics", Some("numbers")),
        ("kv --items 1000 --put 0.5", Some("values")),
        ("kv --items 1000 --by memory --reads 2", Some("values")),
        ("closed-loop --op write --inline", None),
    ] {
        let line = format!("{command} --device verbs:rxe0 --duration 300ms --json");
        let figures = json(&ok(host, &line)).remove(0);
        if let Some(checked) = checked {
            let count = figures["metrics"]["checked"][checked].as_u64();
            assert!(count.is_some_and(|count| count > 0), "{line}: {figures}");
        }
    }
}

fn the_device_is_listed_with_its_gid(host: &Machine) {
    let devices = json(&ok(host, "devices --json"));
    let rxe = devices.iter().find(|d| d["name"] == "rxe0").unwrap();
    assert_eq!(rxe["kind"], "verbs");
    let port = &rxe["ports"][0];
    assert_eq!(port["gid"], "::ffff:10.77.0.1", "{port}");
    assert_eq!(port["gid_type"], "RoCE v2");
    assert_eq!(rxe["details"]["driver"], "rdma_rxe");
}

fn the_doctor_finds_it_in_order(host: &Machine) {
    let report = ok(host, "doctor");
    assert!(report.contains("rxe0"), "{report}");
}

fn every_operation_works_and_payload_arrives(host: &Machine) {
    let cells = [
        "ping --op send --size 64 --inline",
        "ping --op send --completion event --size 3000",
        "ping --op write-imm --completion event --size 3000",
        "ping --op write --size 3000",
        "ping --op read --size 3000",
        "ping --op read --completion event --size 3000",
        "ping --op write-read --size 3000",
        "blast --op send --size 3000",
        "blast --op send --completion event --size 3000",
        "blast --op write-imm --size 3000",
        "blast --op write --completion event --size 3000",
        "blast --op write --size 64 --inline --buffers 16 --post list --signal periodic",
    ];
    for cell in cells {
        payload_arrives(host, cell, "verbs:rxe0", "exchange of queue pair numbers");
    }
}

fn payload_arrives(host: &Machine, cell: &str, device: &str, connected_by: &str) {
    let args = format!("{cell} --device {device} --iters 30 --verify --json");
    let record = &json(&ok(host, &args))[0];
    assert_eq!(record["status"], "ok", "{record}");
    assert_eq!(record["device"]["kind"], "verbs");
    let details = &record["provenance"]["device"];
    assert_eq!(details["GID type"], "RoCE v2", "{details}");
    assert_eq!(details["connected by"], connected_by, "{details}");
    assert!(
        record["counters"]["active"]["sent_pkts"].as_u64() > Some(30),
        "{record}"
    );
}

fn connections_are_made_by_hand_or_by_the_manager(host: &Machine, device: &str) {
    for more in ["", "--agents 2", "--rnr-retry 2"] {
        let args = format!("connect --connections 5 --messages 3 {more} --device {device} --json");
        let record = &json(&ok(host, &args))[0];
        let steps = &record["metrics"]["active"];
        let is_managed = device.starts_with("verbs+cm");
        assert_eq!(steps.get("connect_ns").is_some(), is_managed, "{record}");
        assert_eq!(steps.get("to_rtr_ns").is_some(), !is_managed, "{record}");
        for step in ["register_mr_ns", "first_message_ns", "to_err_ns"] {
            assert!(steps[step]["p50"].as_f64() > Some(0.0), "{record}");
        }
    }
}

/// The other cells are posted through the classic interface.
fn requests_are_posted_through_the_extended_interface(host: &Machine) {
    for program in [
        "ping --op write-imm --iters 30 --verify",
        "blast --op send --buffers 8 --post list --iters 300 --verify",
        "closed-loop --op read --duration 100ms",
        "kv --items 1000 --duration 100ms",
    ] {
        let args = format!("{program} --api wr --device verbs:rxe0 --json");
        let record = &json(&ok(host, &args))[0];
        assert_eq!(record["status"], "ok", "{record}");
        assert_eq!(record["params"]["api"], "wr", "{record}");
    }
}

fn a_gid_is_chosen_by_its_index_and_a_wrong_one_is_refused_by_name(host: &Machine) {
    let line = "ping --op send --iters 100 --json --device verbs:rxe0 --gid 0";
    let ended = run(host, line);
    let record: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(record["provenance"]["device"]["GID index"], "0", "{record}");
    let dead = run(host, "kv --device verbs:rxe0 --gid 200");
    let talk = String::from_utf8_lossy(&dead.stderr);
    assert!(!dead.success());
    assert!(
        talk.contains("no GID of index 200; it has 0, 1") && talk.lines().count() == 1,
        "{talk}"
    );
    let refused = run(host, "ping --op send --device verbs:rxe0:1:192.0.2.9");
    let talk = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.success());
    assert!(
        talk.starts_with("error: cannot open device verbs:rxe0:1:192.0.2.9: ")
            && talk.contains("10.77.0.1")
            && talk.lines().count() == 1,
        "{talk}"
    );
}

/// Last: the device is of no more use.
fn a_port_that_is_down_is_refused_by_name(host: &Machine) {
    let down = Program::new("ip").args(["link", "set", "dev", "eth0", "down"]);
    assert!(host.run(&down).unwrap().success());
    let refused = run(host, "ping --op send --device verbs:rxe0");
    let talk = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.success());
    assert!(
        talk.contains("port 1 is DOWN") && talk.contains("ip link set"),
        "{talk}"
    );
    let broken = run(host, "doctor");
    let report = String::from_utf8_lossy(&broken.stdout);
    assert!(
        !broken.success() && report.contains("ip link set eth0 up"),
        "{report}"
    );
}

#[test]
fn two_hosts() {
    let Some((lab, _alone)) = boot("adverb on Soft-RoCE, two hosts", &LabSpec::two()) else {
        return;
    };
    let (here, there) = (lab.machine(0), lab.machine(1));
    let served = there
        .start_program(&adverb("serve --bind 10.77.0.2"))
        .unwrap();
    there
        .wait_until_listening(SERVE, Span::from_secs(20))
        .unwrap();
    a_study_crosses_the_link(here);
    for (device, connected_by) in devices("two hosts by verbs+cm:rxe0") {
        messages_cross_the_link(here, device, connected_by);
    }
    if librdmacm().is_some() {
        a_group_is_joined_through_the_manager(here);
    }
    soft_is_refused_by_name(here);
    let device = devices("a peer that is killed, by verbs+cm:rxe0").pop();
    let (device, _) = device.expect("one at least");
    let args = format!("ping --op send --device {device} --peer 10.77.0.2 --duration 60s");
    let before = sent(here);
    let running = here.start_program(&adverb(&args)).unwrap();
    wait_for("the messages of a ping", || sent(here) > before + 100);
    served.kill().unwrap();
    a_peer_that_is_killed_ends_the_cell(&running.output().unwrap());
}

/// Packets that a machine's device has sent.
fn sent(machine: &Machine) -> u64 {
    let counter = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts";
    let text = String::from_utf8(machine.read_file(counter).unwrap()).unwrap();
    text.trim().parse().unwrap()
}

fn a_peer_that_is_killed_ends_the_cell(output: &Output) {
    let talk = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.ending, Ending::Exited(1), "{talk}");
    assert!(talk.contains("error: "), "{talk}");
}

fn a_study_crosses_the_link(here: &Machine) {
    let args = "study --only latency --repetitions 1 --device verbs:rxe0 --peer 10.77.0.2 --out /run/study";
    let printed = ok(here, args);
    assert!(printed.trim_end().ends_with("report.html"), "{printed}");
    let dir = tempfile::tempdir().unwrap();
    here.get("/run/study", dir.path()).unwrap();
    let records = records(&study_in(dir.path()));
    assert!(!records.is_empty());
    for record in &records {
        assert_eq!(record["status"], "ok", "{record}");
        let provenance = &record["provenance"];
        assert_eq!(provenance["host"], "vm1");
        assert_eq!(provenance["passive"]["host"], "vm2");
        assert_eq!(provenance["device"]["GID"], "::ffff:10.77.0.1");
        assert_eq!(provenance["passive"]["device"]["GID"], "::ffff:10.77.0.2");
        let sent = |side: &str| record["counters"][side]["sent_pkts"].as_u64();
        assert!(
            sent("active") > Some(0) && sent("passive") > Some(0),
            "{record}"
        );
    }
}

/// `get` may have made the folder itself or put it below.
fn study_in(dir: &Path) -> std::path::PathBuf {
    let below = dir.join("study");
    if below.is_dir() {
        below
    } else {
        dir.to_owned()
    }
}

/// Large WRITEs, which the passive side sleeps through, and each operation that it answers.
fn messages_cross_the_link(here: &Machine, device: &str, connected_by: &str) {
    let cells = [
        ("blast --op write --size 64K --buffers 8", 250),
        ("blast --op read --size 64K --buffers 8", 50),
        ("blast --op send --completion event", 50),
        ("ping --op write-imm --completion event", 50),
        ("ping --op write", 50),
    ];
    for (cell, packets) in cells {
        let args = format!("{cell} --device {device} --peer 10.77.0.2 --iters 50 --verify --json");
        let record = &json(&ok(here, &args))[0];
        assert_eq!(record["status"], "ok", "{record}");
        let sent = record["counters"]["active"]["sent_pkts"].as_u64();
        assert!(sent > Some(packets), "{record}");
        let provenance = &record["provenance"];
        assert_eq!(provenance["passive"]["host"], "vm2");
        for details in [&provenance["device"], &provenance["passive"]["device"]] {
            assert_eq!(details["connected by"], connected_by, "{details}");
        }
    }
}

/// The kernel's Soft-RoCE copies nothing to members on the sending host, so the subscriber is on the other one.
fn a_group_is_joined_through_the_manager(here: &Machine) {
    let args = "mcast publish --device verbs+cm:rxe0 --peer 10.77.0.2 --subscribers 1 --messages 200 --rate 200 --json";
    let record = &json(&ok(here, args))[0];
    let metrics = &record["roles"][1]["metrics"];
    assert!(metrics["messages"].as_u64() > Some(0), "{record}");
    assert!(metrics["join_ns"].as_f64() > Some(0.0), "{record}");
}

fn soft_is_refused_by_name(here: &Machine) {
    let refused = run(here, "ping --op send --peer 10.77.0.2");
    let talk = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.success());
    assert!(
        talk.contains("soft") && talk.contains("two machines") && talk.lines().count() == 1,
        "{talk}"
    );
}
