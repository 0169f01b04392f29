//! Programs over a long or bad path, with every byte verified.

use adverb_hwmodel::Preset;
use adverb_results::{Opcode, Program};
use adverb_units::Span;
use adverb_verbs::{Impairment, Probability};
use adverb_workload::pair::{CellResult, Request};

use crate::common::{cell, pair, run, run_in};

/// Runs a cell behind a path; returns its result and the number of retransmissions.
fn run_behind(
    preset: &str,
    how: Impairment,
    (program, op, size, buffers): (Program, Opcode, u64, u32),
) -> (CellResult, u64) {
    let mut spec = cell(program, op, size);
    spec.params = Request {
        buffers,
        ..spec.params
    };
    let mut cluster = pair(&Preset::built_in(preset).unwrap());
    cluster.impair(how);
    let result = run_in(&mut cluster, &spec);
    let machines = [cluster.machine(0), cluster.machine(1)];
    let resent = machines.map(|machine| cluster.counters(machine)["retransmissions"]);
    (result, resent.iter().sum())
}

fn delayed(delay: Span) -> Impairment {
    Impairment {
        delay,
        seed: 1,
        ..Impairment::default()
    }
}

#[test]
fn every_byte_arrives_over_a_path_that_loses_packets() {
    let bad = Impairment {
        loss: Probability::per_million(20_000),
        jitter: Span::from_us(2),
        ..delayed(Span::from_us(20))
    };
    for preset in ["cx3", "mt26428_qdr"] {
        for op in [
            Opcode::Send,
            Opcode::Write,
            Opcode::WriteImm,
            Opcode::Read,
            Opcode::FetchAdd,
        ] {
            let sizes: &[u64] = if op.is_atomic() { &[8] } else { &[64, 50_000] };
            for &size in sizes {
                let streamed = (Program::Blast, op, size, 8);
                let (result, resent) = run_behind(preset, bad, streamed);
                assert!(resent > 0, "{preset} {op} {size}");
                assert!(
                    result.metrics.messages_per_s.is_some(),
                    "{preset} {op} {size}"
                );
            }
        }
        let (_, resent) = run_behind(preset, bad, (Program::Ping, Opcode::Send, 5_000, 1));
        assert!(resent > 0, "{preset}");
    }
}

#[test]
fn a_path_that_does_nothing_changes_nothing() {
    let nothing = Impairment::default();
    for op in [Opcode::Send, Opcode::Read] {
        let (on_path, _) = run_behind("cx3", nothing, (Program::Blast, op, 5_000, 8));
        let mut spec = cell(Program::Blast, op, 5_000);
        spec.params.buffers = 8;
        let without = run("cx3", &spec);
        assert_eq!(
            on_path.metrics.messages_per_s.map(|rate| rate.per_second()),
            without.metrics.messages_per_s.map(|rate| rate.per_second())
        );
    }
}

#[test]
fn a_ping_takes_the_delay_longer_and_a_stream_fills_its_window_once_per_round_trip() {
    let far = delayed(Span::from_ms(1));
    let one_way = |how| {
        let (result, _) = run_behind("cx3", how, (Program::Ping, Opcode::Send, 64, 1));
        result.metrics.one_way_ns.mean.unwrap()
    };
    let late = one_way(far) - one_way(Impairment::default());
    assert!((late - 1e6).abs() < 1e3, "{late} ns");
    let rate = |buffers| {
        let (result, _) = run_behind("cx3", far, (Program::Blast, Opcode::Write, 4096, buffers));
        result.metrics.messages_per_s.unwrap().per_second()
    };
    // 8 in 2 ms.
    let eight = rate(8);
    assert!((3_000.0..4_100.0).contains(&eight), "{eight}");
    let twice = rate(16) / eight;
    assert!((1.8..2.1).contains(&twice), "{twice}");
}

#[test]
fn a_stream_gets_the_rate_of_the_path() {
    let slow = Impairment {
        rate: "1Gbit/s".parse().ok(),
        ..delayed(Span::from_us(10))
    };
    let (result, resent) = run_behind("cx3", slow, (Program::Blast, Opcode::Write, 65_536, 16));
    let rate = result.metrics.bytes_per_s.unwrap().bytes_per_second();
    assert_eq!(resent, 0);
    assert!((0.9..1.0).contains(&(8.0 * rate / 1e9)), "{rate}");
}

#[test]
fn a_short_queue_loses_packets_of_a_long_message() {
    let slow = Impairment {
        rate: "1Gbit/s".parse().ok(),
        queue: Some(20),
        ..delayed(Span::from_us(10))
    };
    let (_, resent) = run_behind("cx3", slow, (Program::Blast, Opcode::Write, 65_536, 8));
    assert!(resent > 0);
}
