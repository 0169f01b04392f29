//! The programs of the study of RDMA in a WAN: on the user-space device, on the kernel's TCP, and on the model.

use adverb_host::TcpDevice;
use adverb_patterns::rendezvous::{Channel, Protocol};
use adverb_patterns::{By, Job, JobReport, Task, Wan, WanTally, run_wan};
use adverb_units::{Bytes, Span};
use adverb_verbs::{Counters, PathOptions, RoleId};
use adverb_workload::attend::Members;
use adverb_workload::error::Fault;
use serde_json::Value;

use crate::common::{on_model, on_threads};

const AMMASSO: &str = "ammasso_gige";

fn wan(task: Task, size: u64, iters: u32) -> Wan {
    Wan {
        task,
        size: Bytes::new(size),
        iters,
        path: PathOptions::default(),
    }
}

fn overlap(by: By, compute: Span) -> Wan {
    wan(Task::Overlap { by, compute }, 1024, 5)
}

fn fetch(by: By, response_delay: Span) -> Wan {
    wan(Task::Fetch { by, response_delay }, 1024, 5)
}

fn interference(by: By, clients: u32, size: u64) -> Wan {
    let task = Task::Interference {
        by,
        compute: Span::from_ms(5),
        clients,
        machines: clients,
    };
    wan(task, size, 2)
}

fn rendezvous(protocol: Protocol, size: u64, iters: u32) -> Wan {
    wan(Task::Rendezvous { protocol }, size, iters)
}

const PROTOCOLS: [Protocol; 4] = [
    Protocol::Write,
    Protocol::Read,
    Protocol::Prearranged,
    Protocol::Eager,
];

/// Returns the metrics of a program.
fn outcome(program: &Wan, tallies: Vec<WanTally>) -> Value {
    let reports: Vec<_> = tallies.into_iter().map(JobReport::Wan).collect();
    let outcome = Job::Wan(program.clone()).outcome(&reports).unwrap();
    outcome.metrics.into()
}

fn number(metrics: &Value, path: &str) -> f64 {
    let found = path.split('.').fold(metrics, |at, name| &at[name]);
    found
        .as_f64()
        .unwrap_or_else(|| panic!("{path} in {metrics}"))
}

fn on_soft(program: &Wan) -> Value {
    let count = program.roles().len() as u32;
    let tallies = on_threads(count, |station, role| run_wan(station, program, role));
    let tallies = tallies.into_iter().map(Result::unwrap);
    outcome(program, tallies.collect())
}

fn over_tcp(program: &Wan) -> Value {
    let count = program.roles().len() as u32;
    let run = adverb_host::threads(&TcpDevice, count, |station, role| {
        run_wan(station, program, role)
    });
    let tallies = run.unwrap().into_iter().map(Result::unwrap);
    outcome(program, tallies.collect())
}

/// Returns the metrics, and the counters of the first machine.
fn counted_on_ammasso(program: &Wan) -> (Value, Counters) {
    let machines: Vec<u32> = program.roles().iter().map(|role| role.host).collect();
    let own = program.clone();
    let (tallies, counters) = on_model(AMMASSO, &machines, move |station, role| {
        run_wan(station, &own, role).unwrap()
    });
    (outcome(program, tallies), counters)
}

fn on_ammasso(program: &Wan) -> Value {
    counted_on_ammasso(program).0
}

#[test]
fn every_program_checks_its_messages_on_the_user_space_device() {
    let busy = Span::from_us(50);
    for by in [By::Write, By::Read, By::Send] {
        let metrics = on_soft(&overlap(by, busy));
        assert_eq!(number(&metrics, "checked.messages"), 13.0, "{metrics}");
        let ratio = number(&metrics, "overlap_ratio");
        assert!(ratio > 0.0, "{by:?}: {ratio}");
    }
    for by in [By::Read, By::Send] {
        let metrics = on_soft(&fetch(by, busy));
        assert_eq!(number(&metrics, "requests"), 5.0, "{metrics}");
    }
    for by in [By::Write, By::Send] {
        let metrics = on_soft(&interference(by, 2, 4096));
        assert!(number(&metrics, "slowdown") > 0.0, "{metrics}");
        assert!(number(&metrics, "messages") >= 2.0, "{metrics}");
    }
}

#[test]
fn every_program_runs_over_sockets() {
    let busy = Span::from_us(50);
    let metrics = over_tcp(&overlap(By::Tcp, busy));
    assert_eq!(number(&metrics, "checked.messages"), 13.0, "{metrics}");
    let metrics = over_tcp(&fetch(By::Tcp, Span::from_ms(2)));
    assert!(number(&metrics, "latency_ns.p50") >= 2e6, "{metrics}");
    let metrics = over_tcp(&interference(By::Tcp, 3, 1000));
    assert!(number(&metrics, "messages") >= 3.0, "{metrics}");
    let metrics = over_tcp(&rendezvous(Protocol::Sockets, 100_000, 20));
    assert_eq!(number(&metrics, "checked.bytes"), 46.0 * 1e5, "{metrics}");
}

/// The last byte of a record has 255 values, and eager messages have 16 slots: both are used several times over.
#[test]
fn every_byte_arrives_by_each_protocol() {
    for protocol in PROTOCOLS {
        for (size, iters) in [(1, 600), (4088, 40), (4089, 40), (100_000, 40)] {
            let metrics = on_soft(&rendezvous(protocol, size, iters));
            let bytes = 2.0 * f64::from(3 + iters) * size as f64;
            assert_eq!(number(&metrics, "checked.bytes"), bytes, "{protocol:?}");
        }
    }
}

#[test]
fn the_device_counts_the_messages_of_each_protocol() {
    for (protocol, per_transfer) in PROTOCOLS.into_iter().zip([4.0, 3.0, 3.0, 1.125]) {
        // As many messages as slots, so that credits are even.
        let program = rendezvous(protocol, 1000, 13);
        let (metrics, counters) = counted_on_ammasso(&program);
        assert_eq!(number(&metrics, "requests_per_transfer"), per_transfer);
        // Of 32 transfers, half of the requests are posted by each peer.
        let own = counters["completed_requests"] as f64;
        assert_eq!(own, per_transfer * 16.0, "{protocol:?}: {counters:?}");
    }
}

#[test]
fn a_peer_that_ends_fails_the_transfer() {
    for protocol in PROTOCOLS {
        let ends = on_threads(2, |station, me| {
            let peer = RoleId(1 - me.0);
            let members = Members::new(station, (me, 2), [peer]);
            let what = (protocol, 64);
            let path = PathOptions::default();
            let mut channel = Channel::connect(&members, (me, peer), what, path)?;
            members.meet()?;
            match me {
                RoleId(0) => channel.receive().map(drop),
                // It ends without a message.
                _ => Ok::<_, Fault>(()),
            }
        });
        assert!(ends[0].is_err(), "{protocol:?}");
        assert!(ends[1].is_ok(), "{protocol:?}");
    }
}

#[test]
fn a_message_longer_than_the_channel_is_refused() {
    let refused = on_threads(2, |station, me| {
        let peer = RoleId(1 - me.0);
        let members = Members::new(station, (me, 2), [peer]);
        let what = (Protocol::Write, 64);
        let mut channel =
            Channel::connect(&members, (me, peer), what, PathOptions::default()).unwrap();
        members.meet().unwrap();
        let refused = channel.store(&[0; 65]).is_err() && channel.send(65).is_err();
        members.meet().unwrap();
        refused
    });
    assert_eq!(refused, [true, true]);
}

/// AMM-06: the latency of READs does not depend on the load of the target's CPU.
#[test]
fn reads_of_the_model_do_not_wait_for_a_busy_server() {
    let latency = |by, delay| number(&on_ammasso(&fetch(by, delay)), "latency_ns.mean");
    let delay = Span::from_ms(1);
    let (idle, busy) = (latency(By::Read, Span::ZERO), latency(By::Read, delay));
    assert!((busy / idle - 1.0).abs() < 0.01, "{idle} {busy}");
    for by in [By::Send, By::Tcp] {
        let (idle, busy) = (latency(by, Span::ZERO), latency(by, delay));
        assert!(busy - idle > 0.99e6, "{by:?}: {idle} {busy}");
    }
}

/// AMM-05: WRITEs of 40 clients leave the server's computation alone. The kernel's TCP works on the same core.
#[test]
fn sockets_of_the_model_take_cpu_of_the_server() {
    let slowdown = |by| number(&on_ammasso(&interference(by, 40, 16_384)), "slowdown");
    let write = slowdown(By::Write);
    assert!((0.999..1.03).contains(&write), "{write}");
    let (send, tcp) = (slowdown(By::Send), slowdown(By::Tcp));
    assert!(send < 1.1 && tcp > 1.2, "SEND {send}, TCP {tcp}");
}

#[test]
fn less_of_a_computation_overlaps_with_sockets_of_the_model() {
    let alone = |by| {
        number(
            &on_ammasso(&overlap(by, Span::ZERO)),
            "communication_ns.mean",
        )
    };
    let ratio = |by, share: f64| {
        let compute = Span::from_ns((alone(by) * share) as u64);
        number(&on_ammasso(&overlap(by, compute)), "overlap_ratio")
    };
    // The kernel handles what arrives after the computation as if there had been none; what arrives within it,
    // interrupts it.
    for share in [1.0, 2.0] {
        let (write, tcp) = (ratio(By::Write, share), ratio(By::Tcp, share));
        assert!(write > tcp, "{share}: WRITE {write}, TCP {tcp}");
        assert!(write <= 1.0, "{share}: {write}");
    }
    // A computation much longer than the communication hides it.
    assert!(ratio(By::Write, 20.0) > 0.99);
}

/// Copies cost more than an exchange of addresses only from some size on.
#[test]
fn a_rendezvous_of_the_model_pays_for_long_messages_only() {
    let time = |protocol, size| {
        let metrics = on_ammasso(&rendezvous(protocol, size, 13));
        number(&metrics, "one_way_ns.mean")
    };
    assert!(time(Protocol::Eager, 64) < time(Protocol::Write, 64));
    for size in [64, 65_536] {
        let prearranged = time(Protocol::Prearranged, size);
        assert!(prearranged < time(Protocol::Write, size), "{size}");
        assert!(prearranged < time(Protocol::Read, size), "{size}");
    }
    assert!(time(Protocol::Eager, 64) < time(Protocol::Sockets, 64));
}

/// On a model whose NIC is slow, the completion of a READ into memory that the program also polls was visible before
/// the data.
#[test]
fn a_completed_read_has_brought_its_data() {
    for size in [1024, 4096, 65_536] {
        let metrics = on_ammasso(&rendezvous(Protocol::Read, size, 3));
        let bytes = 12.0 * size as f64;
        assert_eq!(number(&metrics, "checked.bytes"), bytes);
    }
}
