//! Kernel TCP on the model.

use adverb_hwmodel::Preset;
use adverb_results::{Completion, Opcode, Program, Transport};
use adverb_sim::{Budget, Outcome};
use adverb_units::Span;
use adverb_verbs::{Station, StreamError, StreamWait, Streams, WaitError};
use adverb_workload::pair::{CellResult, Length};

const LATE: Span = Span::from_secs(60);

/// A ping with sleeping readers.
fn ping(preset: &Preset, bytes: u64) -> CellResult {
    measure(preset, Program::Ping, bytes, Completion::Event)
}

fn measure(preset: &Preset, program: Program, bytes: u64, how: Completion) -> CellResult {
    let mut spec = crate::common::cell(program, Opcode::Send, bytes);
    spec.params.traffic.transport = Transport::Tcp;
    spec.params.completion = how;
    spec.params.length = Length::Iters(20);
    crate::common::run_on(preset, &spec)
}

fn one_way(preset: &Preset, bytes: u64) -> f64 {
    ping(preset, bytes).metrics.one_way_ns.mean.unwrap()
}

fn preset(name: &str, overrides: &[(&'static str, f64)]) -> Preset {
    Preset::built_in(name).unwrap().with(overrides).unwrap()
}

#[test]
fn a_message_takes_at_least_the_work_on_its_path() {
    let gige = preset("ammasso_gige", &[]);
    let (p, metrics) = (&gige.params, ping(&gige, 1).metrics);
    let work = p.cpu.wake_ns + p.tcp.process_ns * 2 + p.tcp.nic_ns * 2 + p.link.switch_ns;
    let took = metrics.one_way_ns.mean.unwrap();
    assert!(
        (1.0..2.0).contains(&(took / work.as_ns_f64())),
        "{took} ns for {work} of work"
    );
    // Sending, handling the interrupt, and waking up.
    let least = p.tcp.process_ns * 2 + p.cpu.wake_cpu_ns;
    let active = metrics.cpu.active;
    let used = active.percent.unwrap() / 100.0 * 2.0 * took;
    assert!(used > least.as_ns_f64(), "{used} ns");
    assert!(active.user < active.system, "{active:?}");
}

#[test]
fn a_polling_reader_is_faster_and_keeps_its_core_busy() {
    let gige = preset("ammasso_gige", &[]);
    let [polling, sleeping] = [Completion::Poll, Completion::Event].map(|how| {
        let metrics = measure(&gige, Program::Ping, 64, how).metrics;
        let share = metrics.cpu.active.percent.unwrap();
        (metrics.one_way_ns.mean.unwrap(), share)
    });
    // A wake-up, except the call that comes too early, half of it in vain, and the one that finds the message.
    let cpu = &gige.params.cpu;
    let expected = cpu.wake_ns.as_ns_f64() - 1.5 * cpu.syscall_ns.as_ns_f64();
    let saved = (sleeping.0 - polling.0) / expected;
    assert!((0.95..1.05).contains(&saved), "{saved}");
    assert!(
        (99.0..101.0).contains(&polling.1) && sleeping.1 < 80.0,
        "{polling:?} {sleeping:?}"
    );
}

#[test]
fn the_slowest_stage_limits_long_messages() {
    let bytes = 1 << 20;
    let gbps = |program, process_ns| {
        let gige = preset("ammasso_gige", &[("tcp.process_ns", process_ns)]);
        let metrics = measure(&gige, program, bytes, Completion::Event).metrics;
        bytes as f64 * 8.0 / metrics.one_way_ns.mean.unwrap()
    };
    let fast = gbps(Program::Ping, 2_000.0);
    assert!((0.7..0.95).contains(&fast), "{fast} of 1 Gb/s");
    // A segment of 1448 B takes at least its processing.
    let slow = gbps(Program::Ping, 40_000.0);
    assert!((0.2..1_448.0 * 8.0 / 40_000.0).contains(&slow), "{slow}");
}

#[test]
fn a_stream_fills_the_link() {
    for how in [Completion::Poll, Completion::Event] {
        let gige = preset("ammasso_gige", &[("tcp.process_ns", 2_000.0)]);
        let metrics = measure(&gige, Program::Blast, 65_536, how).metrics;
        let gbps = metrics.bytes_per_s.unwrap().bytes_per_second() * 8.0 / 1e9;
        assert!((0.9..0.95).contains(&gbps), "{how}: {gbps} of 1 Gb/s");
    }
}

#[test]
fn the_window_limits_long_paths() {
    let far = |window| {
        let far = [("link.cable_ns", 500_000.0), ("tcp.window_bytes", window)];
        one_way(&preset("ammasso_gige", &far), 1 << 20)
    };
    // One window per round trip of 2 ms.
    let trips = f64::from(1 << 20) / 65_536.0;
    let took = far(65_536.0);
    assert!(took > (trips - 1.0) * 2e6, "{took} ns");
    assert!(took > 3.0 * far(1e7), "{took} ns");
}

#[test]
fn a_stream_connects_carries_bytes_and_ends() {
    let mut cluster = crate::common::pair(&preset("cx3", &[]));
    let (a, b) = (cluster.machine(0), cluster.machine(1));
    let passive = cluster.spawn(b, "passive", |station| {
        let (listener, at) = station.listen().unwrap();
        let text = format!("{}", at.at);
        station
            .send(adverb_verbs::RoleId(1), text.as_bytes())
            .unwrap();
        let how = StreamWait::Sleep;
        let soon = station.accept(&listener, Span::from_ns(1)).err().unwrap();
        assert_eq!(soon.to_string(), "no connection within 1.00 ns");
        let stream = station.accept(&listener, LATE).unwrap();
        let mut received = [0; 100];
        let count = station.receive_some(&stream, &mut received, how, LATE);
        assert_eq!(&received[..count.unwrap()], b"to be read");
        let ended = station.receive_some(&stream, &mut received, how, LATE);
        matches!(ended, Err(WaitError::Stream(StreamError::Closed)))
    });
    let active = cluster.spawn(a, "active", |station| {
        let text = station.receive(adverb_verbs::RoleId(0), LATE).unwrap();
        let at = String::from_utf8(text).unwrap().parse().unwrap();
        let to = adverb_verbs::StreamAddress { at, key: [0; 16] };
        let start = station.now();
        let stream = Streams::connect(station, to, LATE).unwrap();
        let handshake = station.now() - start;
        station
            .send_some(&stream, b"to be read", StreamWait::Poll, LATE)
            .unwrap();
        let late = station.receive_some(&stream, &mut [0], StreamWait::Poll, Span::from_us(1));
        let late = late.unwrap_err().to_string();
        assert_eq!(late, "no data on the connection within 1.00 µs");
        station.shutdown(&stream).unwrap();
        handshake
    });
    let outcome = cluster.run(&Budget::NONE);
    assert_eq!(outcome, Outcome::Finished, "{outcome}");
    assert_eq!(passive.take(), Some(true));
    // A round trip and the work of three segments.
    let p = &preset("cx3", &[]).params;
    let handshake = active.take().unwrap();
    assert!(
        handshake > p.tcp.process_ns * 3 + p.tcp.nic_ns * 4,
        "{handshake}"
    );
}

#[test]
fn nobody_listens_at_a_closed_port() {
    let mut cluster = crate::common::pair(&preset("cx3", &[]));
    let a = cluster.machine(0);
    let refused = cluster.spawn(a, "alone", |station| {
        let (listener, at) = station.listen().unwrap();
        drop(listener);
        Streams::connect(station, at, LATE)
            .err()
            .unwrap()
            .to_string()
    });
    assert_eq!(cluster.run(&Budget::NONE), Outcome::Finished);
    let refused = refused.take().unwrap();
    assert!(
        refused.starts_with("cannot connect to 10.0.0.1:1024: connection refused"),
        "{refused}"
    );
}

/// One-way time of a WRITE ping with polled memory.
fn write_ping(preset: &Preset, bytes: u64) -> f64 {
    let mut spec = crate::common::cell(Program::Ping, Opcode::Write, bytes);
    spec.params.length = Length::Iters(20);
    let metrics = crate::common::run_on(preset, &spec).metrics;
    metrics.one_way_ns.mean.unwrap()
}

#[test]
fn rdma_gains_less_the_longer_messages_are() {
    let gige = preset("ammasso_gige", &[]);
    let share = |bytes| write_ping(&gige, bytes) / one_way(&gige, bytes);
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
        let us = one_way(&preset(name, &[]), 64) / 1e3;
        assert!((5.0..most).contains(&us), "{name}: {us} us");
    }
}
