//! `ping`, `blast` and `devices` on the user-space device: all their choices, and what they print.

use std::io::{BufRead as _, BufReader};

use crate::common::{Place, Ticks, cpu_time_of, end_of, sides_of, signal, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Enough to run all steps.
const FEW: &str = "--iters 50";

#[track_caller]
fn measure(args: &str) -> Value {
    let place = Place::new();
    let records = place.run(&format!("{args} {FEW} --json")).ok().json();
    assert_eq!(records.len(), 1);
    assert_eq!(
        place.shm_files(),
        Vec::<std::path::PathBuf>::new(),
        "{args}"
    );
    records.into_iter().next().unwrap()
}

#[track_caller]
fn number(record: &Value, path: &str) -> f64 {
    let value = record.pointer(path);
    value
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("{path} in {record}"))
}

/// What scripts depend on.
#[track_caller]
fn check_contract(record: &Value, program: &str) {
    assert_eq!(record["program"], program);
    assert_eq!(record["device"]["kind"], "soft");
    assert_eq!(record["device"]["name"], "soft");
    assert_eq!(record["status"], "ok", "{record}");
    assert_eq!(record["params"]["iters"], 50);
    assert!(number(record, "/metrics/one_way_ns/mean") > 0.0);
    for figure in ["p50", "p99", "p999", "max"] {
        assert!(
            record["metrics"]["one_way_ns"].get(figure).is_some(),
            "{figure}"
        );
    }
    assert!(number(record, "/metrics/messages_per_s") > 0.0);
    assert!(number(record, "/metrics/bytes_per_s") > 0.0);
    assert!(number(record, "/metrics/elapsed_ns") > 0.0);
    for side in ["active", "passive"] {
        for part in ["user", "system", "percent"] {
            assert!(
                record["metrics"]["cpu"][side].get(part).is_some(),
                "{side} {part}"
            );
        }
    }
    for field in ["adverb", "started", "host", "kernel", "cpu"] {
        assert!(record["provenance"][field].is_string(), "{field}");
    }
}

#[test]
fn repetitions_and_warm_up_are_as_many_as_asked_for() {
    let record = measure("blast --op write --repetitions 1 --warmup 7");
    assert_eq!(record["params"]["warmup_iters"], 7);
    let metrics = &record["metrics"];
    assert_eq!(metrics["repetitions"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        metrics["one_way_ns"]["ci95"],
        Value::Null,
        "one has no spread"
    );
    let record = measure("ping --op read --repetitions 3 --warmup 0");
    assert_eq!(record["params"]["warmup_iters"], 0);
    let repetitions = record["metrics"]["repetitions"].as_array();
    assert_eq!(repetitions.map(Vec::len), Some(3));
    let place = Place::new();
    let none = place.run("ping --op send --repetitions 0");
    let line = none.refused(2);
    assert!(line.contains("repetitions"), "{line}");
}

#[test]
fn ping_with_every_operation_and_completion() {
    for op in ["send", "write-imm", "write", "read", "write-read"] {
        for completion in ["poll", "event", "hybrid:20us"] {
            if op == "write" && completion != "poll" {
                continue; // Refused: memory raises no events.
            }
            let record = measure(&format!(
                "ping --op {op} --completion {completion} --verify"
            ));
            check_contract(&record, "ping");
            assert_eq!(record["params"]["op"], op);
            assert_eq!(record["params"]["verify"], true);
        }
    }
}

#[test]
fn ping_inline_and_unsignaled() {
    for args in [
        "ping --op send --inline",
        "ping --op write --inline --size 8",
        "ping --op write-read --signal write-unsignaled",
    ] {
        check_contract(&measure(args), "ping");
    }
}

#[test]
fn blast_with_every_operation_and_completion() {
    for op in ["send", "write-imm", "write", "read"] {
        for completion in ["poll", "event"] {
            let record = measure(&format!(
                "blast --op {op} --completion {completion} --verify"
            ));
            check_contract(&record, "blast");
        }
    }
}

#[test]
fn blast_with_lists_buffers_and_signaling() {
    for args in [
        "blast --op write --buffers 16 --post list --signal periodic --inline --size 16",
        "blast --op send --buffers 256 --signal every=7",
        "blast --op read --buffers 1",
        "blast --op write --size 1M --buffers 4",
    ] {
        check_contract(&measure(args), "blast");
    }
}

#[test]
fn queue_pairs_are_recorded_and_swept() {
    let one = measure("blast --op write --buffers 2");
    let cell = one["cell"].as_str().unwrap();
    assert_eq!(cell, "blast/write/64/plain/poll/b2/single/all");
    for (op, args) in [
        ("send", "--post list"),
        ("write", "--verify"),
        ("read", "--signal periodic"),
    ] {
        let record = measure(&format!("blast --op {op} --buffers 2 --qps 3 {args}"));
        check_contract(&record, "blast");
        assert_eq!(record["params"]["qps"], 3);
        assert!(record["cell"].as_str().unwrap().contains("/q3"), "{record}");
    }
    let place = Place::new();
    let out = place.run("blast --op write --qps 1..4 --iters 50").ok().out;
    let first: Vec<&str> = out
        .lines()
        .skip(1)
        .map(|l| l.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(first, ["qps", "1", "2", "4"], "{out}");
    let none = place.run("blast --op write --qps 0");
    let line = none.refused(2);
    assert!(line.contains("invalid count '0'"), "{line}");
}

/// `--retries 5,7` showed an empty column `path`, and records had no traffic class.
#[test]
fn options_of_the_path_are_recorded_and_swept() {
    let place = Place::new();
    let args = "ping --op send --iters 50 --device soft@127.46.0.9 --traffic-class 8 --loss 0,1% --retries 5,7";
    let table = place.run(args).ok().out;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().take(3).collect())
        .collect();
    let expected = [
        ["retry_cnt", "loss", "size"],
        ["5", "0", "%"],
        ["7", "0", "%"],
        ["5", "1", "%"],
        ["7", "1", "%"],
    ];
    assert_eq!(rows, expected);
    let record = &place.run(&format!("{args} --json")).ok().json()[0];
    assert_eq!(record["params"]["traffic_class"], 8);
}

#[test]
fn both_sides_send_and_the_rate_counts_both() {
    for op in ["send", "write-imm", "write", "read"] {
        for args in ["", "--completion event --post list", "--qps 3"] {
            let record = measure(&format!("blast --op {op} --bidirectional --verify {args}"));
            check_contract(&record, "blast");
            assert_eq!(record["params"]["bidirectional"], true);
            let cell = record["cell"].as_str().unwrap();
            assert!(cell.contains("/bidirectional"), "{cell}");
            let repetitions = record["metrics"]["repetitions"].as_array().unwrap();
            let iters: f64 = repetitions.iter().map(|r| number(r, "/iters")).sum();
            let elapsed = number(&record, "/metrics/elapsed_ns");
            let rate = number(&record, "/metrics/messages_per_s");
            assert!(
                (rate * elapsed / 2e9 / iters - 1.0).abs() < 1e-6,
                "{record}"
            );
            let mean = number(&record, "/metrics/one_way_ns/mean");
            assert!((rate * mean / 1e9 - 1.0).abs() < 1e-6, "{record}");
        }
    }
    let one_way = measure("blast --op write");
    assert_eq!(one_way["params"].get("bidirectional"), None, "{one_way}");
}

#[test]
fn atomics_are_measured() {
    for program in ["ping", "blast"] {
        for (typed, op) in [
            ("fetch-add", "fetch-add"),
            ("cas", "cas"),
            ("cmp-swap", "cas"),
        ] {
            let record = measure(&format!("{program} --op {typed} --verify"));
            check_contract(&record, program);
            assert_eq!(record["params"]["op"], op);
            assert_eq!(record["params"]["size_bytes"], 8);
        }
    }
    let place = Place::new();
    let end = place.run("blast --op fetch-add --size 64");
    let line = end.refused(2);
    assert!(line.contains("is an operation on 8 B"), "{line}");
}

#[test]
fn rows_for_people_are_aligned() {
    let place = Place::new();
    let out = place.run("ping --op send --size 1..4 --iters 50").ok().out;
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 2 + 3, "{out}");
    assert!(lines[0].starts_with("ping send on soft:"), "{out}");
    let width = lines[1].chars().count();
    assert!(
        lines[1..].iter().all(|l| l.chars().count() == width),
        "{out}"
    );
    assert!(lines[4].trim_start().starts_with("4 B"), "{out}");
}

/// The value in a column of the only row.
#[track_caller]
fn shown(args: &str, column: &str) -> String {
    let out = Place::new().run(args).ok().out;
    let lines: Vec<&str> = out.lines().collect();
    let at = lines[1].find(column).unwrap_or_else(|| panic!("{out}"));
    let end = lines[1][..at].chars().count() + column.chars().count();
    let value: Vec<char> = lines[2].chars().take(end).collect();
    let value: String = value.into_iter().collect();
    value.split("  ").last().unwrap().trim().to_owned()
}

#[test]
fn columns_say_what_they_show_and_records_keep_their_meaning() {
    let model = "--size 64 --device model:cx3";
    let read = format!("ping --op read {model}");
    assert_eq!(shown(&read, "round trip"), "1.72 µs");
    assert_eq!(shown(&read, "p50"), "1.71 µs");
    let json = Place::new().run(&format!("{read} --json")).ok().json();
    let record = &json[0];
    assert_eq!(number(record, "/metrics/one_way_ns/mean").round(), 859.0);
    shown(&format!("ping --op write-read {model}"), "one-way");
    // A round is one atomic operation, which takes longer than a READ of its 8 bytes.
    let atomic = "--device model:cx3";
    let add = ["one_way_ns/mean", "messages_per_s"].map(|metric| {
        let record = measure(&format!("ping --op fetch-add {atomic}"));
        number(&record, &format!("/metrics/{metric}"))
    });
    let round_trip = shown(&format!("ping --op fetch-add {atomic}"), "round trip");
    assert_eq!(round_trip, format!("{:.2} µs", 2.0 * add[0] / 1e3));
    assert!((add[1] * 2.0 * add[0] / 1e9 - 1.0).abs() < 1e-3, "{add:?}");
    shown(&format!("ping --op cas {atomic}"), "round trip");
    shown(&format!("blast --op read {model}"), "time per message");
    // Both sides of a ping send, and the paper counts one direction. A READ has one.
    let send = format!("ping --op send {model}");
    let record = Place::new().run(&format!("{send} --json")).record();
    let rate = number(&record, "/metrics/bytes_per_s");
    assert_eq!(
        shown(&send, "throughput"),
        format!("{:.1} MB/s", rate / 1e6)
    );
    assert_eq!(
        shown(&send, "one direction"),
        format!("{:.1} MB/s", rate / 2e6)
    );
    let out = Place::new().run(&read).ok().out;
    assert!(!out.contains("one direction"), "{out}");
    assert_eq!(shown(&read, "active user+sys"), "100+0 %");
    assert_eq!(shown(&read, "passive user+sys"), "0+0 %");
}

#[test]
fn packets_that_are_impaired_go_by_udp_and_the_record_says_so() {
    let record = measure(
        "blast --op write --size 64K --verify --device soft@127.46.0.1 --loss 2% --duplicate 0.02 --reorder 2% --corrupt 2% --seed 5",
    );
    assert_eq!(record["device"]["name"], "soft@127.46.0.1");
    let impairment = &record["params"]["impairment"];
    let asked =
        json!({"loss": 0.02, "duplicate": 0.02, "reorder": 0.02, "corrupt": 0.02, "seed": 5});
    assert_eq!(*impairment, asked);
    let cell = "/loss=0.02/duplicate=0.02/reorder=0.02/corrupt=0.02/seed=5/verify";
    assert!(record["cell"].as_str().unwrap().ends_with(cell), "{record}");
    let active = &record["counters"]["active"];
    for what in ["lost", "duplicated", "reordered", "corrupted"] {
        let count = active[format!("impaired_{what}_pkts")].as_u64();
        assert!(count > Some(0), "{what}: {active}");
    }
    assert!(
        record["counters"]["passive"]["drop_icrc_err"].as_u64() > Some(0),
        "{record}"
    );
}

#[test]
fn a_timeout_is_rounded_up_shown_and_recorded() {
    let usual = measure("ping --op send");
    assert_eq!(usual["params"]["ack_timeout_ns"], 67_108_864.0, "{usual}");
    assert_eq!(usual["params"]["retry_cnt"], 7, "{usual}");
    let short = measure("ping --op send --timeout 1ms --retries 3");
    assert_eq!(short["params"]["ack_timeout_ns"], 1_048_576.0, "{short}");
    assert_eq!(short["params"]["retry_cnt"], 3, "{short}");
    let cell = short["cell"].as_str().unwrap();
    assert!(cell.ends_with("/timeout=8/retries=3"), "{cell}");

    // With perftest's names.
    let place = Place::new();
    let table = place.run("blast --op write -u 10 --iters 50").ok().out;
    let title = table.lines().next().unwrap();
    let shown = "signaled: all, ACK timeout 4.19 ms (4.096 µs × 2^10), 7 retries";
    assert!(title.ends_with(shown), "{title}");
}

#[test]
fn retries_that_are_used_up_are_told_with_the_timeout_that_was_asked_for() {
    let place = Place::new();
    let ended =
        place.run("ping --op send --device soft@127.46.0.6 --loss 100% --timeout 1ms --retries 0");
    let line = ended.refused(1);
    let what = "(retry_cnt 0, timeout 1.05 ms, up to four times as long on some devices)";
    assert!(line.contains(what), "{line}");
}

/// With a timeout of 17 s, one that runs out would be waited for.
#[test]
fn the_last_acknowledgement_of_a_run_does_not_wait_for_a_timeout() {
    let record = measure("ping --op send --device soft@127.46.0.7 --loss 0 --timeout 20");
    for side in ["active", "passive"] {
        let counted = &record["counters"][side];
        assert_eq!(counted["ack_timeout"], Value::Null, "{side}: {counted}");
    }
    let device = &record["provenance"]["device"];
    let ports = ["port", "port of the passive side"].map(|name| device[name].as_str().unwrap());
    assert!(ports.iter().all(|port| port.starts_with("UDP (RoCEv2 at ")));
    assert_ne!(ports[0], ports[1], "each side has its own");
}

#[test]
fn without_loss_two_sides_at_one_address_can_be_sent_by_udp_too() {
    let place = Place::new();
    let args = "ping --op send --device soft@127.46.0.2 --loss 0";
    let ended = place.run(&format!("{args} {FEW}")).ok();
    assert!(!ended.talk.contains("share memory"), "{}", ended.talk);
    let title = ended.out.lines().next().unwrap();
    assert!(
        title.starts_with("ping send on soft@127.46.0.2:"),
        "{title}"
    );
    assert!(title.ends_with(", loss 0 %"), "{title}");
}

#[test]
fn a_duration_is_kept_to() {
    let place = Place::new();
    // In virtual time, in which other work of this machine takes no part.
    let args = "blast --op write --duration 20ms --device model:mt26428_qdr --json";
    let record = &place.run(args).record();
    let elapsed = number(record, "/metrics/elapsed_ns") / 1e6;
    assert!((19.0..=21.0).contains(&elapsed), "{elapsed} ms");
}

#[test]
fn devices_tell_their_limits() {
    let place = Place::new();
    let devices = place.run("devices --json").ok().json();
    assert_eq!(devices[0]["name"], "soft");
    assert!(devices[0]["caps"]["max_inline_bytes"].as_u64().unwrap() > 0);
    let text = place.run("devices").ok().out;
    assert!(text.starts_with("soft\n") && text.contains("GID"), "{text}");
    assert!(place.shm_files().is_empty());
}

#[test]
fn a_device_that_is_not_there_is_one_line() {
    let run = Place::new().run("ping --op send --device verbs:nowhere");
    let said = run.refused(1);
    assert!(
        said.starts_with("error: cannot open device verbs:nowhere: "),
        "{said}"
    );
}

#[test]
fn one_core_for_both_sides_is_warned_of() {
    let core = adverb_host::usable_cores()[0];
    let cores = format!("{core},{core}");
    let args = format!("ping --op send --iters 50 --cpu {cores}");
    let talk = Place::new().run(&args).ok().talk_of_itself();
    let warning = format!("warning: both sides share core {core}: they alternate there");
    assert!(talk.starts_with(&warning), "{talk}");
    assert_eq!(talk.lines().count(), 1, "{talk}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let mut child = place.spawn("ping --op send --size 1..1K --iters 50");
    drop(child.stdout.take());
    let ended = end_of(child);
    assert_eq!((ended.code, ended.talk_of_itself().as_str()), (Some(0), ""));
}

#[test]
fn a_side_that_dies_is_named_and_leaves_nothing() {
    for victim in ["active", "passive"] {
        let place = Place::new();
        let child = place.spawn("ping --op send --duration 30s");
        let mut sides = None;
        wait_for("both sides", || {
            sides = sides_of(child.id());
            sides.is_some() && place.shm_files().len() > 4
        });
        let (active, passive) = sides.unwrap();
        signal(
            if victim == "active" { active } else { passive },
            Signal::KILL,
        );
        let ended = end_of(child);
        assert_eq!(ended.code, Some(1), "{}", ended.talk);
        let reason = format!("{victim} side: killed by signal 9");
        assert!(ended.talk.contains(&reason), "{}", ended.talk);
        assert!(place.shm_files().is_empty(), "{:?}", place.shm_files());
    }
}

#[test]
fn a_signal_ends_both_sides_with_its_exit_status() {
    for (by, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        ended_by(by, code);
    }
}

fn ended_by(by: Signal, code: i32) {
    let place = Place::new();
    let child = place.spawn("blast --op write --duration 30s");
    let mut sides = None;
    wait_for("both sides", || {
        sides = sides_of(child.id());
        sides.is_some()
    });
    signal(child.id(), by);
    let ended = end_of(child);
    assert_eq!(ended.refused(code), "error: interrupted");
    let (active, passive) = sides.unwrap();
    for pid in [active, passive] {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}

#[test]
fn a_run_forever_ends_with_ctrl_c_and_one_record_of_all_it_measured() {
    let place = Place::new();
    let mut child = place.spawn("blast --op write --run-forever --duration 100ms --out forever");
    let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
    for _ in 0..2 {
        let line = talk.next().unwrap().unwrap();
        assert!(line.contains("time per message "), "{line}");
    }
    signal(child.id(), Signal::INT);
    let talk: Vec<String> = talk.map(Result::unwrap).collect();
    assert!(!talk.iter().any(|line| line.contains("error")), "{talk:?}");
    let ended = end_of(child);
    assert_eq!(ended.code, Some(130));
    assert_eq!(ended.out.lines().count(), 3, "{}", ended.out);
    let records = std::fs::read_to_string(place.path("forever/results.jsonl")).unwrap();
    let records: Vec<Value> = records
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.len(), 1);
    // Five of each measurement.
    let repetitions = records[0]["metrics"]["repetitions"]
        .as_array()
        .unwrap()
        .len();
    assert!(
        repetitions >= 10 && repetitions.is_multiple_of(5),
        "{repetitions}"
    );
    // The point is there.
    let again = "blast --op write --run-forever --duration 100ms --out forever --resume";
    place.run(again).ok();
}

#[test]
fn run_forever_is_refused_on_models_and_in_sweeps() {
    let place = Place::new();
    let model = "ping --op send --run-forever --device model:cx3";
    let refused = place.run(model).refused(2).to_owned();
    assert!(
        refused.contains("--run-forever: model:cx3 is a model"),
        "{refused}"
    );
    let args = "ping --op send --run-forever --size 8,16";
    let refused = place.run(args).refused(2).to_owned();
    assert!(refused.contains("2 points"), "{refused}");
}

#[test]
fn a_point_outside_the_limits_is_named_and_fails_the_command() {
    let place = Place::new();
    let run = |limits: &str| place.run(&format!("ping --op read --iters 50 {limits}"));
    run("--min-rate 1 --max-latency 10s").ok();
    let one_way = "rendezvous --iters 2 --device model:cx3 --max-latency 10s";
    place.run(one_way).ok();
    let missed = run("--min-rate 1000000M --max-latency 0.001us --json");
    assert_eq!(missed.code, Some(1));
    assert_eq!(missed.out.lines().count(), 1, "the record is there");
    for part in [
        "below --min-rate",
        "above --max-latency",
        "error: 1 point is outside the limits",
    ] {
        assert!(missed.talk.contains(part), "{part}: {}", missed.talk);
    }
}

#[test]
fn throughput_is_shown_in_bits_if_asked_for() {
    let place = Place::new();
    let run = place.run("blast --op write --iters 50 --gbits").ok();
    assert!(run.out.contains("bit/s"), "{}", run.out);
    assert!(!run.out.contains("B/s"), "{}", run.out);
}

#[test]
fn the_sides_die_with_their_parent() {
    let place = Place::new();
    let mut child = place.spawn("blast --op write --duration 30s");
    let mut sides = None;
    wait_for("both sides", || {
        sides = sides_of(child.id());
        sides.is_some() && place.shm_files().len() > 4
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let (active, passive) = sides.unwrap();
    for pid in [active, passive] {
        wait_for("end of a side", || is_gone(pid));
    }
    // The next one reaps what they left.
    place.run("devices").ok();
    assert!(place.shm_files().is_empty(), "{:?}", place.shm_files());
}

/// Ended; whether somebody has already reaped it is not ours to decide.
fn is_gone(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn the_parent_sleeps_while_the_sides_measure() {
    let place = Place::new();
    let child = place.spawn("ping --op send --duration 2s");
    let id = child.id();
    wait_for("end of the measurement", || is_gone(id));
    let Ticks { own, children } = cpu_time_of(id);
    end_of(child).ok();
    assert!(
        children > 10 && own <= children / 10,
        "{own} ticks of CPU, {children} of the sides"
    );
}

/// On a file system of 1 MiB that only this test sees.
#[test]
fn no_space_for_memory_is_one_line_that_names_the_place_and_the_remedy() {
    let place = Place::new();
    let blast = "blast --op write --size 4M --buffers 2";
    let Some(ended) = place.run_on_tmpfs("1M", blast) else {
        return;
    };
    let line = ended.refused(1);
    for part in [
        "8 MiB of registered memory",
        "No space left",
        "set ADVERB_SHM",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

/// They failed, one after the other, and their number was printed at the end.
#[test]
fn cells_that_do_not_fit_into_memory_are_named_at_the_start_and_not_run() {
    let place = Place::new();
    let study = "study --only fig5 --repetitions 1 --json --out s";
    let Some(ended) = place.run_on_tmpfs("4M", study) else {
        return;
    };
    let ended = ended.ok();
    let is_of_space = |line: &&str| line.contains("cells are not run");
    let first = ended.talk.lines().find(is_of_space).unwrap_or_default();
    for part in [
        "warning: ",
        " 4 MiB free",
        "messages of up to 64 KiB fit",
        "remount,size=256M",
    ] {
        assert!(first.contains(part), "{part}: {}", ended.talk);
    }
    let summary = &ended.json()[0];
    let not_run = summary["not_run"].as_array().unwrap();
    assert!(!not_run.is_empty() && summary["failed"] == 0, "{summary}");
    let records = crate::common::records(&place.path("s"));
    let all = summary["planned"].as_u64().unwrap() as usize;
    assert_eq!(records.len() + not_run.len(), all, "{summary}");
    assert!(
        records
            .iter()
            .all(|record| !not_run.contains(&record["cell"]))
    );
    let report = std::fs::read_to_string(place.path("s/report.html")).unwrap();
    assert!(report.contains("cells are not run"));
}

#[test]
fn a_study_of_which_no_cell_fits_into_memory_is_refused_at_once() {
    let place = Place::new();
    let study = "study --only rank-rtt --out s";
    if let Some(ended) = place.run_on_tmpfs("256K", study) {
        let line = ended.refused(1);
        assert!(
            line.contains("no size fits") && line.contains("--resume"),
            "{line}"
        );
    }
}

/// The kernel killed the sides, or another program.
#[test]
fn more_memory_than_is_available_is_refused_before_anything_runs() {
    let place = Place::new();
    for command in [
        "blast --op write --size 64M --buffers 256",
        "blast --op write --size 64M --buffers 256 --device soft@127.0.0.1",
        "ping --op send --size 64M --device tcp",
        "closed-loop --op read --size 30M --clients 4",
        "closed-loop --op read --size 30M --clients 4 --processes",
        "kv --items 3000000",
        "kv --by memory --items 3000000",
        "connect --size 16M --connections 100",
    ] {
        let Some(ended) = place.run_with_available_kib(200 << 10, command) else {
            return;
        };
        let line = ended.refused(2);
        assert!(
            line.contains(" of memory exceed the 200 MiB that are available on this machine; use "),
            "{command}: {line}"
        );
    }
    let blast = "blast --op write --size 64K --buffers 16 --duration 10ms";
    if let Some(ended) = place.run_with_available_kib(200 << 10, blast) {
        ended.ok();
    }
}

#[test]
fn a_study_names_the_memory_that_its_cells_lack() {
    let place = Place::new();
    let study = "study --only rank-rtt --out s";
    if let Some(ended) = place.run_with_available_kib(256, study) {
        let line = ended.refused(1);
        let expected = " of memory, this machine has 256 KiB free; no size fits";
        assert!(line.contains(expected), "{line}");
    }
}
