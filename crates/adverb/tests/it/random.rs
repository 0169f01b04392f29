//! Random command lines: each ends in time, with records or with a refusal.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::common::{Place, end_of};

/// Command lines in each run of the tests. `scripts/fuzz commands` runs more, others each time.
const RUNS: u32 = 100;
const MORE_RUNS: &str = "ADVERB_FUZZ";

/// A command, an option that it needs, and further options, each given or not. `|` separates values.
type Command = (&'static str, &'static str, &'static [&'static str]);

const DEVICE: &str = "--device soft|model:mt26428_qdr|model:qdr_switch|model:cx|model:cx3|model:connect_ib|model:cx4_nurdma|model:cx7|model:ammasso_gige";

const SIZE: &str = "--size 1|64|1500|4097|64K";
const TRANSPORT: &str = "--transport rc|uc|ud";
const MTU: &str = "--mtu 256|1024|4096";
const COMPLETION: &str = "--completion poll|event|hybrid:1us|hybrid:20us";
const CLIENTS: &str = "--clients 1|2|3|5";
const OUTSTANDING: &str = "--outstanding 1|2|3|8|33";
const MACHINES: &str = "--machines 1|2|3";
const CORES: &str = "--cores 1|2|3";
const RATE: &str = "--rate 10k|1M";
const BATCH: &str = "--batch 1|2|8|16";
const QPS: &str = "--qps 1|2|3|7";
const REPETITIONS: &str = "--repetitions 1|2";

const COMMANDS: &[Command] = &[
    (
        "ping --duration 1ms",
        "--op send|write-imm|write|read|write-read|fetch-add|cas",
        &[
            SIZE,
            "--inline",
            COMPLETION,
            TRANSPORT,
            "--verify",
            "--reversed",
            "--signal write-unsignaled",
            MTU,
            REPETITIONS,
        ],
    ),
    (
        "blast --duration 1ms",
        "--op send|write-imm|write|read|fetch-add|cas",
        &[
            SIZE,
            "--inline",
            COMPLETION,
            TRANSPORT,
            "--verify",
            "--reversed",
            "--bidirectional",
            "--post list",
            "--signal periodic|every=2|every=3|every=7",
            "--buffers 1|2|3|7|17|32",
            "--iters 1|2|100|1001",
            MTU,
            QPS,
            REPETITIONS,
        ],
    ),
    (
        "closed-loop --duration 1ms",
        "--op write|read|fetch-add|cas",
        &[
            "--size 1|64|1K",
            "--inline",
            "--inbound",
            "--slots lines|packed",
            "--rd-atomic 1|4",
            "--think 32ns|100us",
            "--workers 1|2",
            "--flush",
            QPS,
            BATCH,
            CLIENTS,
            OUTSTANDING,
            MACHINES,
        ],
    ),
    (
        "open-loop --duration 1ms",
        "--op write|read|fetch-add|cas",
        &[
            "--size 1|64|1K",
            "--inbound",
            QPS,
            BATCH,
            CLIENTS,
            OUTSTANDING,
            MACHINES,
        ],
    ),
    (
        "sequencer --duration 1ms",
        "--by rpc|rpc-imm|atomics",
        &[CORES, RATE, QPS, BATCH, CLIENTS, OUTSTANDING, MACHINES],
    ),
    (
        "kv --duration 1ms",
        "--by rpc|memory",
        &[
            "--value 1|32|1K|4K",
            "--put 0|0.05|1",
            "--items 1|100",
            "--reads 1|2|3",
            "--puts lock|ask",
            CORES,
            RATE,
            QPS,
            BATCH,
            CLIENTS,
            OUTSTANDING,
            MACHINES,
        ],
    ),
    (
        "rpc --duration 1ms",
        "--by send|write|write-send|read",
        &[
            TRANSPORT,
            "--request 8|100|8K",
            "--reply 8|100|8K",
            "--think 1us",
            COMPLETION,
            CORES,
            RATE,
            CLIENTS,
            OUTSTANDING,
            MACHINES,
        ],
    ),
    (
        "sync --duration 1ms",
        "--local none|cpu|loopback|plain",
        &["--threads 1|2|3", CLIENTS, OUTSTANDING],
    ),
    (
        "interference",
        "--by write|send",
        &[
            "--iters 1|3",
            "--size 64|64K",
            "--compute 1ms|3ms",
            CLIENTS,
            COMPLETION,
        ],
    ),
    (
        "overlap",
        "--by write|read|send",
        &[
            "--iters 1|3",
            "--size 64|64K",
            "--compute 0|50us",
            COMPLETION,
        ],
    ),
    (
        "rendezvous",
        "--protocol write|read|prearranged|eager|sockets",
        &["--iters 1|3", "--size 1|64|64K"],
    ),
];

/// `--flag value`, with one of the values.
fn option(of: &'static str) -> impl Strategy<Value = String> {
    let (flag, values) = of.split_once(' ').unwrap_or((of, ""));
    let values: Vec<&str> = values.split('|').collect();
    prop::sample::select(values).prop_map(move |value| format!("{flag} {value}"))
}

fn command_line() -> impl Strategy<Value = String> {
    let command = prop::sample::select(COMMANDS);
    (command, option(DEVICE)).prop_flat_map(|((name, needed, others), device)| {
        let others = others
            .iter()
            .map(|of| prop::option::weighted(0.4, option(of)));
        (option(needed), others.collect::<Vec<_>>()).prop_map(move |(needed, others)| {
            let others: Vec<String> = others.into_iter().flatten().collect();
            format!("{name} {needed} {} {device} --json", others.join(" "))
        })
    })
}

#[test]
fn random_command_lines_end_with_records_or_a_refusal() {
    let more = std::env::var(MORE_RUNS).ok();
    let config = Config::with_cases(more.as_ref().map_or(RUNS, |runs| runs.parse().unwrap()));
    let mut runner = match more {
        Some(_) => TestRunner::new(config),
        None => {
            let random = TestRng::deterministic_rng(RngAlgorithm::default());
            TestRunner::new_with_rng(config, random)
        }
    };
    let ended_well = runner.run(&command_line(), |line| {
        let ended = end_of(Place::new().spawn(&line));
        match ended.code {
            Some(0) => prop_assert!(!ended.json().is_empty(), "adverb {line}"),
            // What the options ask for is impossible. Nothing fails that was begun.
            Some(2) => drop(ended.failed(2)),
            code => prop_assert!(false, "adverb {line}: {code:?}: {}", ended.talk),
        }
        Ok(())
    });
    ended_well.unwrap();
}
