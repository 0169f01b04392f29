//! The patterns on the model.

use adverb_hwmodel::{Cluster, Placement, Preset};
use adverb_patterns::{
    Aim, Dc, Inbound, Landing, Limits, Load, Opcode, Outbound, Part, Pattern, Piece, Places,
    Posting, Refill, Schedule, Seen, Symmetric, Tally, Timing, Transport, Wait, run,
};
use adverb_sim::Budget;
use adverb_units::Span;
use adverb_verbs::{Counters, RoleId};

const SCHEDULE: Schedule = Schedule {
    warm_up: Span::from_us(50),
    measured: Span::from_us(500),
};

/// What each member did, and what the first machine counted.
fn on_model(preset: &str, pattern: &Pattern) -> (Vec<Tally>, Counters) {
    on_model_for(preset, pattern, SCHEDULE)
}

fn on_model_for(preset: &str, pattern: &Pattern, schedule: Schedule) -> (Vec<Tally>, Counters) {
    let preset = Preset::built_in(preset).unwrap();
    let placements = vec![Placement::Cached; pattern.machines() as usize];
    let mut cluster = Cluster::new(&preset, &placements);
    let members: Vec<_> = (0..pattern.members.len() as u32)
        .map(|role| {
            let machine = cluster.machine(pattern.members[role as usize].machine);
            let pattern = pattern.clone();
            cluster.spawn(machine, &format!("member {role}"), move |station| {
                run(station, &pattern, RoleId(role), schedule)
            })
        })
        .collect();
    let outcome = cluster.run(&Budget::NONE);
    assert!(outcome.is_finished(), "{outcome}");
    let tallies = members.iter().map(|member| member.take().unwrap().unwrap());
    (tallies.collect(), cluster.counters(cluster.machine(0)))
}

fn rate(tallies: &[Tally]) -> f64 {
    tallies.iter().filter_map(Tally::per_second).sum()
}

fn load(op: Opcode, size: u32) -> Load {
    Load {
        limits: Limits {
            per_qp: 32,
            per_member: 64,
            rd_atomic: 16,
        },
        ..Load::new(op, size)
    }
}

const OUTBOUND: Outbound = Outbound {
    cores: 2,
    qps: 2,
    peers: 2,
    memory: 1 << 16,
};

#[test]
fn every_request_runs_over_every_transport_that_has_it() {
    let cases = [
        (Transport::Rc, Opcode::Write),
        (Transport::Rc, Opcode::Read),
        (Transport::Rc, Opcode::FetchAdd),
        (Transport::Rc, Opcode::Cas),
        (Transport::Rc, Opcode::Send),
        (Transport::Rc, Opcode::WriteImm),
        (Transport::Uc, Opcode::Write),
        (Transport::Uc, Opcode::Send),
    ];
    for (transport, request) in cases {
        for refill in [Refill::Continuous, Refill::Window, Refill::List] {
            let load = Load {
                refill,
                signaled_every: 4,
                ..load(request, 64)
            };
            let pattern = Pattern::outbound(transport, &load, OUTBOUND);
            let (tallies, counters) = on_model("connect_ib", &pattern);
            let rate = rate(&tallies);
            assert!(rate > 1e6, "{transport} {request:?} {refill:?}: {rate}");
            // A taker that falls behind sends its senders away now and then.
            let again = counters["retransmissions"] as f64 / counters["sent_messages"] as f64;
            let most = if request.consumes_receive() {
                0.01
            } else {
                0.0
            };
            assert!(again <= most, "{transport} {request:?}: {again}");
        }
    }
}

#[test]
fn long_reads_in_flight_fill_the_link() {
    const SIZE: u32 = 1 << 20;
    let schedule = Schedule {
        warm_up: Span::from_ms(3),
        measured: Span::from_ms(10),
    };
    let shape = Outbound {
        cores: 1,
        qps: 1,
        peers: 1,
        memory: SIZE.into(),
    };
    for (preset, link) in [("cx3", 54.55), ("mt26428_qdr", 32.0), ("connect_ib", 54.55)] {
        for in_flight in [2, 8, 16] {
            let load = Load {
                limits: Limits {
                    per_qp: in_flight,
                    per_member: in_flight,
                    rd_atomic: 16,
                },
                ..Load::new(Opcode::Read, SIZE)
            };
            let pattern = Pattern::outbound(Transport::Rc, &load, shape);
            let (tallies, _) = on_model_for(preset, &pattern, schedule);
            let gbps = rate(&tallies) * f64::from(SIZE) * 8.0 / 1e9;
            // PCIe 2.0 x8 carries less than QDR.
            assert!(
                (0.75 * link..link).contains(&gbps),
                "{preset}: {gbps} Gb/s of {link} with {in_flight} in flight"
            );
        }
    }
}

#[test]
fn unreliable_writes_bring_no_more_than_the_link_carries() {
    const LINK: f64 = 54.55;
    for size in [256, 1024, 4096] {
        let pattern = Pattern::inbound(Transport::Uc, &load(Opcode::Write, size), &WRITERS);
        let (tallies, _) = on_model("cx3", &pattern);
        let gbps = rate(&tallies) * f64::from(size) * 8.0 / 1e9;
        assert!(
            (0.75 * LINK..LINK).contains(&gbps),
            "{gbps} Gb/s of {LINK} in messages of {size} B"
        );
    }
}

#[test]
fn short_writes_of_many_do_not_meet_in_one_line() {
    // Without DDIO, parts of one line pass memory one after another.
    let pattern = Pattern::inbound(Transport::Uc, &load(Opcode::Write, 8), &WRITERS);
    let (tallies, _) = on_model("cx", &pattern);
    let rate = rate(&tallies);
    assert!(rate > 10e6, "{rate} of 15 M/s");
}

const WRITERS: Inbound = Inbound {
    threads: 16,
    peers: 4,
    qps: 16,
    window: None,
    receivers: 0,
    depth: 0,
    memory: 1 << 20,
};

#[test]
fn messages_come_to_receivers() {
    for (transport, (request, size), receivers) in [
        (Transport::Ud, (Opcode::Send, 32), 2),
        (Transport::Ud, (Opcode::SendImm, 0), 4),
    ] {
        let shape = Inbound {
            threads: 4,
            peers: 2,
            qps: 4,
            window: None,
            receivers,
            depth: 512,
            memory: 1 << 20,
        };
        let pattern = Pattern::inbound(transport, &load(request, size), &shape);
        let (tallies, _) = on_model("cx3", &pattern);
        for (member, tally) in pattern.members.iter().zip(&tallies) {
            let what = format!("{request:?} {:?}: {tally:?}", member.part);
            assert!(tally.completed > 100, "{what}");
        }
        let (received, sent) = tallies.split_at(receivers as usize);
        let share = rate(received) / rate(sent);
        assert!(
            (0.95..1.05).contains(&share),
            "{request:?}: {share} of what was sent came"
        );
        assert!(matches!(pattern.members[0].part, Part::Receive { .. }));
    }
}

#[test]
fn equal_machines_do_equally_well() {
    let load = Load {
        random_link: true,
        places: Places::Random {
            align: 64,
            within: 1 << 15,
        },
        // READs beyond rd_atomic would evict their queue from the NIC, and chance would decide which one.
        limits: Limits {
            per_qp: 16,
            per_member: 64,
            rd_atomic: 16,
        },
        ..load(Opcode::Read, 32)
    };
    let shape = Symmetric {
        machines: 4,
        cores: 2,
        qps: 6,
        memory: 1 << 16,
    };
    let pattern = Pattern::symmetric(Transport::Rc, &load, shape);
    assert!(pattern.members.iter().all(|member| member.links.len() == 6));
    let (tallies, _) = on_model("cx3", &pattern);
    let mean = rate(&tallies) / tallies.len() as f64;
    for tally in &tallies {
        let share = tally.per_second().unwrap() / mean;
        assert!((0.9..1.1).contains(&share), "{share} of the mean");
    }
}

#[test]
fn a_list_rings_once_and_single_posts_are_written_to_the_nic() {
    let single = load(Opcode::Write, 32);
    let list = Load {
        posting: Posting::List(16),
        ..single.clone()
    };
    let lines = |load: &Load| {
        let (tallies, counters) =
            on_model("cx3", &Pattern::outbound(Transport::Rc, load, OUTBOUND));
        let all: u64 = tallies.iter().map(|tally| tally.completed).sum();
        counters["mmio_write_lines"] as f64 / all as f64
    };
    assert!(lines(&single) > 0.9);
    assert!(lines(&list) < 0.2);
}

#[test]
fn waiting_is_timed_where_it_is_asked_for() {
    let load = Load {
        timing: Timing::Each,
        ..Load::new(Opcode::Read, 64)
    };
    let one = Outbound {
        cores: 1,
        qps: 1,
        ..OUTBOUND
    };
    let (tallies, _) = on_model("cx3", &Pattern::outbound(Transport::Rc, &load, one));
    let wait = tallies[0].mean_wait().unwrap();
    assert!(wait > Span::from_us(1) && wait < Span::from_us(3), "{wait}");
    // Alone, as many complete as fit one after another.
    let product = tallies[0].per_second().unwrap() * wait.as_secs_f64();
    assert!((0.9..=1.0).contains(&product), "{product}");
}

#[test]
fn events_use_less_cpu_and_take_longer_than_polling() {
    let load = Load {
        timing: Timing::Each,
        ..Load::new(Opcode::Read, 64)
    };
    let one = Outbound {
        cores: 1,
        qps: 1,
        ..OUTBOUND
    };
    let with = |wait| {
        let pattern = Pattern {
            wait,
            ..Pattern::outbound(Transport::Rc, &load, one)
        };
        let (tallies, _) = on_model("cx3", &pattern);
        (tallies[0].cpu_share(), tallies[0].mean_wait().unwrap())
    };
    let (polling, sleeping) = (with(Wait::Poll), with(Wait::Event));
    assert!((0.99..=1.0).contains(&polling.0), "{polling:?}");
    assert!((0.2..0.8).contains(&sleeping.0), "{sleeping:?}");
    let later = sleeping.1.saturating_sub(polling.1);
    assert!((2_000.0..4_000.0).contains(&later.as_ns_f64()), "{later}");
}

#[test]
fn messages_are_taken_by_events_too() {
    let shape = Inbound {
        threads: 2,
        peers: 1,
        qps: 2,
        window: None,
        receivers: 1,
        depth: 512,
        memory: 1 << 20,
    };
    let pattern = Pattern {
        wait: Wait::Event,
        ..Pattern::inbound(Transport::Ud, &load(Opcode::Send, 32), &shape)
    };
    let (tallies, _) = on_model("cx3", &pattern);
    let (received, sent) = tallies.split_at(1);
    let share = rate(received) / rate(sent);
    assert!((0.9..1.1).contains(&share), "{share} of what was sent came");
}

#[test]
fn inline_receives_save_the_write_of_the_payload() {
    let shape = Inbound {
        threads: 8,
        peers: 4,
        qps: 8,
        window: None,
        receivers: 4,
        depth: 512,
        memory: 1 << 20,
    };
    let received = |landing, size| {
        let pattern = Pattern {
            landing,
            ..Pattern::inbound(Transport::Ud, &load(Opcode::Send, size), &shape)
        };
        let (tallies, counters) = on_model("cx3", &pattern);
        let received = &tallies[..4];
        let completed: u64 = received.iter().map(|tally| tally.completed).sum();
        let lines = counters["pcie_write_lines"] as f64 / completed as f64;
        (rate(received), lines)
    };
    let (to_buffer, two_lines) = received(Landing::Buffer, 32);
    let (to_completion, one_line) = received(Landing::Completion, 32);
    assert!(to_completion >= to_buffer, "{to_completion}, {to_buffer}");
    let ratio = two_lines / one_line;
    assert!((1.9..2.1).contains(&ratio), "{two_lines}, {one_line}");
}

#[test]
fn the_threads_of_a_machine_share_its_window() {
    let shape = Inbound {
        threads: 6,
        peers: 2,
        qps: 6,
        window: Some(7),
        receivers: 0,
        depth: 1,
        memory: 1 << 16,
    };
    let windows = |shape: &Inbound| -> Vec<u32> {
        let pattern = Pattern::inbound(Transport::Rc, &load(Opcode::Read, 32), shape);
        let parts = pattern.members[1..].iter().map(|member| &member.part);
        parts
            .map(|part| match part {
                Part::Request(load) => load.limits.per_member,
                _ => 0,
            })
            .collect()
    };
    assert_eq!(windows(&shape), [3, 3, 2, 2, 2, 2]);
    let fewer = Inbound {
        window: Some(2),
        ..shape
    };
    assert_eq!(windows(&fewer), [1, 1, 1, 1, 0, 0]);
    let pattern = Pattern::inbound(Transport::Rc, &load(Opcode::Read, 32), &fewer);
    let (tallies, _) = on_model("cx3", &pattern);
    let busy = tallies[1..].iter().filter(|tally| tally.completed > 0);
    assert_eq!(busy.count(), 4);
}

#[test]
fn dc_initiators_that_change_targets_are_slower() {
    let rate_of = |aim| {
        let load = Load {
            dc: Dc { initiators: 1, aim },
            places: Places::Random {
                align: 64,
                within: 1 << 15,
            },
            ..load(Opcode::Read, 32)
        };
        let shape = Symmetric {
            machines: 4,
            cores: 2,
            qps: 1,
            memory: 1 << 16,
        };
        let pattern = Pattern::symmetric(Transport::Dci, &load, shape);
        assert!(pattern.members.iter().all(|member| member.links.len() == 3));
        let (tallies, counters) = on_model("connect_ib", &pattern);
        assert_eq!(counters["retransmissions"], 0);
        let slowest = tallies
            .iter()
            .filter_map(Tally::per_second)
            .fold(f64::MAX, f64::min);
        assert!(
            slowest * 8.0 > 0.8 * rate(&tallies),
            "{aim:?}: {slowest} a member"
        );
        rate(&tallies)
    };
    let [fixed, random, other] = [Aim::Fixed(0), Aim::Random, Aim::Other].map(rate_of);
    assert!(fixed > 2.0 * random, "{fixed} and {random}");
    assert!(random > 1.1 * other, "{random} and {other}");
}

/// Twelve threads of one machine and one other.
const TENANT: Outbound = Outbound {
    cores: 12,
    qps: 1,
    peers: 1,
    memory: 1 << 22,
};

/// Rate of a victim's members, and what the first machine and its peer counted.
fn with_tenant(tenant: Option<Pattern>) -> (f64, Counters) {
    let load = Load {
        places: Places::Random {
            align: 64,
            within: (1 << 22) - 64,
        },
        ..load(Opcode::Read, 8)
    };
    let victim = Pattern::outbound(Transport::Rc, &load, TENANT);
    let members = victim.members.len() - 1;
    let all = match tenant {
        Some(tenant) => victim.with_tenant(tenant),
        None => victim,
    };
    let (tallies, counters) = on_model("cx5", &all);
    (rate(&tallies[..members]), counters)
}

#[test]
fn a_second_tenant_is_in_the_way_of_the_first() {
    let (alone, counters) = with_tenant(None);
    assert_eq!(counters["retransmissions"], 0);
    let before = counters["translation_cache_misses"];
    let (swapping, _) = with_tenant(Some(Pattern::outbound(
        Transport::Rc,
        &load(Opcode::Cas, 8),
        TENANT,
    )));
    // A tenant over a transport of its own: swaps are RC's, whatever the victim's is.
    let datagrams = Pattern::outbound(Transport::Ud, &load(Opcode::Send, 8), TENANT);
    let swaps = Pattern::outbound(Transport::Rc, &load(Opcode::Cas, 8), TENANT);
    let victims = datagrams.members.len();
    let (tallies, _) = on_model("cx5", &datagrams.with_tenant(swaps));
    assert!(rate(&tallies[..victims]) > 0.0 && rate(&tallies[victims..]) > 0.0);
    let (churning, counters) = with_tenant(Some(Pattern::churn(2, 1 << 20)));
    let misses = counters["translation_cache_misses"];
    assert!(misses > before, "{misses} misses after {before}");
    let (stranding, counters) =
        with_tenant(Some(Pattern::stranded(&load(Opcode::Send, 8), TENANT)));
    assert!(counters["retransmissions"] > 100);
    for (tenant, rate) in [("cas", swapping), ("churn", churning), ("rnr", stranding)] {
        assert!(
            rate < alone && rate > 0.1 * alone,
            "{tenant}: {rate} of {alone}"
        );
    }
}

/// Several queue pairs, whose signaled requests are rarer than a member's window is long.
fn rarely_signaled() -> Load {
    Load {
        random_link: true,
        signaled_every: 16,
        limits: Limits {
            per_qp: 31,
            per_member: 16,
            rd_atomic: 16,
        },
        places: Places::Random {
            align: 64,
            within: 1 << 15,
        },
        ..Load::new(Opcode::Read, 32)
    }
}

#[test]
fn a_window_full_of_unsignaled_requests_goes_on() {
    let shape = Symmetric {
        machines: 6,
        cores: 2,
        qps: 5,
        memory: 1 << 16,
    };
    let rate_of = |seen: Seen| {
        let load = Load {
            seen,
            ..rarely_signaled()
        };
        let (tallies, counters) = on_model(
            "connect_ib",
            &Pattern::symmetric(Transport::Rc, &load, shape),
        );
        assert_eq!(counters["retransmissions"], 0);
        rate(&tallies) / 6.0
    };
    let by_completion = rate_of(Seen::Completion);
    let by_memory = rate_of(Seen::Memory);
    assert!(by_completion > 1e6, "{by_completion}");
    assert!(
        by_memory > 1.2 * by_completion,
        "{by_memory}: a completion covers up to 16 requests, the memory shows each"
    );
}

/// PCIe reads of the requester for each of its WRITEs, and their rate.
fn writes(preset: &str, per_qp: u32) -> (f64, f64) {
    let load = Load {
        limits: Limits::of_each_qp(per_qp, 1),
        ..Load::new(Opcode::Write, 8)
    };
    let shape = Outbound {
        cores: 8,
        qps: 1,
        peers: 1,
        ..OUTBOUND
    };
    let (tallies, counters) = on_model(preset, &Pattern::outbound(Transport::Rc, &load, shape));
    let reads = counters["pcie_read_lines"] as f64 / counters["sent_messages"] as f64;
    (reads, rate(&tallies))
}

#[test]
fn a_nic_reads_evicted_requests_of_a_deep_queue_again() {
    let (reads, fast) = writes("cx3", 8);
    assert!((0.99..1.1).contains(&reads), "{reads}: only the payload");
    let (reads, slow) = writes("cx3", 512);
    // 1 KiB of the send queue, and the payload.
    assert!((16.0..17.1).contains(&reads), "{reads}: WQEs and payload");
    assert!(slow < fast / 2.0, "{slow} of {fast}");
    // An mlx5 NIC uses all of the piece that it reads.
    let (reads, deep) = writes("connect_ib", 1024);
    assert!((1.5..2.1).contains(&reads), "{reads}: each line once");
    let (_, fast) = writes("connect_ib", 8);
    assert!(deep > 0.5 * fast, "{deep} of {fast}");
}

#[test]
fn a_list_is_no_longer_than_what_may_be_under_way() {
    let with = |posting| {
        let load = Load {
            posting,
            ..Load::new(Opcode::Read, 8)
        };
        let pattern = Pattern::outbound(Transport::Rc, &load, OUTBOUND);
        rate(&on_model("cx3", &pattern).0)
    };
    let (list, single) = (with(Posting::List(16)), with(Posting::Single));
    assert!(single > 0.0);
    assert_eq!(list, single, "single posts, whatever list is requested");
}

#[test]
fn an_atomic_behind_a_lock_holds_up_those_behind_it() {
    let words = |words: u64| {
        let load = Load {
            places: Places::Random {
                align: 8,
                within: words * 8,
            },
            signaled_every: 16,
            ..load(Opcode::FetchAdd, 8)
        };
        let shape = Inbound {
            threads: 16,
            peers: 4,
            qps: 32,
            window: None,
            receivers: 0,
            depth: 0,
            memory: 1 << 16,
        };
        let pattern = Pattern::inbound(Transport::Rc, &load, &shape);
        rate(&on_model("connect_ib", &pattern).0)
    };
    let (one, some, many) = (words(1), words(16), words(4096));
    // With random locks over 16 words, about ten would be busy at any time.
    assert!((4.0..8.0).contains(&(some / one)), "{some} / {one}");
    assert!(many > 2.0 * some, "{many} / {some}");
}

#[test]
fn lists_that_a_small_window_has_no_room_for_go_on() {
    let windows = [
        (Refill::Continuous, 5),
        (Refill::Continuous, 20),
        (Refill::Window, 100),
    ];
    for (refill, per_member) in windows {
        let load = Load {
            posting: Posting::List(16),
            signaled_every: 32,
            refill,
            limits: Limits {
                per_qp: 64,
                per_member,
                rd_atomic: 16,
            },
            ..Load::new(Opcode::Write, 8)
        };
        let (tallies, _) = on_model("cx3", &Pattern::outbound(Transport::Rc, &load, OUTBOUND));
        assert!(rate(&tallies) > 1e6, "{refill:?} {per_member}: {tallies:?}");
    }
}

#[test]
fn lists_fill_every_queue_pair() {
    let rate_of = |qps| {
        let load = Load {
            refill: Refill::List,
            limits: Limits::of_each_qp(2, 2),
            ..Load::new(Opcode::Read, 8)
        };
        let shape = Outbound { qps, ..OUTBOUND };
        let (tallies, _) = on_model("cx3", &Pattern::outbound(Transport::Rc, &load, shape));
        rate(&tallies)
    };
    let (one, four) = (rate_of(1), rate_of(4));
    assert!(
        four > 2.0 * one,
        "{four} with four queue pairs, {one} with one"
    );
}

/// Members that saw one completion for 64 requests counted a tenth too few, and 256 contexts of UC responders
/// did not fit where HERD's do.
#[test]
fn a_device_counts_what_completions_show_in_bunches() {
    let load = Load {
        inline: true,
        signaled_every: 64,
        limits: Limits::of_each_qp(127, 16),
        ..Load::new(Opcode::Write, 32)
    };
    let schedule = Schedule {
        warm_up: Span::from_us(300),
        measured: Span::from_us(600),
    };
    for peers in [4, 12, 16] {
        let shape = Inbound {
            threads: peers,
            peers,
            qps: peers * peers,
            window: None,
            receivers: 0,
            depth: 1,
            memory: 1 << 20,
        };
        let mut pattern = Pattern::inbound(Transport::Uc, &load, &shape);
        let counter = pattern.add(0, Part::Count, 64);
        let (tallies, _) = on_model_for("cx3", &pattern, schedule);
        let counted = &tallies[counter.0 as usize];
        let rate = counted.counted["received_messages"] as f64 / counted.elapsed.as_secs_f64();
        // nic.write_mops of ConnectX-3.
        assert!((34.6e6..35.4e6).contains(&rate), "{peers}: {rate}");
    }
}

/// It ended with a timeout after 60 s, and took its memory with it.
#[test]
fn a_member_that_only_waits_does_so_as_long_as_others_measure() {
    let mut pattern = Pattern::new(Transport::Rc);
    pattern.add(0, Part::Serve, 4096);
    let piece = Piece {
        busy: Span::from_secs(1),
        lines: 0,
    };
    let computer = pattern.add(1, Part::Compute(piece), 4096);
    let schedule = Schedule {
        warm_up: Span::from_secs(10),
        measured: Span::from_secs(70),
    };
    let (tallies, _) = on_model_for("cx3", &pattern, schedule);
    assert_eq!(tallies[computer.0 as usize].completed, 70);
}
