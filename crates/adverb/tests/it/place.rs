//! `adverb place` on files of a machine with two NUMA nodes, and on this machine.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Command;

use crate::common::{Place, end_of, not_run};
use insta::assert_snapshot;

const STORE: &str =
    "7f0000000000 default file=/dev/shm/store dirty=16384 N1=16384 kernelpagesize_kB=4\n";

/// Copies the files of a machine with two nodes of four CPUs, whose process 7 has a thread on each node, to `copy`.
fn machine(place: &Place, numa_maps: &str) {
    let files = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../devices/host/testdata/two-nodes"
    );
    let copy = place.path("copy");
    let copied = Command::new("cp").arg("-r").arg(files).arg(&copy).status();
    assert!(copied.unwrap().success());
    fs::write(copy.join("proc/7/numa_maps"), numa_maps).unwrap();
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn idle_memory_should_be_on_the_nics_node_and_contended_memory_on_the_other_one() {
    let place = Place::new();
    machine(&place, STORE);
    let advised = |how: &str| {
        let line = format!("place 7 --root copy {how} --json");
        place.run(&line).ok().json().remove(0)
    };
    let idle = advised("--nic-node 0 --reads 1 --size 64");
    assert_eq!(
        (&idle["node"], &idle["reads_counted"]),
        (&0.into(), &false.into()),
        "{idle}"
    );
    assert_eq!(idle["move_to"], 0, "{idle}");
    assert_eq!(idle["memory_bytes"]["1"], 64 << 20);
    assert_eq!(idle["threads"]["1"], 1);
    let contended =
        advised("--nic-node 0 --reads 0 --size 8 --workers 8 --worker-mix 10:90 --outstanding 64");
    assert_eq!(contended["node"], 1, "{contended}");
    assert_eq!(contended["move_to"], serde_json::Value::Null, "it is there");
    assert!(contended["gain"].as_f64().unwrap() > 0.2, "{contended}");
    let near_the_workers =
        advised("--nic-node 1 --reads 0 --size 8 --workers 8 --worker-mix 10:90 --outstanding 64");
    assert_eq!(near_the_workers["move_to"], 0, "{near_the_workers}");
}

#[test]
fn the_advice_comes_with_its_evidence() {
    let place = Place::new();
    machine(&place, STORE);
    let line = "place 7 --root copy --nic-node 1 --size 8 --reads 0 --workers 8 --worker-mix 10:90 --outstanding 64";
    let said = words(&place.run(line).ok().out);
    for part in [
        "process 7 (kv), NIC on node 1",
        "0 % READs of 8 B (assumed), 8 clients with 64 outstanding, 8 threads of the program on the same words.",
        "model:cx3_fdr_nurdma predicts",
        "The accessible memory should be on node 0",
        "(100 % of it is on node 1)",
        "Threads of the program (1 on the NIC's node, 1 on others) load a line of it in 104 ns",
        "the advice is for 1 of these for each request (--accesses)",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// The program's only thread is on the other node than the NIC, so that its accesses cross if the memory is the NIC's.
#[test]
fn accesses_of_the_program_change_the_advice() {
    let place = Place::new();
    machine(&place, STORE);
    fs::remove_dir_all(place.path("copy/proc/7/task/8")).unwrap();
    let advised = |accesses: &str| {
        let how = "--nic-node 1 --reads 1 --size 64 --gain 0 --json";
        let line = format!("place 7 --root copy {how} --accesses {accesses}");
        place.run(&line).ok().json().remove(0)
    };
    let number = |json: &serde_json::Value, name: &str| json[name].as_f64().unwrap();
    let few = advised("0");
    assert_eq!(few["node"], 1, "{few}");
    // A line from the other node: memory.numa_extra_ns of the preset.
    let (near, far) = (number(&few, "near_load_ns"), number(&few, "far_load_ns"));
    assert!((near - far - 37.0).abs() < 0.1, "{few}");
    let equal = number(&few, "equal_accesses");
    assert_eq!(advised(&(equal * 0.9).to_string())["node"], 1, "{few}");
    let many = advised(&(equal * 1.1).to_string());
    assert_eq!((&many["node"], &many["move_to"]), (&0.into(), &0.into()));
}

#[test]
fn what_cannot_be_placed_is_refused_in_one_line() {
    let place = Place::new();
    machine(
        &place,
        "00400000 default file=/bin/kv mapped=3 N0=3 kernelpagesize_kB=4\n",
    );
    let refused = |line: &str, code| place.run(line).refused(code).to_owned();
    assert_snapshot!(refused("place 7 --root copy", 2), @"error: the NIC's node is not known: name it with --nic-node (0, 1), or the NIC with --device verbs:NAME");
    assert_snapshot!(refused("place 7 --root copy --nic-node 2", 2), @"error: --nic-node 2: the machine has nodes 0, 1");
    assert_snapshot!(refused("place 7 --root copy --nic-node 0 --move", 2), @"error: --move: the processes below --root are not running here; leave one of them out");
    assert_snapshot!(refused("place 7 --root copy --nic-node 0 --size 0", 2), @"error: --size 0 B: expected 1 B to 1 MiB");
    assert_snapshot!(refused("place 7 --root copy --nic-node 0 --accesses nan", 2), @"error: --accesses: invalid number 'nan': expected 0 to 1000000, such as 0.5 or 2");
    assert_snapshot!(refused("place 7 --root copy --nic-node 0", 1), @"error: process 7 has no memory that it has written");
    assert_snapshot!(refused("place 7 --root copy --nic-node 0 --mapping shm", 1), @"error: process 7 has no memory in mappings whose name contains 'shm'");
    assert_snapshot!(refused("place 8 --root copy", 1), @"error: there is no process 8");
    fs::remove_file(place.path("copy/proc/7/numa_maps")).unwrap();
    assert_snapshot!(refused("place 7 --root copy --nic-node 0", 1), @"error: cannot read where the memory of process 7 is (numa_maps): No such file or directory (os error 2)");
}

#[test]
fn a_machine_with_one_node_has_nothing_to_choose() {
    let place = Place::new();
    let path = place.path("copy/sys/devices/system/node");
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("online"), "0\n").unwrap();
    fs::create_dir_all(place.path("copy/proc/7")).unwrap();
    fs::write(place.path("copy/proc/7/comm"), "kv\n").unwrap();
    let said = words(&place.run("place 7 --root copy").ok().out);
    assert_snapshot!(said, @"This machine has one NUMA node (0): all memory of process 7 (kv) is there, and there is nothing to choose.");
    if adverb_host::nodes().len() > 1 {
        return not_run(
            "adverb place on a machine with one node",
            "this one has several",
        );
    }
    let here = words(&place.run(&format!("place {}", std::process::id())).ok().out);
    assert!(here.contains("there is nothing to choose"), "{here}");
}

#[test]
fn a_watched_program_is_examined_until_it_ends() {
    let place = Place::new();
    machine(&place, STORE);
    let mut watching = place.spawn("place 7 --root copy --nic-node 0 --watch 10ms --json");
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        assert!(lines.next().unwrap().unwrap().contains("near_per_s"));
    }
    fs::rename(place.path("copy/proc/7"), place.path("copy/proc/ended")).unwrap();
    lines.for_each(drop);
    let ended = end_of(watching);
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
}

#[test]
fn an_unchanged_evaluation_is_one_line() {
    let place = Place::new();
    machine(&place, STORE);
    let mut watching = place.spawn("place 7 --root copy --nic-node 0 --watch 10ms");
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let same = |line: &Result<String, _>| line.as_ref().unwrap() == "The same as before.";
    assert!(lines.next().unwrap().unwrap().starts_with("process 7 (kv)"));
    assert!(lines.any(|line| same(&line)));
    assert!(same(&lines.next().unwrap()));
    let moved = STORE.replace("N1=16384", "N0=16384");
    // Nobody may read half of it.
    fs::write(place.path("moved"), moved).unwrap();
    fs::rename(place.path("moved"), place.path("copy/proc/7/numa_maps")).unwrap();
    assert!(lines.any(|line| line.unwrap().contains(" 0    64.0 MiB")));
    fs::write(place.path("copy/proc/7/stat"), "7 (kv) Z 1").unwrap();
    lines.for_each(drop);
    let ended = end_of(watching);
    assert_eq!(ended.code, Some(0), "{}", ended.talk);
    assert!(ended.talk.contains("process 7 has ended"), "{}", ended.talk);
}
