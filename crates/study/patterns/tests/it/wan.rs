//! The programs of the study of RDMA in a WAN: on the user-space device, on the kernel's TCP, and on the model.

use adverb_host::TcpDevice;
use adverb_hwmodel::Preset;
use adverb_patterns::rendezvous::{Channel, Protocol};
use adverb_patterns::{By, Job, JobReport, Task, Wait, Wan, WanTally, run_wan};
use adverb_units::{Bytes, Span};
use adverb_verbs::{Counters, PathOptions, RoleId};
use adverb_workload::attend::Members;
use adverb_workload::error::Fault;
use serde_json::Value;

use crate::common::{on_model_as, on_threads};

const AMMASSO: &str = "ammasso_gige";

fn wan(task: Task, size: u64, iters: u32) -> Wan {
    Wan {
        task,
        size: Bytes::new(size),
        iters,
        completion: Wait::Poll,
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
        reads: Bytes::new(0),
    };
    wan(task, size, 2)
}

/// The same with readers that sleep.
fn sleeping(program: &Wan) -> Wan {
    Wan {
        completion: Wait::Event,
        ..program.clone()
    }
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
fn counted_on(preset: &str, program: &Wan) -> (Value, Counters) {
    let roles = program.roles();
    let members: Vec<_> = roles.iter().map(|role| (role.host, role.load)).collect();
    let own = program.clone();
    let (tallies, counters) = on_model_as(preset, &members, move |station, role| {
        run_wan(station, &own, role).unwrap()
    });
    (outcome(program, tallies), counters)
}

fn on_ammasso(program: &Wan) -> Value {
    counted_on(AMMASSO, program).0
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
    for program in [
        interference(By::Write, 2, 4096),
        interference(By::Send, 2, 4096),
        sleeping(&interference(By::Send, 2, 4096)),
    ] {
        let metrics = on_soft(&program);
        assert!(number(&metrics, "slowdown") > 0.0, "{metrics}");
        assert!(number(&metrics, "messages") >= 2.0, "{metrics}");
    }
}

#[test]
fn readers_sleep_until_messages_arrive() {
    let busy = Span::from_us(50);
    for by in [By::Read, By::Send] {
        let metrics = on_soft(&sleeping(&overlap(by, busy)));
        assert_eq!(number(&metrics, "checked.messages"), 13.0, "{metrics}");
        let metrics = on_soft(&sleeping(&fetch(by, busy)));
        assert_eq!(number(&metrics, "requests"), 5.0, "{metrics}");
    }
    let metrics = over_tcp(&sleeping(&overlap(By::Tcp, busy)));
    assert_eq!(number(&metrics, "checked.messages"), 13.0, "{metrics}");
    let metrics = over_tcp(&sleeping(&interference(By::Tcp, 3, 1000)));
    assert!(number(&metrics, "messages") >= 3.0, "{metrics}");
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
        let (metrics, counters) = counted_on(AMMASSO, &program);
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

/// A reader on the core of the computation takes what a polling one does, and the wake-ups.
#[test]
fn sleeping_readers_of_the_model_take_more_cpu_of_the_server_than_polling_ones() {
    for by in [By::Send, By::Tcp] {
        let program = interference(by, 40, 16_384);
        let slowdown = |program| number(&on_ammasso(program), "slowdown");
        let (polling, asleep) = (slowdown(&program), slowdown(&sleeping(&program)));
        assert!(asleep > polling, "{by:?}: {polling} {asleep}");
        assert!(asleep < 5.0, "{by:?}: {asleep}");
    }
}

/// More than the core can do: the scheduler leaves the computation the share of one among the readers and the kernel.
#[test]
fn a_computation_of_the_model_ends_among_readers_that_fill_its_core() {
    for clients in [2, 8] {
        let program = sleeping(&interference(By::Tcp, clients, 1024));
        let slowdown = number(&counted_on("cx3", &program).0, "slowdown");
        let shares = f64::from(clients + 2);
        assert!(
            (0.95 * shares..1.05 * shares).contains(&slowdown),
            "{slowdown}"
        );
    }
}

#[test]
fn a_sleeping_reader_of_the_model_answers_later_by_a_wake_up() {
    let wake = Preset::built_in(AMMASSO).unwrap().params.cpu.wake_ns;
    for by in [By::Send, By::Tcp] {
        let program = fetch(by, Span::ZERO);
        let latency = |program| number(&on_ammasso(program), "latency_ns.mean");
        let later = latency(&sleeping(&program)) - latency(&program);
        // Both sides wake up, instead of polls and system calls that find the message.
        let share = later / (2.0 * wake.as_ns_f64());
        assert!((0.4..1.3).contains(&share), "{by:?}: {share}");
    }
}

/// Without DDIO, what the NIC writes and what the kernel copies pass over the memory bus that the computation needs.
#[test]
fn a_polling_server_of_the_model_takes_all_messages() {
    for preset in ["mt26428_qdr", "qdr_switch", "cx3", "connect_ib"] {
        let program = interference(By::Send, 2, 65_536);
        let (metrics, _) = counted_on(preset, &program);
        assert!(number(&metrics, "messages_per_s") > 0.0, "{preset}");
    }
}

#[test]
fn messages_to_the_model_take_memory_bandwidth_from_a_computation() {
    let loaded = |by, reads| {
        let mut program = interference(by, 40, 16_384);
        if let Task::Interference { reads: own, .. } = &mut program.task {
            *own = reads;
        }
        number(&on_ammasso(&program), "slowdown")
    };
    let none = loaded(By::Write, Bytes::new(0));
    let much = loaded(By::Write, Bytes::mib(4));
    // 1 Gb/s are 4 % of 3.2 GB/s.
    assert!(much > none + 0.002 && much < 1.05, "{none} {much}");
}

/// Clients wait for their start while the server computes alone: they gave up after 60 s.
#[test]
fn clients_wait_for_a_computation_of_more_than_a_minute() {
    let mut program = interference(By::Write, 1, 16 << 20);
    let compute = Span::from_secs(61);
    (program.task, program.iters) = (
        Task::Interference {
            by: By::Write,
            compute,
            clients: 1,
            machines: 1,
            reads: Bytes::new(0),
        },
        1,
    );
    let alone = number(&on_ammasso(&program), "computation_ns.mean");
    assert!(alone >= compute.as_ns_f64(), "{alone}");
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
