//! `ping` and `blast` over UC and UD: what they measure, what they refuse, and what a lost message does.

use crate::common::Place;
use serde_json::Value;

#[test]
fn the_transport_is_recorded() {
    let place = Place::new();
    for (args, transport) in [
        ("ping --op send --size 100 --verify", "uc"),
        (
            "ping --op send --size 100 --verify --completion event",
            "ud",
        ),
        (
            "ping --op write-imm --device soft@127.46.0.7 --loss 0",
            "uc",
        ),
        (
            "ping --op send --device soft@127.46.0.8 --loss 0 --verify",
            "ud",
        ),
        ("ping --op send --device model:connect_ib", "ud"),
        ("ping --op write --device model:connect_ib", "uc"),
        ("blast --op write --size 8K", "uc"),
    ] {
        let more = format!("--transport {transport} --iters 50 --json");
        let record = place.run(&format!("{args} {more}")).record();
        let params = &record["params"];
        assert_eq!(params["transport"], transport, "{record}");
        assert!(params["retry_cnt"].is_null(), "{record}");
        let cell = record["cell"].as_str().unwrap();
        assert!(cell.contains(&format!("/{transport}")), "{cell}");
    }
    let args = "ping --op send --iters 50 --json";
    let usual = place.run(args).record();
    assert_eq!(usual["params"].get("transport"), None, "{usual}");
}

#[test]
fn operations_that_a_transport_lacks_are_refused() {
    let place = Place::new();
    for (args, why) in [
        ("ping --op read --transport uc", "only reliable transports"),
        ("ping --op write --transport ud", "a datagram is a SEND"),
        (
            "ping --op send --transport ud --size 64K",
            "exceeds the path MTU",
        ),
        (
            "blast --op send --transport uc --verify",
            "the receiver does not know which payload to expect; leave --verify out",
        ),
        (
            "blast --op send --transport ud --bidirectional",
            "leave --bidirectional out",
        ),
        (
            "blast --op write-imm --transport ud",
            "a datagram is a SEND",
        ),
        (
            "ping --op send --transport uc --retries 3",
            "leave --timeout",
        ),
    ] {
        let end = place.run(args);
        let line = end.refused(2);
        assert!(line.contains(why), "{line}");
    }
}

#[test]
fn a_lost_message_ends_the_run_with_a_word_about_it() {
    let place = Place::new();
    let device = "--device soft@127.46.0.9 --loss 50%";
    for transport in ["uc", "ud"] {
        let args = format!("ping --op send --transport {transport}");
        let end = place.run(&format!("{args} {device} --iters 1000"));
        let line = end.refused(1);
        let said = format!("{transport} does not retransmit");
        assert!(line.contains(&said), "{line}");
    }
}

/// Messages sent, received and lost by a `blast`, and its record.
fn delivered(args: &str) -> ([u64; 3], Value) {
    let ended = Place::new().run(&format!("blast --json {args}"));
    let record = ended.record();
    let delivery = &record["metrics"]["delivery"];
    let counts = ["sent", "received", "lost"].map(|name| delivery[name].as_u64().unwrap());
    (counts, record)
}

#[test]
fn a_blast_counts_what_arrived() {
    for device in ["soft", "soft@127.46.0.11", "model:connect_ib"] {
        for (op, transport) in [("send", "uc"), ("send", "ud"), ("write-imm", "uc")] {
            let args = format!("--op {op} --transport {transport} --device {device}");
            let ([sent, received, lost], record) =
                delivered(&format!("{args} --iters 3000 --repetitions 2 --buffers 8"));
            assert!(sent >= 6000 && received > 0, "{record}");
            assert_eq!(sent, received + lost, "{record}");
            let metrics = &record["metrics"];
            let elapsed = metrics["elapsed_ns"].as_f64().unwrap();
            let rate = metrics["messages_per_s"].as_f64().unwrap();
            assert!(
                (rate * elapsed / 1e9 / received as f64 - 1.0).abs() < 1e-3,
                "{record}"
            );
        }
    }
}

#[test]
fn a_message_that_finds_a_receive_arrives() {
    // Fewer than the receives that are posted before the first one.
    for transport in ["uc", "ud"] {
        let args = format!("--op send --transport {transport} --device soft@127.46.0.12");
        let (counts, _) = delivered(&format!("{args} --iters 4 --repetitions 1 --warmup 0"));
        assert_eq!(counts, [4, 4, 0]);
    }
}

#[test]
fn packets_that_are_lost_on_purpose_are_messages_that_are_lost() {
    for transport in ["uc", "ud"] {
        let args = format!("--op send --transport {transport} --device soft@127.46.0.13");
        let ([sent, received, lost], record) = delivered(&format!(
            "{args} --loss 10% --iters 20000 --repetitions 1 --warmup 0"
        ));
        assert_eq!(sent, received + lost, "{record}");
        let dropped = record["counters"]["active"]["impaired_lost_pkts"].as_u64();
        // Others may find no receive.
        assert!(dropped > Some(0) && Some(lost) >= dropped, "{record}");
    }
    let place = Place::new();
    let end = place
        .run("blast --op send --transport ud --device soft@127.46.0.14 --loss 100% --iters 100 --repetitions 1");
    let line = end.refused(1);
    assert!(line.contains("none of 100 messages arrived"), "{line}");
}

#[test]
fn the_table_shows_the_share_that_was_lost() {
    let args = "blast --op send --transport uc --device model:connect_ib --iters 500";
    let table = Place::new().run(args).ok();
    let head = table.out.lines().nth(1).unwrap().to_owned();
    assert!(head.contains("throughput       lost"), "{head}");
    let reliable = args.replace("--transport uc ", "");
    let table = Place::new().run(&reliable);
    assert!(!table.ok().out.contains("lost"));
}
