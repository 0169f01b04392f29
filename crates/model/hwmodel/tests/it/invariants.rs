//! How rates change with the number of queue pairs and of requests in flight, whatever the parameters are.

use adverb_hwmodel::{Cluster, Placement, Preset};
use adverb_results::Opcode;
use adverb_sim::Budget;
use adverb_units::Span;
use adverb_verbs::RoleId;
use adverb_workload::pattern::{
    Limits, Load, Outbound, Part, Pattern, Posting, Schedule, Symmetric, Tally, Transport, run,
};

/// What the machine that posts did in the measured time.
struct Measured {
    device: Tally,
}

impl Measured {
    fn count(&self, name: &str) -> f64 {
        self.device.counted.get(name).copied().unwrap_or(0) as f64
    }

    /// Completed requests, in millions per second.
    fn mops(&self) -> f64 {
        self.count("completed_requests") / self.device.elapsed.as_ns_f64() * 1e3
    }

    fn per_request(&self, name: &str) -> f64 {
        self.count(name) / self.count("completed_requests")
    }
}

/// `cores` threads post to `qps` queue pairs each, with `per_qp` requests in flight on each.
fn outbound(preset: &str, transport: Transport, load: &Load, shape: [u32; 2]) -> Measured {
    outbound_for(1, preset, (transport, load), shape)
}

/// The same, with a warm-up and a measured time of `times` the usual ones.
fn outbound_for(
    times: u64,
    preset: &str,
    (transport, load): (Transport, &Load),
    [cores, qps]: [u32; 2],
) -> Measured {
    let shape = Outbound {
        cores,
        qps,
        peers: 4,
        memory: 1 << 18,
    };
    let in_flight = u64::from(cores * qps * load.limits.per_qp);
    let pattern = Pattern::outbound(transport, load, shape);
    measure(preset, pattern, in_flight, times)
}

/// Runs a pattern whose machines have up to `in_flight` requests in flight.
fn measure(preset: &str, mut pattern: Pattern, in_flight: u64, times: u64) -> Measured {
    let counter = pattern.add(0, Part::Count, 64);
    let preset = Preset::built_in(preset).unwrap();
    let placements = vec![Placement::Cached; pattern.machines() as usize];
    let mut cluster = Cluster::new(&preset, &placements);
    // All queues are full, and all that was in them at the beginning has been sent, before it counts.
    let schedule = Schedule {
        warm_up: (Span::from_us(50) + Span::from_ns(150) * in_flight) * times,
        measured: (Span::from_us(100) + Span::from_ns(50) * in_flight) * times,
    };
    let members: Vec<_> = (0..)
        .map(RoleId)
        .zip(&pattern.members)
        .map(|(role, member)| {
            let (machine, pattern) = (cluster.machine(member.machine), pattern.clone());
            cluster.spawn(machine, &role.to_string(), move |station| {
                run(station, &pattern, role, schedule)
            })
        })
        .collect();
    let outcome = cluster.run(&Budget::NONE);
    assert!(outcome.is_finished(), "{outcome}");
    let device = members[counter.0 as usize].take();
    Measured {
        device: device.unwrap().unwrap(),
    }
}

/// Short requests, inline if that is possible and asked for.
fn load(op: Opcode, inline: bool, per_qp: u32) -> Load {
    Load {
        inline: inline && !op.is_fetch(),
        limits: Limits {
            per_qp,
            per_member: u32::MAX,
            rd_atomic: 16,
        },
        ..Load::new(op, 16)
    }
}

/// Queue pairs that were bound to processing units in turn: 18 queue pairs a core were three times as slow as 20.
#[test]
fn more_queue_pairs_than_the_caches_hold_are_never_faster() {
    for (transport, per_qp, slack) in [
        (Transport::Uc, 4, 1.03),
        (Transport::Uc, 32, 1.03),
        (Transport::Rc, 4, 1.03),
        (Transport::Rc, 32, 1.03),
    ] {
        let mut lowest = f64::INFINITY;
        let mut rates = Vec::new();
        // 168 requester contexts and more; ConnectX-3 caches 150.
        for qps in [12, 14, 16, 18, 20, 24, 33] {
            let measured = outbound(
                "cx3",
                transport,
                &load(Opcode::Write, true, per_qp),
                [14, qps],
            );
            rates.push((qps, measured.mops()));
            assert!(
                measured.mops() <= lowest * slack,
                "{transport} with {per_qp}: {rates:.2?}"
            );
            lowest = lowest.min(measured.mops());
        }
    }
}

/// Inline WQEs were never evicted: a request that its unit had taken waited in an unbounded queue behind it.
#[test]
fn a_wqe_is_evicted_whatever_it_contains() {
    let misses = |inline, per_qp| {
        let load = load(Opcode::Write, inline, per_qp);
        let measured = outbound("cx3", Transport::Rc, &load, [4, 1]);
        measured.per_request("wqe_cache_misses")
    };
    for (per_qp, range) in [(8, 0.0..0.02), (24, 0.0..0.02), (256, 0.5..1.1)] {
        let both = [true, false].map(|inline| misses(inline, per_qp));
        for found in both {
            assert!(
                range.contains(&found),
                "{per_qp}: {both:.2?} misses a request"
            );
        }
    }
}

/// Acknowledgements waited in the port behind all WRITEs of their own machine, and two machines stopped each other in turn:
/// Connect-IB wrote 6.0 GB/s at 256 B and 9.4 at 512. READs waited for all answers of their own machine: ConnectX-3 read 192 B
/// 2.8 million times a second, and 96 B 10.7 million times.
#[test]
fn machines_that_access_each_other_do_not_stop_each_other_in_turn() {
    // As many in flight as keep their WQEs in the NIC.
    for (preset, cores, per_member, op) in [
        ("connect_ib", 14, 32, Opcode::Write),
        ("connect_ib", 14, 32, Opcode::Read),
        ("cx3", 8, 16, Opcode::Write),
        ("cx3", 8, 16, Opcode::Read),
    ] {
        let shape = Symmetric {
            machines: 2,
            cores,
            qps: 5,
            memory: 1 << 18,
        };
        let rates = [96, 192, 256, 384, 512, 768].map(|size| {
            let load = Load {
                limits: Limits {
                    per_qp: 16,
                    per_member,
                    rd_atomic: 16,
                },
                ..Load::new(op, size)
            };
            let pattern = Pattern::symmetric(Transport::Rc, &load, shape);
            let rate = measure(preset, pattern, u64::from(cores * per_member), 1).mops();
            (size, rate, rate * f64::from(size) / 1e3)
        });
        for pair in rates.windows(2) {
            let [(_, small, slow), (size, large, fast)] = pair else {
                unreachable!()
            };
            let is_bent = *large <= 1.02 * small && *fast >= 0.97 * slow;
            assert!(is_bent, "{preset} {op} {size} B: {rates:.2?} M/s, GB/s");
        }
    }
}

/// READs of four queue pairs fell from 21 to 7.7 M/s between 16 and 32 in flight on each, WRITEs from 19.5 to 5.3 between
/// 32 and 64.
#[test]
fn one_request_more_than_fits_does_not_change_the_rate_by_factors() {
    for (preset, op, inline) in [
        ("cx3", Opcode::Read, false),
        ("cx3", Opcode::Write, false),
        ("cx3", Opcode::Write, true),
        ("connect_ib", Opcode::Read, false),
    ] {
        let rate =
            |per_qp| outbound(preset, Transport::Rc, &load(op, inline, per_qp), [4, 1]).mops();
        // `max_rd_atomic` is 16; the WQE cache of ConnectX-3 has 128 entries.
        for per_qp in [16, 24, 32, 36, 40, 48] {
            let (some, more) = (rate(per_qp), rate(per_qp + 1));
            assert!(
                more >= 0.8 * some,
                "{preset} {op}, inline {inline}: {some:.2} M/s with {per_qp}, then {more:.2}"
            );
        }
    }
}

/// With lists, ConnectX fetched the WQEs of a queue pair one by one, and was four times as slow as with single requests; then
/// 256 B of them in a round trip, and with WQEs of two lines was half as fast. Connect-IB needs two queue pairs (Kalia et al.,
/// figure 11b).
#[test]
fn lists_are_not_slower_than_single_requests_on_three_generations() {
    for (preset, qps) in [
        ("cx", 1),
        ("cx", 2),
        ("cx3", 1),
        ("cx3", 2),
        ("connect_ib", 2),
    ] {
        for size in [16, 60] {
            let rate = |posting| {
                let load = Load {
                    size,
                    posting,
                    signaled_every: 32,
                    ..load(Opcode::Write, true, 128)
                };
                outbound(preset, Transport::Uc, &load, [1, qps]).mops()
            };
            let (single, list) = (rate(Posting::Single), rate(Posting::List(16)));
            assert!(
                list >= 0.98 * single,
                "{preset}, {qps} queue pairs, {size} B: {list:.2} in lists, {single:.2} M/s singly"
            );
        }
    }
}

/// All WQEs of a doorbell were read at once, so that a list on one queue pair was limited by its processing unit alone.
#[test]
fn a_queue_pair_of_connect_ib_has_one_read_of_wqes_in_flight() {
    let rate = |list| {
        let load = Load {
            posting: Posting::List(list),
            signaled_every: 32,
            ..load(Opcode::Write, true, 128)
        };
        outbound("connect_ib", Transport::Uc, &load, [1, 1]).mops()
    };
    // One line each, 512 B in a round trip of 428 ns.
    let most = 8.0 / 428.0 * 1e3;
    let (short, long) = (rate(4), rate(16));
    assert!(
        long < 1.02 * most && short > 0.8 * long,
        "{short:.2} and {long:.2} M/s, at most {most:.2}"
    );
}

/// READs did not load the requester's context, and only other limits slowed ConnectX-3's READs on many queue pairs.
#[test]
fn reads_that_follow_another_need_no_context() {
    let rate = |per_qp, cores| {
        let load = load(Opcode::Read, false, per_qp);
        outbound("cx3", Transport::Rc, &load, [cores, 1]).mops()
    };
    // One context in 123 ns.
    let most = 1e3 / 123.0;
    let (one, many) = (rate(1, 16), rate(1, 32));
    assert!(one < most && many < most, "{one:.2} and {many:.2} M/s");
    let several = rate(8, 16);
    assert!(several > 2.0 * most, "{several:.2} M/s with 8 in flight");
}

/// The rate of a machine in steady state: warm-up and measured time are doubled until it is, as `adverb model validate` does.
fn steady(preset: &str, transport: Transport, load: &Load) -> f64 {
    let lengthened = (0..9).map(|doubled| 1 << doubled);
    let mut measured =
        lengthened.map(|times| outbound_for(times, preset, (transport, load), [4, 2]));
    let steady = measured.find(|measured| measured.device.is_steady());
    let what = format!("{preset}, {transport} {}: {:?}", load.op, load.limits);
    steady
        .unwrap_or_else(|| panic!("{what} never becomes steady"))
        .mops()
}

/// A queue pair that has lost WQEs at the beginning takes up to a millisecond to read them all again: rates before that
/// were reported.
#[test]
fn every_load_becomes_steady_whether_all_requests_are_signaled_or_not() {
    let verbs = [
        (Transport::Uc, Opcode::Write, true),
        (Transport::Rc, Opcode::Write, true),
        (Transport::Rc, Opcode::Write, false),
        (Transport::Rc, Opcode::Read, false),
        (Transport::Rc, Opcode::FetchAdd, false),
    ];
    // The NICs of the others are faster than the CPU, for which a completion less is time for a request more.
    let limited = ["mt26428_qdr", "cx", "cx3", "cx3_fdr_nurdma"];
    for preset in limited
        .into_iter()
        .chain(["connect_ib", "cx5", "cx6dx", "cx7"])
    {
        for (transport, op, inline) in verbs {
            let rate = |per_qp, signaled_every| {
                let load = Load {
                    signaled_every,
                    ..load(op, inline, per_qp)
                };
                steady(preset, transport, &load)
            };
            rate(4, 1);
            let [all, half] = [1, 2].map(|signaled_every| rate(32, signaled_every));
            let ratio = half / all;
            assert!(
                !limited.contains(&preset) || (0.97..1.03).contains(&ratio),
                "{preset}, {transport} {op}: {all:.2} M/s, half of the requests signaled {half:.2}"
            );
            assert!(
                ratio > 0.97,
                "{preset}, {transport} {op}: {all:.2} and {half:.2} M/s"
            );
        }
    }
}
