//! `overlap`, `fetch`, `interference` and `rendezvous` on the command line, and the study of them.

use crate::common::{Place, records};
use insta::assert_snapshot;
use serde_json::Value;

fn number(record: &Value, path: &str) -> f64 {
    let value = record.pointer(path).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("{path} in {record}"))
}

#[test]
fn each_program_runs_on_each_kind_of_device() {
    let place = Place::new();
    for (command, metric) in [
        (
            "overlap --iters 5 --compute 0,50us",
            "/metrics/overlap_ratio",
        ),
        ("fetch --iters 5", "/metrics/latency_ns/p50"),
        (
            "interference --compute 2ms --iters 2 --clients 1",
            "/metrics/slowdown",
        ),
        (
            "rendezvous --iters 5 --size 1,5000",
            "/metrics/one_way_ns/p50",
        ),
    ] {
        for device in ["soft", "soft@127.46.0.9", "tcp", "model:ammasso_gige"] {
            let objects = place
                .run(&format!("{command} --device {device} --json"))
                .ok()
                .json();
            let last = objects.last().unwrap();
            assert!(number(last, metric) > 0.0, "{last}");
            let program = command.split(' ').next().unwrap();
            assert_eq!(last["program"], program);
            assert_eq!(last["roles"].as_array().unwrap().len(), 2);
        }
    }
    assert!(place.shm_files().is_empty());
}

/// Over RC, a protocol sees losses only as delays.
#[test]
fn every_byte_of_a_rendezvous_is_right_although_packets_are_lost() {
    let place = Place::new();
    for protocol in ["write", "read", "prearranged", "eager"] {
        let device = "--device soft@127.46.0.10 --loss 2% --timeout 8ms";
        let line =
            format!("rendezvous --protocol {protocol} --size 50000 --iters 20 {device} --json");
        let record = place.run(&line).record();
        let lost = ["first peer", "second peer"]
            .map(|peer| number(&record["counters"][peer], "/impaired_lost_pkts"));
        assert!(lost[0] + lost[1] > 0.0, "{record}");
        assert_eq!(record["metrics"]["checked"]["bytes"], 2 * 23 * 50_000);
    }
}

/// The end whose request has failed waits in memory for an answer that never comes.
#[test]
fn a_rendezvous_whose_request_fails_says_why() {
    let device = "--device soft@127.46.0.12 --loss 100% --timeout 1ms --retries 1";
    let ended = Place::new().run(&format!("rendezvous --protocol write --iters 5 {device}"));
    let line = ended.refused(1);
    assert!(line.contains("retr"), "{line}");
}

/// Readers of `interference` are roles of their own, at the server's host.
#[test]
fn readers_sleep_where_there_are_events() {
    let place = Place::new();
    for (line, roles) in [
        ("overlap --by read --device soft --compute 50us", 2),
        ("overlap --by send --device soft@127.46.0.11", 2),
        ("fetch --by send --device soft --completion hybrid:5us", 2),
        ("fetch --device tcp --response-delay 1ms", 2),
        (
            "interference --device tcp --compute 2ms --clients 1 --read-memory 64K",
            3,
        ),
        (
            "interference --by send --device soft --compute 2ms --clients 1",
            3,
        ),
        (
            "interference --by tcp --device model:ammasso_gige --compute 2ms --clients 2",
            5,
        ),
    ] {
        let how = match line.contains("--completion") {
            true => "",
            false => "--completion event",
        };
        let record = place
            .run(&format!("{line} {how} --iters 2 --json"))
            .record();
        assert!(record["params"]["completion"].is_string(), "{record}");
        assert_eq!(record["roles"].as_array().unwrap().len(), roles, "{record}");
    }
    assert!(place.shm_files().is_empty());
}

#[test]
fn a_model_runs_the_kernels_tcp_next_to_queue_pairs() {
    let place = Place::new();
    let line = "fetch --device model:ammasso_gige --over tcp --response-delay 0,1ms --json";
    let [idle, busy] = &place.run(line).ok().json()[..] else {
        panic!("two records");
    };
    assert_eq!(idle["params"]["by"], "tcp");
    assert_eq!(busy["params"]["response_delay_ns"], 1e6);
    let times = [idle, busy].map(|record| number(record, "/metrics/latency_ns/mean"));
    assert!(times[1] - times[0] > 0.99e6, "{times:?}");
}

#[test]
fn what_a_device_or_a_program_does_not_do_is_refused() {
    let refused = |line: &str| Place::new().run(line).refused(2).to_owned();
    assert_snapshot!(refused("fetch --by tcp"), @"error: --by tcp: soft is an RDMA device; name --device tcp");
    assert_snapshot!(refused("overlap --by write --device tcp"), @"error: --by write: tcp has no queue pairs; leave it out");
    assert_snapshot!(refused("fetch --by write"), @"error: invalid --by 'write': expected read, send or tcp");
    assert_snapshot!(refused("rendezvous --protocol sockets"), @"error: --protocol sockets: soft is an RDMA device; name --device tcp");
    assert_snapshot!(refused("rendezvous --size 0"), @"error: --size 0 B: expected 1 B to 64 MiB");
    assert_snapshot!(refused("interference --compute 0"), @"error: --compute 0: expected more than 0");
    assert_snapshot!(refused("interference --read-memory 65M"), @"error: --read-memory 65 MiB: expected at most 64 MiB in each millisecond");
    assert_snapshot!(refused("interference --completion event"), @"error: --completion event: a WRITE's receiver polls memory, which raises no events; choose --completion poll");
    assert_snapshot!(refused("overlap --device tcp --completion hybrid:10us"), @"error: --completion hybrid:10us: a reader of a socket polls or sleeps; choose --completion poll or event");
    assert_snapshot!(refused("interference --device model:ammasso_gige --by tcp --size 64"), @"error: --size 64 B with --by tcp: the model's TCP does not merge small writes, so that the server would only handle interrupts; use 1 KiB or more");
    assert_snapshot!(refused("fetch --response-delay 6s"), @"error: --response-delay 6.00 s: expected at most 5.00 s");
    assert_snapshot!(refused("study --study wan --rates sdr"), @"error: --rates with --study wan: it compares no speeds of links; leave it out");
}

/// All figures of the study are drawn from the records of a model.
#[test]
fn the_study_of_a_wan_draws_its_figures_on_a_model() {
    let place = Place::new();
    let line = "study --study wan --device model:ammasso_gige --out wan";
    place.run(line).ok();
    let all = records(&place.path("wan"));
    assert!(all.iter().all(|record| record["status"] == "ok"));
    let report = std::fs::read_to_string(place.path("wan/report.html")).unwrap();
    for figure in ["wan3", "wan4a", "wan4b", "wan6", "wan7", "wan8", "wan9"] {
        assert!(report.contains(&format!("id=\"{figure}\"")), "{figure}");
    }
    assert!(report.contains("a computation at the server takes "));
}
