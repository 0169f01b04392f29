//! Patterns on the model, while the host's CPUs and its memory have other work.

use adverb_hwmodel::{Cluster, Placement, Preset};
use adverb_patterns::{
    Inbound, Limits, Load, Opcode, Outbound, Part, Pattern, Piece, Places, Schedule, Tally, Timing,
    Transport, run,
};
use adverb_sim::Budget;
use adverb_units::{Bytes, Span};
use adverb_verbs::{Access, CpuLoad, LoadWork, NodeChoice, Probability, RoleId};

const SCHEDULE: Schedule = Schedule {
    warm_up: Span::from_us(100),
    measured: Span::from_us(500),
};

/// Runs a pattern with a load on machine 1.
fn under(
    load: Option<CpuLoad>,
    preset: &Preset,
    server: Placement,
    pattern: &Pattern,
) -> Vec<Tally> {
    let mut cluster = Cluster::new(preset, &[Placement::Cached, server]);
    if let Some(load) = load {
        let machine = cluster.machine(1);
        cluster.load(machine, &load);
    }
    run_in(&mut cluster, pattern)
}

fn run_in(cluster: &mut Cluster, pattern: &Pattern) -> Vec<Tally> {
    let members: Vec<_> = (0..pattern.members.len() as u32)
        .map(|role| {
            let machine = cluster.machine(pattern.members[role as usize].machine);
            let pattern = pattern.clone();
            cluster.spawn(machine, &format!("member {role}"), move |station| {
                run(station, &pattern, RoleId(role), SCHEDULE)
            })
        })
        .collect();
    let outcome = cluster.run(&Budget::NONE);
    assert!(outcome.is_finished(), "{outcome}");
    let tallies = members.iter().map(|member| member.take().unwrap().unwrap());
    tallies.collect()
}

/// Returns the operations per second of eight queue pairs to slots of 8 B at a distance of `distance`, while threads
/// walk through the slots.
fn rate(op: Opcode, distance: u64, threads: u32, server: Placement, ddio_ways: f64) -> f64 {
    let walk = CpuLoad {
        threads,
        node: match server {
            Placement::Cached | Placement::Memory => NodeChoice::Nic,
            _ => NodeChoice::Other,
        },
        work: LoadWork::Buffer {
            bytes: Bytes::new(8 * distance),
            access: Access::Mixed {
                writes: Probability::per_million(900_000),
            },
            think: Span::ZERO,
        },
    };
    let changes = [("memory.ddio_ways", ddio_ways)];
    rate_under(walk, (op, distance), server, &changes)
}

/// As [`rate`], with any load of the server's machine, and other changes of the hardware.
fn rate_under(
    load: CpuLoad,
    (op, distance): (Opcode, u64),
    server: Placement,
    changes: &[(&'static str, f64)],
) -> f64 {
    let preset = Preset::built_in("cx3_fdr_nurdma").unwrap();
    let preset = preset.with(changes).unwrap();
    let requests = Load {
        limits: Limits::of_each_qp(256, 1),
        places: Places::Own(distance),
        ..Load::new(op, 8)
    };
    let shape = Outbound {
        cores: 8,
        qps: 1,
        peers: 1,
        memory: 4096,
    };
    let pattern = Pattern::outbound(Transport::Rc, &requests, shape);
    let tallies = under(Some(load), &preset, server, &pattern);
    tallies.iter().filter_map(Tally::per_second).sum()
}

#[test]
fn a_line_that_cores_fight_for_is_nearer_on_the_other_socket() {
    for request in [Opcode::Write, Opcode::Read] {
        let near = |threads| rate(request, 8, threads, Placement::Cached, 2.0);
        let far = |threads| rate(request, 8, threads, Placement::RemoteCached, 2.0);
        assert!(near(0) > far(0) * 0.99, "{request:?} without load");
        assert!(near(16) * 1.1 < far(16), "{request:?} under load");
        let rates = [near(0), near(4), near(16)];
        // Below saturation, the arrival times of requests have a small effect, too.
        assert!(
            rates[2] < rates[1] && rates[1] < rates[0] * 1.02,
            "{request:?}: {rates:?}"
        );
    }
}

#[test]
fn with_a_line_for_each_queue_pair_nobody_fights() {
    for request in [Opcode::Write, Opcode::Read] {
        let near = |threads| rate(request, 64, threads, Placement::Cached, 2.0);
        let ratio = near(8) / near(0);
        assert!(ratio > 0.93, "{request:?}: {ratio}");
    }
}

#[test]
fn without_ddio_writes_to_one_line_wait_for_memory() {
    let on = rate(Opcode::Write, 8, 0, Placement::Cached, 2.0);
    let off = rate(Opcode::Write, 8, 0, Placement::Cached, 0.0);
    assert!(off < on * 0.9, "{off} and {on}");
    let apart = rate(Opcode::Write, 64, 0, Placement::Cached, 0.0);
    assert!(apart > off * 1.3, "{apart} and {off}");
}

#[test]
fn without_ddio_writes_to_one_line_wait_for_memory_on_the_other_socket_too() {
    let on = rate(Opcode::Write, 8, 0, Placement::RemoteCached, 2.0);
    let off = rate(Opcode::Write, 8, 0, Placement::RemoteCached, 0.0);
    assert!(off < on * 0.9, "{off} and {on}");
}

/// Returns the rate under 48 threads with arrays of `array` on both nodes, relative to the rate without them.
fn share_under_arrays(
    request: (Opcode, u64),
    array: Bytes,
    changes: &[(&'static str, f64)],
) -> f64 {
    let rate = |threads| {
        let arrays = CpuLoad {
            threads,
            node: NodeChoice::Any,
            work: LoadWork::Independent {
                bytes: array,
                writes: Probability::per_million(500_000),
                memory: NodeChoice::Any,
            },
        };
        rate_under(arrays, request, Placement::Cached, changes)
    };
    rate(48) / rate(0)
}

#[test]
fn arrays_that_exceed_the_cache_slow_reads_and_not_writes() {
    let share = |request, array| share_under_arrays(request, array, &[]);
    for distance in [8, 64] {
        let read = (Opcode::Read, distance);
        assert_eq!(
            share(read, Bytes::mib(1)),
            1.0,
            "24 MiB a node fit the cache"
        );
        let slower = share(read, Bytes::mib(64));
        assert!((0.8..0.97).contains(&slower), "{slower}");
        let write = share((Opcode::Write, distance), Bytes::mib(64));
        assert!(write > 0.99, "written lines are in the cache: {write}");
    }
}

#[test]
fn reads_wait_longer_the_less_bandwidth_a_load_leaves() {
    let slow = |walks, line_ns| {
        let changes = [("cpu.page_walks", walks), ("memory.line_ns", line_ns)];
        share_under_arrays((Opcode::Read, 64), Bytes::mib(64), &changes)
    };
    let shares = [slow(1.0, 0.94), slow(4.0, 0.94), slow(4.0, 3.76)];
    assert!(
        shares[2] < shares[1] * 0.9 && shares[1] < shares[0],
        "{shares:?}"
    );
}

/// READs of memory on the other socket, while 48 threads of the NIC's socket have arrays on either one.
#[test]
fn arrays_across_slow_reads_whose_data_cross_in_the_same_direction() {
    let rate = |op, memory| {
        let arrays = CpuLoad {
            threads: 48,
            node: NodeChoice::Nic,
            work: LoadWork::Independent {
                bytes: Bytes::mib(64),
                writes: Probability::ZERO,
                memory,
            },
        };
        let changes = [
            ("cpu.page_walks", 8.0),
            ("memory.interconnect_line_ns", 4.5),
        ];
        rate_under(arrays, (op, 64), Placement::RemoteCached, &changes)
    };
    let share = |op| rate(op, NodeChoice::Other) / rate(op, NodeChoice::Nic);
    assert!(share(Opcode::Read) < 0.9, "{}", share(Opcode::Read));
    let write = share(Opcode::Write);
    assert!(
        write > 0.99,
        "its data cross in the other direction: {write}"
    );
}

/// Returns the mean wait of each of `clients` that WRITE with one request in flight: the NIC loads no context for it.
fn waits(clients: u32, is_one_process: bool) -> Vec<f64> {
    let preset = Preset::built_in("cx3_fdr_nurdma").unwrap();
    let mut cluster = Cluster::new(&preset, &[Placement::Cached; 2]);
    if is_one_process {
        cluster.share_contexts();
    }
    let load = Load {
        timing: Timing::Each,
        ..Load::new(Opcode::Write, 64)
    };
    let shape = Outbound {
        cores: clients,
        qps: 1,
        peers: 1,
        memory: 4096,
    };
    let tallies = run_in(
        &mut cluster,
        &Pattern::outbound(Transport::Rc, &load, shape),
    );
    let waits = tallies[..clients as usize].iter().map(Tally::mean_wait);
    waits.map(|wait| wait.unwrap().as_ns_f64()).collect()
}

#[test]
fn queue_pairs_beyond_the_registers_of_a_process_wait_for_a_lock() {
    let mean = |waits: &[f64]| waits.iter().sum::<f64>() / waits.len() as f64;
    let registers = 7;
    assert_eq!(
        waits(7, true),
        waits(7, false),
        "each has a register of its own"
    );
    let shared = waits(24, true);
    let (own, locked) = shared.split_at(registers);
    assert!(mean(own) < mean(locked) * 0.99, "{shared:?}");
    let [few, many] =
        [16, 32].map(|clients| mean(&waits(clients, true)) / mean(&waits(clients, false)));
    assert!(few < 1.1 && many > few + 0.1, "{few} and {many}");
}

/// As long as the lines that both write move faster than the other thread posts.
#[test]
fn a_thread_that_only_polls_lets_the_other_one_post_faster() {
    let rate = |is_apart| {
        let preset = Preset::built_in("cx7").unwrap();
        let mut cluster = Cluster::new(&preset, &[Placement::Cached; 2]);
        if is_apart {
            cluster.poll_apart();
        }
        let load = Load {
            inline: true,
            think: Span::from_ns(150),
            limits: Limits::of_each_qp(16, 1),
            ..Load::new(Opcode::Write, 8)
        };
        let shape = Outbound {
            cores: 1,
            qps: 4,
            peers: 1,
            memory: 4096,
        };
        let pattern = Pattern::outbound(Transport::Rc, &load, shape);
        run_in(&mut cluster, &pattern)[0].per_second().unwrap()
    };
    let (one, two) = (rate(false), rate(true));
    assert!(two > one * 1.05, "{two} and {one}");
}

#[test]
fn runs_under_load_are_the_same() {
    let run = || rate(Opcode::Write, 8, 12, Placement::Cached, 2.0);
    assert_eq!(run().to_bits(), run().to_bits());
}

#[test]
fn threads_that_compute_take_cores_from_who_answers_and_not_from_the_nic() {
    let preset = Preset::built_in("cx3_fdr_nurdma").unwrap();
    let wait = |request, threads| {
        let load = Load {
            timing: Timing::Each,
            ..Load::new(request, 64)
        };
        let shape = Outbound {
            cores: 1,
            qps: 1,
            peers: 1,
            memory: 4096,
        };
        let pattern = Pattern::outbound(Transport::Rc, &load, shape);
        let compute = CpuLoad {
            threads,
            node: NodeChoice::Nic,
            work: LoadWork::Compute,
        };
        let tallies = under(Some(compute), &preset, Placement::Cached, &pattern);
        tallies[0].mean_wait().unwrap()
    };
    assert_eq!(wait(Opcode::Read, 0), wait(Opcode::Read, 48));
    let compute = |threads| {
        let piece = Piece {
            busy: Span::from_ns(500),
            lines: 0,
        };
        let mut pattern = Pattern::new(Transport::Rc);
        let me = pattern.add(1, Part::Compute(piece), 4096);
        let load = CpuLoad {
            threads,
            node: NodeChoice::Nic,
            work: LoadWork::Compute,
        };
        let tallies = under(Some(load), &preset, Placement::Cached, &pattern);
        tallies[me.0 as usize].per_second().unwrap()
    };
    assert_eq!(compute(0), compute(11), "there is a core for each");
    assert!(compute(12) < compute(11) && compute(36) < compute(12) * 0.6);
}

/// Pieces a second that a core of a machine computes while another machine writes to it.
fn pieces(ddio_ways: f64, threads: u32) -> f64 {
    let preset = Preset::built_in("cx3_fdr_nurdma").unwrap();
    let changes = [("memory.ddio_ways", ddio_ways), ("memory.line_ns", 20.0)];
    let preset = preset.with(&changes).unwrap();
    let load = Load {
        limits: Limits {
            per_qp: 4,
            per_member: 4,
            rd_atomic: 1,
        },
        ..Load::new(Opcode::Write, 4096)
    };
    let shape = Inbound {
        threads,
        peers: 1,
        qps: threads,
        window: None,
        receivers: 0,
        depth: 1,
        memory: 1 << 16,
    };
    let mut pattern = match threads {
        0 => Pattern::new(Transport::Rc),
        _ => Pattern::inbound(Transport::Rc, &load, &shape),
    };
    let piece = Piece {
        busy: Span::from_ns(500),
        lines: 8,
    };
    let me = pattern.add(0, Part::Compute(piece), 1 << 20);
    let tallies = under(None, &preset, Placement::Cached, &pattern);
    tallies[me.0 as usize].per_second().unwrap()
}

#[test]
fn a_computation_suffers_from_writes_that_go_to_memory() {
    assert_eq!(pieces(0.0, 0), pieces(2.0, 0));
    assert!(pieces(0.0, 4) < pieces(0.0, 0) * 0.99);
    assert_eq!(pieces(2.0, 4), pieces(2.0, 0), "writes hit the cache");
}
