//! Kernel TCP on the model.

mod common;

use adverb_hwmodel::Preset;
use adverb_results::{Opcode, Program};
use adverb_sim::Budget;
use adverb_units::{CpuTime, Span};
use adverb_verbs::Station;
use adverb_workload::pair::Length;

/// One-way time of a ping, and the client's CPU time per round.
fn ping(preset: &Preset, bytes: u64) -> (Span, CpuTime) {
    const ROUNDS: u64 = 20;
    let mut cluster = common::pair(preset);
    let (a, b) = (cluster.machine(0), cluster.machine(1));
    let (ours, theirs) = cluster.connect(a, b);
    let client = cluster.spawn(a, "client", move |station| {
        let (start, before) = (station.now(), station.cpu());
        for _ in 0..ROUNDS {
            ours.send(station, bytes);
            ours.receive(station, bytes);
        }
        let used = station.cpu().since(before);
        let cpu = CpuTime {
            user: used.user / ROUNDS,
            system: used.system / ROUNDS,
        };
        ((station.now() - start) / (2 * ROUNDS), cpu)
    });
    cluster.spawn(b, "server", move |station| {
        for _ in 0..ROUNDS {
            theirs.receive(station, bytes);
            theirs.send(station, bytes);
        }
    });
    let outcome = cluster.run(&Budget::NONE);
    assert!(outcome.is_finished(), "{outcome}");
    client.take().unwrap()
}

fn preset(name: &str, overrides: &[(&'static str, f64)]) -> Preset {
    Preset::built_in(name).unwrap().with(overrides).unwrap()
}

#[test]
fn a_message_takes_at_least_the_work_on_its_path() {
    let gige = preset("ammasso_gige", &[]);
    let (p, cpu) = (&gige.params, ping(&gige, 1).1);
    let (one_way, _) = ping(&gige, 1);
    let work = p.cpu.wake_ns + p.tcp.process_ns * 2 + p.tcp.nic_ns * 2 + p.link.switch_ns;
    assert!(
        (work..work * 2).contains(&one_way),
        "{one_way} for {work} of work"
    );
    // Sending, handling the interrupt, and waking up.
    let least = p.tcp.process_ns * 2 + p.cpu.wake_cpu_ns;
    assert!(cpu.system > least, "{cpu:?}");
    assert!(cpu.user < cpu.system);
}

#[test]
fn the_slowest_stage_limits_long_messages() {
    let bytes = 1 << 20;
    let one_way = |overrides: &[_]| {
        ping(&preset("ammasso_gige", overrides), bytes)
            .0
            .as_ns_f64()
    };
    let gbps = bytes as f64 * 8.0 / one_way(&[("tcp.process_ns", 2_000.0)]);
    assert!((0.7..0.95).contains(&gbps), "{gbps} of 1 Gb/s");
    // A segment of 1448 B takes at least its processing.
    let gbps = bytes as f64 * 8.0 / one_way(&[("tcp.process_ns", 40_000.0)]);
    assert!((0.2..1_448.0 * 8.0 / 40_000.0).contains(&gbps), "{gbps}");
}

#[test]
fn the_window_limits_long_paths() {
    let far = |window| {
        let far = [("link.cable_ns", 500_000.0), ("tcp.window_bytes", window)];
        ping(&preset("ammasso_gige", &far), 1 << 20).0.as_ns_f64()
    };
    // One window per round trip of 2 ms.
    let trips = f64::from(1 << 20) / 65_536.0;
    let took = far(65_536.0);
    assert!(took > (trips - 1.0) * 2e6, "{took} ns");
    assert!(took > 3.0 * far(1e7), "{took} ns");
}

/// One-way time of a WRITE ping with polled memory.
fn write_ping(preset: &Preset, bytes: u64) -> f64 {
    let mut spec = common::cell(Program::Ping, Opcode::Write, bytes);
    spec.params.length = Length::Iters(20);
    let metrics = common::run_on(preset, &spec).metrics;
    metrics.one_way_ns.mean.unwrap()
}

#[test]
fn rdma_gains_less_the_longer_messages_are() {
    let gige = preset("ammasso_gige", &[]);
    let share = |bytes| write_ping(&gige, bytes) / ping(&gige, bytes).0.as_ns_f64();
    let shares = [64, 4096, 65_536].map(share);
    assert!(shares.is_sorted(), "{shares:?}");
    assert!(
        shares[0] < 0.7 && (0.9..1.01).contains(&shares[2]),
        "{shares:?}"
    );
}

#[test]
fn tcp_runs_on_every_network() {
    for (name, most) in [("cx3", 15.0), ("cx5", 15.0), ("mt26428_qdr", 15.0)] {
        let (one_way, _) = ping(&preset(name, &[]), 64);
        let us = one_way.as_ns_f64() / 1e3;
        assert!((5.0..most).contains(&us), "{name}: {us} us");
    }
}
