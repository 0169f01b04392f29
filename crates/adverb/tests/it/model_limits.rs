//! What hardware and protocols bound: no prediction of the model is beyond it.

use serde_json::Value;

use crate::common::Place;

/// The record of a command.
#[track_caller]
fn record(line: &str) -> Value {
    Place::new().run(&format!("{line} --json")).record()
}

#[track_caller]
fn number(line: &str, path: &str) -> f64 {
    let record = record(line);
    let value = record.pointer(path).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("{path} of {line}: {record}"))
}

/// Clients connect before the server has seen the connections of the ones before.
#[test]
fn connections_share_the_ports_of_a_server() {
    for (preset, gbps) in [("cx6dx", 200.0), ("connect_ib", 108.0)] {
        let line = format!(
            "closed-loop --op read --size 2K --inbound --qps 1 --outstanding 4 --clients 64 --device model:{preset}"
        );
        let record = record(&line);
        let of = |name: &str| record["metrics"][name].as_f64().unwrap();
        let share = of("requests_per_s") * 2048.0 * 8.0 / 1e9 / gbps;
        assert!((0.9..1.0).contains(&share), "{share} of {preset}: {record}");
        let (least, most) = (of("client_least_per_s"), of("client_most_per_s"));
        assert!(least > 0.8 * most, "{record}");
    }
}

#[test]
fn a_port_receives_no_more_than_its_rate() {
    for preset in ["mt26428_roce10", "cx5"] {
        let line = format!(
            "closed-loop --op write --size 4K --inbound --clients 8 --qps 1 --outstanding 16 --device model:{preset}"
        );
        let busiest = record(&line)["metrics"]["busiest"].clone();
        assert_eq!(busiest["resource"], "link to the port", "{preset}");
        assert!(busiest["percent"].as_f64() > Some(95.0), "{busiest}");
    }
}

/// Source: D. Potter, master's thesis, RWTH Aachen 2018: 32 KiB by `ib_send_lat` on ConnectX-4, 4.56 to 4.58 µs. In the model
/// the headers of 256 B packets take 5 % more.
#[test]
fn small_packets_take_about_as_long_as_large_ones() {
    let time = |mtu: u32| {
        let line = format!("ping --op send --size 32K --mtu {mtu} --device model:cx4_nurdma");
        number(&line, "/metrics/one_way_ns/p50")
    };
    let ratio = time(256) / time(4096);
    assert!((0.95..1.06).contains(&ratio), "{ratio}");
}

#[test]
fn the_end_of_a_line_makes_no_read_faster() {
    let rate = |size: u32| {
        let line = format!(
            "open-loop --op read --clients 8 --qps 1 --outstanding 64 --inbound --load 16 --load-size 64M --device model:connect_ib --size {size}"
        );
        number(&line, "/metrics/requests_per_s")
    };
    let ratio = rate(64) / rate(63);
    assert!((0.95..1.06).contains(&ratio), "{ratio}");
}

#[test]
fn a_lost_response_is_requested_once() {
    let line =
        "blast --op read --size 64K --buffers 16 --iters 20000 --loss 0.1% --device model:cx3";
    let record = record(line);
    let of = |name: &str| record["counters"]["active"][name].as_u64().unwrap();
    // A response has 16 packets.
    let (lost, resent) = (of("completed_requests") * 16 / 1000, of("retransmissions"));
    assert!(resent < 2 * lost, "{resent} for {lost}: {record}");
}

/// The kernel's, measured through `adverb degen --loss 2%`: 207 to 240 ms.
#[test]
fn a_segment_that_is_alone_waits_for_the_timeout_of_tcp() {
    let line = "ping --op send --over tcp --size 64 --iters 500 --loss 1% --device model:cx5";
    let most = number(line, "/metrics/one_way_ns/max");
    assert!(most > 100e6, "{most}");
}

#[test]
fn a_model_measures_the_timeouts_of_lost_packets() {
    let line =
        "closed-loop --op write --clients 4 --qps 1 --outstanding 4 --loss 0.1% --device model:cx5";
    let usual = number(line, "/metrics/requests_per_s");
    let long = number(&format!("{line} --duration 3s"), "/metrics/requests_per_s");
    assert!((0.7..1.4).contains(&(usual / long)), "{usual}, {long}");
}

/// READs that were posted before the measured time would otherwise end in it.
#[test]
fn a_store_in_memory_sends_no_more_than_its_link() {
    let line = "kv --by memory --value 4K --put 0 --clients 8 --device model:cx3";
    let rate = number(line, "/metrics/requests_per_s");
    // 56 Gbit/s less the code of FDR and the headers; 2 % is the drift that is accepted.
    let gbps = rate * 4096.0 * 8.0 / 1e9;
    assert!((40.0..52.2).contains(&gbps), "{gbps}");
}

#[test]
fn a_closed_loop_keeps_its_requests_in_flight() {
    let line =
        "closed-loop --op read --inbound --clients 20 --outstanding 24 --qps 1 --device model:cx7";
    let record = record(line);
    let of = |path: &str| record.pointer(path).and_then(Value::as_f64).unwrap();
    let in_flight = of("/metrics/requests_per_s") * of("/metrics/latency_ns/mean") / 1e9;
    assert!((0.97..1.03).contains(&(in_flight / 480.0)), "{in_flight}");
}

#[test]
fn atomics_on_many_words_are_limited_by_their_slots() {
    let line = "closed-loop --op fetch-add --inbound --clients 64 --machines 8 --outstanding 16 --qps 1 --device model:connect_ib";
    let busiest = &record(line)["metrics"]["busiest"];
    let resource = busiest["resource"].as_str().unwrap();
    assert!(resource.contains("atomics"), "{busiest}");
    assert!(busiest["percent"].as_f64().unwrap() > 80.0, "{busiest}");
}

#[test]
fn an_error_behind_a_bad_path_names_the_options_that_help() {
    let line = "blast --op write --loss 60% --retries 1 --device model:cx3";
    let ended = Place::new().run(line);
    let error = ended.failed(1);
    assert!(error.contains("raise --retries or --timeout"), "{error}");
}
