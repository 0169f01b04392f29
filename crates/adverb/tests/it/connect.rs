//! `connect`: on the user-space device, over UDP and on the model.

use std::process::Stdio;

use crate::common::{Ended, Place, not_run, records};
use insta::assert_snapshot;
use serde_json::Value;

/// The record of a command that ended well; the device leaves no files.
#[track_caller]
fn figures(command: &str) -> Value {
    let place = Place::new();
    let record = place.run(&format!("connect {command} --json")).record();
    assert!(place.shm_files().is_empty(), "{command}");
    record
}

#[track_caller]
fn number(figures: &Value, path: &str) -> f64 {
    let value = figures.pointer(path).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("{path} in {figures}"))
}

/// Steps that both ends of a connection take on a device without a connection manager.
const STEPS: [&str; 18] = [
    "alloc_pd_ns",
    "create_channel_ns",
    "create_cq_ns",
    "register_mr_ns",
    "create_qp_ns",
    "to_init_ns",
    "post_receives_ns",
    "exchange_ns",
    "to_rtr_ns",
    "to_rts_ns",
    "setup_ns",
    "to_err_ns",
    "destroy_qp_ns",
    "destroy_cq_ns",
    "destroy_channel_ns",
    "deregister_mr_ns",
    "break_down_ns",
    "connection_ns",
];
const MESSAGES: [&str; 4] = [
    "first_message_ns",
    "further_message_ns",
    "finished_ns",
    "use_ns",
];

#[test]
fn every_step_is_timed_in_memory_and_over_udp() {
    for command in [
        "--connections 20",
        "--connections 9 --agents 2",
        "--connections 5 --messages 100 --size 1M --processes",
        "--connections 20 --device soft@127.80.0.1,soft@127.80.0.2",
        "--connections 9 --agents 4 --device soft@127.80.0.3,soft@127.80.0.4",
    ] {
        let figures = figures(command);
        assert_eq!(figures["program"], "connect");
        for step in STEPS {
            for side in ["active", "passive"] {
                let value = |name| number(&figures, &format!("/metrics/{side}/{step}/{name}"));
                let [p50, p99, mean] = ["p50", "p99", "mean"].map(value);
                let found = format!("{side} {step} of {command}: {p50}, {p99}, {mean}");
                // The median is 0 if a step takes no longer than reading the clock, which is subtracted.
                assert!(p50 <= p99 && mean > 0.0, "{found}");
            }
        }
        for step in MESSAGES {
            assert!(number(&figures, &format!("/metrics/active/{step}/p50")) > 0.0);
            assert_eq!(figures["metrics"]["passive"].get(step), None);
        }
        assert!(number(&figures, "/metrics/connections_per_s") > 0.0);
        let steps = |names: [&str; 3]| -> f64 {
            let mean = |name| number(&figures, &format!("/metrics/active/{name}/mean"));
            names.map(mean).iter().sum()
        };
        let whole = number(&figures, "/metrics/active/connection_ns/mean");
        let phases = steps(["setup_ns", "use_ns", "break_down_ns"]);
        // Histograms have three digits.
        assert!((phases / whole - 1.0).abs() < 0.01, "{phases}, {whole}");
    }
}

#[test]
fn each_step_of_tcp_is_timed() {
    for more in [
        "--connections 5",
        "--connections 5 --processes --messages 0",
        "--connections 100 --messages 0",
    ] {
        let figures = figures(&format!("--device tcp {more}"));
        assert_eq!(figures["device"]["kind"], "tcp");
        let sides = [
            ("active", ["socket_ns", "bind_ns", "tcp_connect_ns"]),
            ("passive", ["bind_ns", "tcp_listen_ns", "accept_ns"]),
        ];
        for (side, own) in sides {
            let of_both = [
                "setup_ns",
                "shutdown_ns",
                "close_ns",
                "break_down_ns",
                "connection_ns",
            ];
            for step in own.into_iter().chain(of_both) {
                let value = number(&figures, &format!("/metrics/{side}/{step}/mean"));
                assert!(value > 0.0, "{side} {step}");
            }
        }
        let first = number(&figures, "/metrics/active/first_message_ns/mean");
        assert!(first > 0.0);
        assert_eq!(figures["metrics"]["active"].get("create_qp_ns"), None);
        assert_eq!(figures["params"].get("size_bytes"), None);
    }
    let out = Place::new()
        .run("connect --device tcp --connections 2")
        .ok()
        .out;
    assert!(out.contains("polling sockets, TCP_NODELAY"), "{out}");
    let refused = |option: &str| {
        let ended = Place::new().run(&format!("connect --device tcp {option}"));
        ended.refused(2).to_owned()
    };
    assert_snapshot!(refused("--size 4K"), @"error: --size 4 KiB: tcp registers no memory; leave it out");
    assert_snapshot!(refused("--agents 2"), @"error: --agents 2: tcp has one listener, which accepts its connections itself; leave it out");
    assert_snapshot!(refused("--rnr-retry 2"), @"error: --rnr-retry 2: tcp posts no receives; leave it out");
}

/// The kernel counts for root only, and tells which event counts in tracefs, which is mounted for this program alone.
#[test]
fn system_calls_of_each_step_are_counted() {
    let place = Place::new();
    let plain = place.command("connect --connections 2 --messages 1 --json");
    let mut command = std::process::Command::new("unshare");
    let mount = "mount -t tracefs tracefs /sys/kernel/tracing && exec \"$@\"";
    command.args(["-m", "sh", "-c", mount, "sh"]);
    command.arg(plain.get_program()).args(plain.get_args());
    let set = plain
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    command.envs(set).stdin(Stdio::null());
    let ended = command.output().expect("unshare");
    let talk = String::from_utf8_lossy(&ended.stderr).into_owned();
    if talk.contains("unshare failed") || talk.contains("mount:") {
        return not_run("counting system calls of adverb connect", talk.trim());
    }
    let figures = Ended::from(ended).record();
    let calls = |step: &str| number(&figures, &format!("/metrics/active/{step}/system_calls"));
    assert!(calls("create_channel_ns") >= 1.0, "{figures}");
    assert_eq!(calls("to_init_ns"), 0.0, "{figures}");
    assert!(calls("setup_ns") >= calls("create_channel_ns") + calls("register_mr_ns"));
}

#[test]
fn devices_are_shown_side_by_side() {
    let command = "connect --device soft --device tcp --connections 3 --messages 2 --size 64K";
    let out = Place::new().run(command).ok().out;
    let (_, table) = out.split_once("side by side").expect("a table of both");
    let row = |step: &str| {
        let rows = table.lines().map(str::split_whitespace);
        let mut rows = rows.map(|words| words.collect::<Vec<_>>().join(" "));
        let row = rows.find(|row| row.starts_with(step));
        row.unwrap_or_else(|| panic!("{step} in {table}"))
    };
    assert_eq!(row("step"), "step soft calls tcp calls");
    assert!(!row("set-up").ends_with("- -"), "{table}");
    // Each device has steps that the other one lacks.
    assert!(row("create QP").ends_with(" - -"), "{table}");
}

#[test]
fn a_device_that_does_not_choose_its_pages_refuses_huge_ones() {
    for device in ["soft", "model:connect_ib"] {
        let command = format!("connect --connections 2 --device {device} --pages huge");
        let ended = Place::new().run(&command);
        let line = ended.refused(2);
        let words = " has no choice of the pages of memory regions (verbs:NAME has one)";
        assert!(line.ends_with(words), "{line}");
    }
}

#[test]
fn a_listener_hands_connections_to_agents() {
    let figures = figures("--connections 7 --agents 3");
    let roles = figures["roles"].as_array().unwrap();
    let names: Vec<&str> = roles.iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["active", "listener", "agent 0", "agent 1", "agent 2"]
    );
    assert_eq!(figures["params"]["agents"], 3);
}

#[test]
fn the_model_charges_for_registration_by_size_and_leaves_out_what_it_does_not_model() {
    let registration = |size: &str| {
        let command = format!("--connections 3 --agents 2 --size {size} --device model:connect_ib");
        let figures = figures(&command);
        assert_eq!(figures["metrics"]["active"].get("to_rtr_ns"), None);
        for step in MESSAGES {
            assert!(number(&figures, &format!("/metrics/active/{step}/p50")) > 0.0);
        }
        number(&figures, "/metrics/active/register_mr_ns/p50")
    };
    assert!(registration("4K") < registration("16M"));
    let out = Place::new()
        .run("connect --device model:connect_ib")
        .ok()
        .out;
    let last = out.lines().last().unwrap();
    assert!(last.starts_with("Not modelled: allocate PD, "), "{last}");
    assert!(!out.contains(" 0 s"), "{out}");
}

#[test]
fn without_a_receive_the_first_message_fails_after_the_rnr_retries() {
    for device in [
        "soft",
        "soft@127.80.0.5,soft@127.80.0.6",
        "model:connect_ib",
    ] {
        let first = |retries: u32| {
            let command = format!("--connections 2 --rnr-retry {retries} --device {device}");
            let figures = figures(&command);
            assert_eq!(figures["params"]["rnr_retry_cnt"], retries);
            assert_eq!(figures["metrics"]["active"].get("further_message_ns"), None);
            number(&figures, "/metrics/active/first_message_ns/p50")
        };
        // Each retry waits for the receiver's RNR timer of 10 µs at least.
        assert!(first(6) >= 60e3, "{device}");
        assert!(first(0) > 0.0, "{device}");
    }
    let talk = Place::new()
        .run("connect --rnr-retry 2 --connections 1")
        .ok();
    let last = talk.out.lines().last().unwrap();
    assert_snapshot!(last, @"Each first message failed after 2 RNR retries (RNR retry counter exceeded); what was posted after it was flushed.");
}

#[test]
fn sweeps_are_tables_records_and_plots() {
    let place = Place::new();
    let ended = place.run("connect --connections 1,4 --size 4K,64K --out life");
    let out = ended.ok().out;
    let header = out.lines().nth(1).unwrap();
    assert!(header.contains("connections  size_bytes  step"), "{header}");
    let all = records(&place.path("life"));
    assert_eq!(all.len(), 4);
    let page = std::fs::read_to_string(place.path("life/report.html")).unwrap();
    assert!(page.contains("median time to register memory over"));
    let slow = "connect --connections 1 --max-latency 1ns --min-rate 1000M";
    let refused = place.run(slow);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.talk.contains("connections/s, below --min-rate"),
        "{}",
        refused.talk
    );
}

#[test]
fn lost_packets_are_sent_again() {
    let faults = "--loss 5% --timeout 16ms --device soft@127.80.0.7,soft@127.80.0.8";
    let figures = figures(&format!("--connections 20 --messages 20 {faults}"));
    assert!(number(&figures, "/metrics/active/use_ns/p50") > 0.0);
}

#[test]
fn invalid_options_are_refused_in_one_line() {
    let refused = |command: &str| {
        let ended = Place::new().run(&format!("connect {command}"));
        ended.refused(2).to_owned()
    };
    assert_snapshot!(refused("--connections 0"), @"error: --connections: invalid count '0': expected a whole number from 1 to 1000");
    assert_snapshot!(refused("--connections 1001"), @"error: --connections: invalid count '1001': expected a whole number from 1 to 1000");
    assert_snapshot!(refused("--agents 0"), @"error: --agents: invalid count '0': expected a whole number from 1 to 64");
    assert_snapshot!(refused("--rnr-retry 7"), @"error: --rnr-retry 7: 7 means without end, so that nothing fails; expected 0 to 6");
    assert_snapshot!(refused("--rnr-retry 8"), @"error: --rnr-retry: invalid retry count '8': expected 0 to 7");
    assert_snapshot!(refused("--size 1K"), @"error: region of 1 KiB: this device has regions up to 256 GiB, the messages need 4 KiB");
    assert_snapshot!(refused("--size 1G --connections 1 --device model:mt26428_qdr --peer x"), @"error: --peer x:18600: model:mt26428_qdr is a model: both sides run in virtual time in this process; leave it out");
    assert_snapshot!(refused("--place agent=1"), @"error: role 'agent=1' has no place: expected ROLE=HOST with ROLE one of active, passive, HOST 0 to 0");
}
