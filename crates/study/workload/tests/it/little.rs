//! Little's law: requests in flight = rate × mean latency, for `ping`, `blast` and closed loops.

use adverb_hwmodel::{Cluster, Placement, Preset};
use adverb_results::{LatencyRecorder, Metrics, Opcode, Posting, Signaling};
use adverb_units::{Bytes, Span};
use adverb_verbs::{RoleId, Station as _};
use adverb_workload::pair::{CellSpec, Length, Request, run_active, run_passive};
use adverb_workload::pattern::{
    Limits, Load, Meter, Outbound, Pattern, Refill, Schedule, Tally, Timing, Transport, run,
};

/// How far apart the two sides of the law may be.
const TOLERANCE: f64 = 0.02;

#[track_caller]
fn assert_law(what: &str, in_flight: f64, per_second: f64, mean_ns: f64) {
    let law = per_second * mean_ns / 1e9;
    assert!(
        (law / in_flight - 1.0).abs() < TOLERANCE,
        "{what}: {in_flight} in flight, but {per_second}/s × {mean_ns} ns = {law}"
    );
}

fn cluster(machines: usize) -> Cluster {
    let preset = Preset::built_in("connect_ib").unwrap();
    Cluster::new(&preset, &vec![Placement::Cached; machines])
}

fn measure(spec: &CellSpec) -> Metrics {
    let mut cluster = cluster(2);
    let (here, there) = (cluster.machine(0), cluster.machine(1));
    let (ours, theirs) = (spec.clone(), spec.clone());
    let active = cluster.spawn(here, "active", move |station| run_active(station, &ours));
    let passive = cluster.spawn(there, "passive", move |station| {
        run_passive(station, &theirs)
    });
    assert!(cluster.run(&adverb_sim::Budget::NONE).is_finished());
    passive.take().unwrap().unwrap();
    active.take().unwrap().unwrap().metrics
}

fn request(op: Opcode) -> Request {
    Request {
        length: Length::Iters(20_000),
        ..Request::new(op, Bytes::new(8))
    }
}

fn check_pair(spec: &CellSpec) {
    let metrics = measure(spec);
    let histogram = metrics.histogram.as_ref().unwrap();
    let mean = LatencyRecorder::from_histogram(histogram)
        .unwrap()
        .mean_ns();
    let rate = metrics.messages_per_s.unwrap().per_second();
    // The record's rate of a READ ping counts rounds, and its latency is halved as in other pings.
    let rounds = match (spec.program, spec.params.op) {
        (adverb_results::Program::Ping, Opcode::Read) => 2.0,
        _ => 1.0,
    };
    let in_flight = f64::from(spec.params.buffers);
    assert_law(&spec.id, in_flight, rate * rounds, mean.unwrap());
}

#[test]
fn pings_have_one_message_in_flight() {
    for op in [
        Opcode::Send,
        Opcode::WriteImm,
        Opcode::Write,
        Opcode::WriteRead,
        Opcode::Read,
    ] {
        check_pair(&CellSpec::ping(request(op)));
    }
}

#[test]
fn blasts_have_a_message_in_flight_for_each_buffer() {
    for op in [Opcode::Send, Opcode::WriteImm, Opcode::Write, Opcode::Read] {
        for (buffers, post, signal) in [
            (1, Posting::Single, Signaling::All),
            (4, Posting::Single, Signaling::All),
            (16, Posting::Single, Signaling::Periodic),
            (16, Posting::List, Signaling::All),
            (64, Posting::List, Signaling::Every(16)),
        ] {
            check_pair(&CellSpec::blast(Request {
                buffers,
                post,
                signal,
                ..request(op)
            }));
        }
    }
}

fn closed_loop(load: &Load, shape: Outbound) -> Vec<Tally> {
    let pattern = Pattern::outbound(Transport::Rc, load, shape);
    let mut cluster = cluster(pattern.machines() as usize);
    let schedule = Schedule {
        warm_up: Span::from_us(200),
        measured: Span::from_ms(2),
    };
    let members = (0..).map(RoleId).zip(&pattern.members);
    let tallies: Vec<_> = members
        .map(|(role, member)| {
            let (machine, pattern) = (cluster.machine(member.machine), pattern.clone());
            cluster.spawn(machine, &role.to_string(), move |station| {
                run(station, &pattern, role, schedule)
            })
        })
        .collect();
    assert!(cluster.run(&adverb_sim::Budget::NONE).is_finished());
    let tallies = tallies.iter().map(|tally| tally.take().unwrap().unwrap());
    tallies.take(shape.cores as usize).collect()
}

#[test]
fn closed_loops_keep_their_requests_in_flight() {
    for (request, qps, per_qp, refill) in [
        (Opcode::Read, 1, 1, Refill::Continuous),
        (Opcode::Write, 1, 8, Refill::Continuous),
        (Opcode::Read, 2, 8, Refill::Continuous),
        (Opcode::FetchAdd, 1, 2, Refill::Continuous),
        (Opcode::FetchAdd, 8, 4, Refill::Continuous),
        (Opcode::Write, 1, 8, Refill::List),
    ] {
        let load = Load {
            refill,
            limits: Limits::of_each_qp(per_qp, 16),
            timing: Timing::Each,
            ..Load::new(request, 8)
        };
        let shape = Outbound {
            cores: 2,
            qps,
            peers: 1,
            memory: 1 << 16,
        };
        for tally in closed_loop(&load, shape) {
            let what = format!("{request:?}, {qps} queue pairs with {per_qp}, {refill:?}");
            let mean = tally.mean_wait().unwrap().as_ns_f64();
            let rate = tally.per_second().unwrap();
            assert_law(&what, f64::from(qps * per_qp), rate, mean);
        }
    }
}

/// Returns the results of a member that looks at the clock at these times, with these completions.
fn metered(looks: Vec<(Span, u64)>) -> Tally {
    let mut cluster = cluster(1);
    let machine = cluster.machine(0);
    let tally = cluster.spawn(machine, "member", move |station| {
        let schedule = Schedule {
            warm_up: Span::from_ms(1),
            measured: Span::from_ms(4),
        };
        let began = station.now();
        let mut meter = Meter::new(began, schedule);
        for (at, completed) in looks {
            station.sleep(began + at - station.now());
            meter.look(station, station.now(), completed);
        }
        meter.tally()
    });
    assert!(cluster.run(&adverb_sim::Budget::NONE).is_finished());
    tally.take().unwrap()
}

/// 32 clients on two busy cores were said to finish 411 M requests a second, because the rate of each was its rate while
/// it ran.
#[test]
fn time_in_which_a_thread_does_not_run_counts() {
    let us = Span::from_us;
    for (looks, per_ms) in [
        // At a steady rate.
        (
            &[
                (us(500), 50),
                (us(2500), 250),
                (us(4500), 450),
                (us(6500), 650),
            ][..],
            100.0,
        ),
        // Not at the end: what is finished after the measured time does not count.
        (
            &[
                (us(1000), 0),
                (us(2000), 400),
                (us(9000), 400),
                (us(9100), 900),
            ],
            100.0,
        ),
        // Not at the beginning.
        (&[(us(900), 0), (us(4000), 0), (us(5000), 400)], 100.0),
        // Not at all, but for some time before and after.
        (&[(us(500), 50), (us(8500), 850)], 100.0),
        // No more work before the end.
        (&[(us(1000), 0), (us(3000), 300)], 150.0),
    ] {
        let tally = metered(looks.to_vec());
        let rate = tally.per_second().unwrap() / 1e3;
        assert!((rate - per_ms).abs() < 0.01, "{rate}/ms of {looks:?}");
    }
    assert_eq!(
        metered(vec![(us(2000), 0), (us(5000), 0)]).per_second(),
        None
    );
}

#[test]
fn repetitions_of_long_messages_have_enough_of_them() {
    let long = |length| {
        measure(&CellSpec::blast(Request {
            buffers: 4,
            length,
            repetitions: 2,
            ..Request::new(Opcode::Read, Bytes::mib(4))
        }))
    };
    let metrics = long(Length::Duration(Span::from_us(10)));
    assert!(metrics.repetitions.iter().all(|r| r.iters >= 16));
    assert!(!metrics.few_messages);
    assert!(long(Length::Iters(15)).few_messages);
}
