//! Little's law: requests in flight = rate × mean latency, for every program with a closed loop on every preset of the
//! model (`ping` and `blast`: `workload/tests/it/little.rs`). Ports, queue pairs or clients that are never served break it,
//! and so do latencies that leave a wait out: half of the clients once never got an answer, threads of a closed loop
//! waited 119 ns for a request where their rate was one in 850 ns, and answers out of order were not waited for.

use serde_json::Value;

use crate::common::Place;

/// How far apart the two sides of the law may be: latencies are samples, and the rate of atomics still rises.
const TOLERANCE: f64 = 0.08;
const CLIENTS: &str = "--clients 6 --outstanding 4 --json";

/// Programs, and the requests that they have in flight: by RPC `--outstanding` counts for a client, otherwise for each of
/// its two queue pairs.
type Programs<'a> = &'a [(&'a str, f64)];

/// With RC queue pairs alone, or over TCP.
const OF_RC: Programs<'_> = &[
    ("sequencer --by tcp", 24.0),
    ("kv --by memory --put 0.5 --puts ask", 48.0),
    // With lists, requests wait for others before they are in flight.
    ("closed-loop --op read --batch 1", 48.0),
    ("closed-loop --op write --inline --batch 1", 48.0),
    ("rpc --by send,write,write-send,read", 24.0),
];

/// With UC and UD queue pairs or atomics, which iWARP does not have.
const OF_OTHERS: Programs<'_> = &[
    ("sequencer --by rpc --cores 2", 24.0),
    ("sequencer --by rpc-imm", 24.0),
    ("sequencer --by atomics --qps 1", 24.0),
    ("kv --by rpc --put 0.5", 24.0),
    ("kv --by memory --reads 3", 48.0),
    ("kv --by memory --put 0.5", 48.0),
    // Few are completed in a millisecond.
    ("closed-loop --op cas --batch 1 --duration 4ms", 48.0),
    ("closed-loop --op fetch-add --batch 1 --duration 4ms", 48.0),
];

#[test]
fn requests_in_flight_are_rate_times_latency() {
    let devices = Place::new().run("devices").ok().out;
    let words = devices.lines().filter_map(|line| line.split(' ').next());
    let models: Vec<&str> = words.filter(|word| word.starts_with("model:")).collect();
    assert!(models.len() > 10, "{devices}");
    for model in models {
        let line = |program: &str| {
            let duration = match program.contains("--duration") {
                true => "",
                false => "--duration 1ms",
            };
            format!("{program} {CLIENTS} {duration} --device {model}")
        };
        for (program, in_flight) in OF_RC {
            let line = line(program);
            check(&line, &Place::new().run(&line).ok().out, *in_flight);
        }
        for (program, in_flight) in OF_OTHERS {
            let line = line(program);
            let ended = Place::new().run(&line);
            match model {
                "model:ammasso_gige" => drop(ended.refused(2)),
                _ => check(&line, &ended.ok().out, *in_flight),
            }
        }
    }
}

/// Checks the law, and that clients are served alike.
fn check(line: &str, out: &str, in_flight: f64) {
    let records = out.lines().map(|line| serde_json::from_str(line).unwrap());
    let records: Vec<Value> = records.collect();
    assert!(!records.is_empty(), "{line}");
    for record in records {
        let figure = |name: &str| record["metrics"][name].as_f64().unwrap();
        let mean = &record["metrics"]["latency_ns"]["mean"];
        let law = figure("requests_per_s") * mean.as_f64().unwrap() / 1e9;
        let error = law / in_flight - 1.0;
        assert!(error.abs() < TOLERANCE, "{line}: {law} of {in_flight}");
        let (least, most) = (figure("client_least_per_s"), figure("client_most_per_s"));
        assert!(least > 0.7 * most, "{line}: {least} to {most}");
    }
}

/// A millisecond is too short for what these clients have outstanding: a model measures for longer, unless it is told for how
/// long.
#[test]
fn deep_queues_are_measured_until_they_are_full() {
    for (line, in_flight) in [
        (
            "sequencer --by rpc --clients 40 --outstanding 64 --device model:cx",
            2560.0,
        ),
        (
            "sequencer --by atomics --qps 1 --clients 20 --outstanding 128 --device model:cx3",
            2560.0,
        ),
        (
            "closed-loop --op read --batch 1 --clients 32 --outstanding 32 --device model:ammasso_gige",
            2048.0,
        ),
        (
            "rpc --by send --transport rc --clients 40 --outstanding 64 --device model:mt26428_qdr",
            2560.0,
        ),
    ] {
        let out = Place::new().run(&format!("{line} --json")).ok().out;
        check(line, &out, in_flight);
        let short = Place::new().run(&format!("{line} --duration 1ms")).ok();
        let talk = short.talk_of_itself();
        assert!(
            talk.contains("too few for a steady state: choose a --duration in which"),
            "{talk}"
        );
    }
}
