//! Programs over a long or bad path, with every byte verified.

use adverb_hwmodel::Preset;
use adverb_results::{Opcode, Program, Transport};
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
            on_path
                .metrics
                .messages_per_s
                .map(adverb_units::MessageRate::per_second),
            without
                .metrics
                .messages_per_s
                .map(adverb_units::MessageRate::per_second)
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

/// Bytes per second of a TCP stream behind a path.
fn tcp_stream(how: Impairment) -> f64 {
    let mut spec = cell(Program::Blast, Opcode::Send, 50_000);
    spec.params.traffic.transport = Transport::Tcp;
    let mut cluster = pair(&Preset::built_in("cx3").unwrap());
    cluster.impair(how);
    let rate = run_in(&mut cluster, &spec).metrics.bytes_per_s;
    rate.unwrap().bytes_per_second()
}

#[test]
fn tcp_delivers_every_byte_over_a_path_that_loses_packets_and_slows_down() {
    let far = delayed(Span::from_ms(1));
    let lossy = |per_million| Impairment {
        loss: Probability::per_million(per_million),
        ..far
    };
    let rates = [far, lossy(1_000), lossy(50_000)].map(tcp_stream);
    assert!(rates.is_sorted_by(|one, other| one > other), "{rates:?}");
    // RFC 3649's response function of Reno: 1.2 / sqrt(loss) segments per round trip, here of 1448 B in 2 ms. CUBIC is at
    // least as fast.
    let reno = 1.2 / 0.05_f64.sqrt() * 1448.0 / 2e-3;
    assert!(
        (0.3 * reno..3.0 * reno).contains(&rates[2]),
        "{rates:?}, Reno {reno}"
    );
}

/// The kernel's CUBIC takes 10.7 of 12.5 MB/s, 10.9, and 22 MB/s (`iperf3 -C cubic` behind `adverb degen`).
#[test]
fn tcp_fills_a_path_with_a_short_queue_and_a_faster_one_no_less() {
    let rates = ["100Mbit/s", "300Mbit/s", "1Gbit/s"].map(|rate| {
        tcp_stream(Impairment {
            rate: rate.parse().ok(),
            queue: Some(100),
            ..delayed(Span::from_ms(10))
        })
    });
    assert!((0.7 * 12.5e6..12.5e6).contains(&rates[0]), "{rates:?}");
    assert!(rates.is_sorted(), "{rates:?}");
}

#[test]
fn iwarp_resends_what_is_lost_by_its_own_tcp() {
    let bad = Impairment {
        loss: Probability::per_million(10_000),
        ..delayed(Span::from_us(500))
    };
    for op in [Opcode::Send, Opcode::Write, Opcode::Read] {
        let (result, resent) = run_behind("ammasso_gige", bad, (Program::Blast, op, 20_000, 4));
        assert!(result.metrics.messages_per_s.is_some());
        assert_eq!(resent, 0, "{op}");
    }
}

#[test]
fn the_what_if_presets_of_the_examples_run_behind_a_path() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/presets");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        let preset = Preset::parse(&file.display().to_string(), &text).unwrap();
        assert!(preset.summary.starts_with("what if: "), "{}", preset.name);
        let mut cluster = pair(&preset);
        cluster.impair(delayed(Span::from_ms(1)));
        let result = run_in(&mut cluster, &cell(Program::Ping, Opcode::Write, 64));
        assert!(
            result.metrics.one_way_ns.mean > Some(1e6),
            "{}",
            preset.name
        );
        count += 1;
    }
    assert_eq!(count, 6);
}
