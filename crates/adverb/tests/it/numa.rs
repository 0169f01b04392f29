//! `closed-loop` and `open-loop` with NUMA placement and load, and the study of them.

use crate::common::{Place, records};
use insta::assert_snapshot;
use serde_json::Value;

fn number(record: &Value, path: &str) -> f64 {
    let value = record.pointer(path).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("{path} in {record}"))
}

fn record(line: &str) -> Value {
    Place::new().run(&format!("{line} --json")).record()
}

const CX3: &str = "--device model:cx3_fdr_nurdma --clients 8 --rd-atomic 1 --think 32ns";

/// Workers and one-sided requests meet in one cache line; every word is whole.
#[test]
fn workers_on_the_accessible_words_see_no_torn_word() {
    for op in ["write", "read"] {
        let line =
            "--size 8 --slots packed --clients 1 --workers 1 --worker-mix 1:1 --duration 200ms";
        let record = record(&format!("open-loop --op {op} {line}"));
        assert!(number(&record, "/metrics/requests_per_s") > 0.0);
        assert!(number(&record, "/metrics/words_checked") > 1e4, "{record}");
        assert_eq!(number(&record, "/metrics/words_torn"), 0.0, "{record}");
        assert_eq!(record["params"]["worker_writes"], 0.5);
    }
}

#[test]
fn memory_is_bound_to_a_node_and_the_record_contains_it() {
    let place = Place::new();
    let line = "closed-loop --op read --clients 1 --numa-memory nic --numa-client 0 --duration 50ms --json";
    let ended = place.run(line);
    if ended.talk.contains("cannot allocate memory on NUMA node") {
        eprintln!("NOT RUN: memory bound to a NUMA node: the system refuses set_mempolicy");
        return;
    }
    let record = ended.record();
    assert_eq!(record["params"]["numa_memory"], "nic");
    for role in record["roles"].as_array().unwrap() {
        assert_eq!(role["metrics"]["memory_node"], 0, "{role}");
    }
}

#[test]
fn threads_with_arrays_of_their_own_load_the_machine() {
    let line = "open-loop --op read --clients 1 --load 1 --load-size 64K --flush --duration 100ms";
    let record = record(line);
    assert!(number(&record, "/metrics/load_accesses") > 1e4, "{record}");
    assert_eq!(record["params"]["load_bytes"], 65536);
    assert_eq!(record["params"]["flush"], true);
}

/// The study's inversion: a line that workers fight for is nearer to the NIC on the other node.
#[test]
fn the_other_node_is_slower_alone_and_faster_with_workers() {
    let rate = |line: &str| number(&record(&format!("{line} {CX3}")), "/metrics/requests_per_s");
    let read = |node: &str| {
        rate(&format!(
            "open-loop --op read --size 64 --numa-memory {node}"
        ))
    };
    let ratio = read("other") / read("nic");
    assert!((0.93..0.95).contains(&ratio), "{ratio}");
    let write = |node: &str| {
        let how = "--op write --size 8 --slots packed --workers 16 --worker-mix 10:90";
        rate(&format!("open-loop {how} --numa-memory {node}"))
    };
    // Published with 16 threads: 1.75.
    assert!(write("other") > write("nic") * 1.5);
}

#[test]
fn what_only_a_model_can_change_changes_its_rate() {
    let rate = |how: &str| {
        let line = format!("open-loop --slots packed --op {how} {CX3}");
        number(&record(&line), "/metrics/requests_per_s")
    };
    assert!(rate("write --size 8 --ddio off") < 0.9 * rate("write --size 8"));
    // PCIe limits WRITEs of 4 KiB.
    assert!(rate("read --size 4K --link-mtu 4096") > rate("read --size 4K"));
}

#[test]
fn a_path_mtu_beyond_the_buffers_of_a_preset_is_refused() {
    let place = Place::new();
    let preset = "extends = \"cx3\"\n[link]\n\
                  buffer_bytes = { value = 2048, source = \"test\" }\n\
                  mtu_bytes = { value = 2048, source = \"test\" }\n";
    std::fs::write(place.path("small.toml"), preset).unwrap();
    let line = "closed-loop --op read --preset small.toml --link-mtu 4096";
    let refused = place.run(line).refused(1).to_owned();
    assert!(
        refused.contains("exceeds link.buffer_bytes = 2048"),
        "{refused}"
    );
}

/// The server's core takes turns with the load on its node, and the NIC's accesses cross to the other node.
#[test]
fn a_store_is_slower_under_load_on_its_node_and_records_where_it_is() {
    let rate = |how: &str| {
        let line =
            "store --connections 16 --requests 200 --items 200 --device model:cx3_fdr_nurdma";
        let record = record(&format!("{line} {how}"));
        number(&record, "/metrics/requests_per_s")
    };
    let alone = rate("--numa-server nic");
    assert!(rate("--numa-server other") <= alone);
    // The server's thread loads keys and values over the interconnect.
    let apart = rate("--numa-server other --numa-memory nic");
    assert!(apart < alone, "{apart} and {alone}");
    let bound = rate("--numa-server nic --load 48 --numa-load nic");
    let agnostic = rate("--numa-server nic --load 48");
    assert!(
        bound < agnostic && agnostic < alone,
        "{bound} {agnostic} {alone}"
    );
    let record = record("store --requests 200 --items 200 --load 1 --load-size 64K");
    assert!(number(&record, "/metrics/load_accesses") > 0.0, "{record}");
    assert_eq!(record["params"]["load_threads"], 1);
    let refused = |line: &str| Place::new().run(line).refused(2).to_owned();
    assert_snapshot!(refused("store --server 127.0.0.1:1 --load 1"), @"error: --load: the server at 127.0.0.1:1 is running, and nothing here changes it; leave it out");
    assert_snapshot!(refused("store --numa-load nic"), @"error: --numa-load nic: there are no such threads; add --load N, or leave it out");
}

/// Data that threads of the NIC's node load from the other one cross in the direction of READs' data.
#[test]
fn arrays_of_a_load_are_placed_and_leave_reads_most_of_the_interconnect() {
    let load = |array: &str| {
        let load = format!("--load 48 --numa-load nic --numa-load-memory {array}");
        record(&format!(
            "open-loop --op read --size 64 --numa-memory other {load} {CX3}"
        ))
    };
    let (near, far) = (load("nic"), load("other"));
    assert_eq!(far["params"]["numa_load_memory"], "other");
    let rate = |record| number(record, "/metrics/requests_per_s");
    let ratio = rate(&far) / rate(&near);
    assert!((0.98..1.005).contains(&ratio), "{ratio}");
}

#[test]
fn nodes_and_threads_that_do_not_exist_are_refused_in_one_line() {
    let refused = |line: &str| Place::new().run(line).refused(2).to_owned();
    let missing = refused("open-loop --op read --numa-memory 99");
    assert!(
        missing.contains("NUMA node 99 does not exist: this machine has node"),
        "{missing}"
    );
    assert_snapshot!(refused("open-loop --op read --numa-memory 1 --device model:cx3"), @"error: server 2: NUMA node 1: the nodes of a model are nic and other");
    assert_snapshot!(refused("open-loop --op read --numa-client near"), @"error: --numa-client: invalid NUMA node 'near': expected nic, other, any or the number of a node");
    assert_snapshot!(refused("open-loop --op read --numa-workers nic"), @"error: --numa-workers nic: there are no such threads; add --workers N, or leave it out");
    assert_snapshot!(refused("open-loop --op read --worker-mix 1:1"), @"error: --worker-mix is for --workers N; add it, or leave it out");
    assert_snapshot!(refused("open-loop --op read --workers 1 --worker-mix 0:0"), @"error: --worker-mix: invalid mix '0:0': expected parts READ:WRITE, such as 1:1 or 10:90");
    assert_snapshot!(refused("open-loop --op read --worker-think 35ns"), @"error: --worker-think is for --workers N; add it, or leave it out");
    assert_snapshot!(refused("open-loop --op read --numa-load-memory nic"), @"error: --numa-load-memory is for --load N; add it, or leave it out");
    let array = refused("open-loop --op read --load 1 --numa-load-memory 99");
    assert!(array.contains("NUMA node 99 does not exist"), "{array}");
    assert_snapshot!(refused("open-loop --op read --load 1 --numa-load-memory 1 --device model:cx3"), @"error: server 2: NUMA node 1: the nodes of a model are nic and other");
    assert_snapshot!(refused("open-loop --op read --load-size 8K"), @"error: --load-size is for --load N; add it, or leave it out");
    assert_snapshot!(refused("open-loop --op read --ddio off"), @"error: --ddio: soft is not a model, and Adverb changes no real hardware; leave it out, or name a model with --device model:PRESET");
    assert_snapshot!(refused("open-loop --op read --size 12 --slots packed"), @"error: --size 12: packed slots have whole words of 8 B");
    assert_snapshot!(refused("open-loop --op read --workers 25 --numa-memory nic --device model:cx3_fdr_nurdma"), @"error: server 2: 25 workers exceed the 24 CPUs of a node on the model; use fewer");
    let many = refused("open-loop --op read --workers 1024");
    assert!(many.contains("1024 workers exceed the"), "{many}");
    let large = refused("open-loop --op read --load 4 --load-size 1000G");
    assert!(large.contains("exceed half of the available"), "{large}");
}

/// Figure 2 has the values of `adverb nodes`, of this machine: a model has none.
#[test]
fn the_study_of_numa_measures_the_memory_of_this_machine() {
    let place = Place::new();
    let line = "study --study numa --only numa2 --out numa";
    let printed = place.run(line).ok().out;
    let all = records(&place.path("numa"));
    let nodes = place.run("nodes --json").ok().out;
    let nodes: Value = serde_json::from_str(nodes.lines().next().unwrap()).unwrap();
    for name in ["cpu_node", "memory_node"] {
        assert_eq!(all[0]["params"][name], nodes[name]);
    }
    for name in ["cached_bytes", "large_bytes"] {
        assert_eq!(all[0]["metrics"][name], nodes[name]);
    }
    for name in ["cached_ns", "memory_ns", "read_bytes_per_s"] {
        assert!(number(&all[0], &format!("/metrics/{name}")) > 0.0);
        assert!(printed.contains(name), "{printed}");
    }
    let report = std::fs::read_to_string(place.path("numa/report.html")).unwrap();
    assert!(report.contains("id=\"numa2\"") && report.contains("CPU of node"));
    let on_model = "study --study numa --only numa2 --device model:cx7 --out model";
    assert_snapshot!(place.run(on_model).refused(2), @"error: model:cx7: no cell of --study numa runs there; NUMA Figure 2 (Memory and caches of this machine, by node): it is measured, and a model's host is not this machine; run adverb nodes for this machine");
}

/// All figures of the study are drawn from the records of a model.
#[test]
fn the_study_of_numa_draws_its_figures_on_a_model() {
    let place = Place::new();
    let line = "study --study numa --device model:cx3_fdr_nurdma --out numa";
    let printed = place.run(line).ok().out;
    // A table for each figure, as narrow as its parameters allow.
    let longest = printed.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(130), "{longest:?}: {printed}");
    assert_eq!(
        printed.matches(", on model:cx3_fdr_nurdma\n").count(),
        8,
        "{printed}"
    );
    let all = records(&place.path("numa"));
    assert!(all.iter().all(|record| record["status"] == "ok"));
    let report = std::fs::read_to_string(place.path("numa/report.html")).unwrap();
    for figure in [
        "numa3", "numa4", "numa5c", "numa5", "numa5d", "numa6", "numa7",
    ] {
        assert!(report.contains(&format!("id=\"{figure}\"")), "{figure}");
    }
    // Each cell has a row with its parameters.
    assert!(report.contains("<h3>open-loop on model:cx3_fdr_nurdma</h3>"));
    assert!(report.contains("<th scope=\"col\"><button type=\"button\">numa_memory</button></th>"));
    assert!(report.contains(&format!("{} predicted, 0 failed", all.len())));
    let judged = place.run("claims numa --study numa").ok().out;
    let words: Vec<&str> = judged.split_whitespace().collect();
    let summary = words.join(" ");
    assert!(
        summary.contains("could be tested on model:cx3_fdr_nurdma"),
        "{judged}"
    );
    // One claim is about ConnectX-4 alone.
    assert!(
        summary.contains("The study makes 35 of the tested claims about this hardware"),
        "{judged}"
    );
}
