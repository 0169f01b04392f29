//! How many operations the model simulates a second, on this machine, with one core.

use std::time::Instant;

use adverb_hwmodel::{Cluster, Placement, Preset};
use adverb_patterns::{
    Limits, Load, Outbound, Pattern, Posting, Refill, Request, Schedule, Transport, run,
};
use adverb_sim::Budget;
use adverb_units::Span;
use adverb_verbs::RoleId;

/// Milliseconds of virtual time, unless the first argument says otherwise.
const SIMULATED_MS: u64 = 50;

fn main() {
    let argument = std::env::args().nth(1);
    let ms = argument.map_or(SIMULATED_MS, |ms| ms.parse().expect("milliseconds"));
    let loads = [
        (
            "WRITE of 32 B, inline, one by one",
            Request::Write,
            true,
            1,
            1,
        ),
        (
            "WRITE of 32 B, lists of 16, one of 16 signaled",
            Request::Write,
            true,
            16,
            16,
        ),
        ("READ of 32 B, one by one", Request::Read, false, 1, 1),
        (
            "WRITE of 256 B, not inline, one by one",
            Request::Write,
            false,
            1,
            1,
        ),
    ];
    for (name, request, inline, list, signaled_every) in loads {
        let load = Load {
            inline,
            signaled_every,
            posting: match list {
                1 => Posting::Single,
                n => Posting::List(n),
            },
            refill: Refill::Continuous,
            limits: Limits {
                per_qp: 64,
                per_member: 256,
                rd_atomic: 16,
            },
            ..Load::new(request, if inline { 32 } else { 256 })
        };
        let shape = Outbound {
            cores: 2,
            qps: 4,
            peers: 1,
            memory: 4096,
        };
        let pattern = Pattern::outbound(Transport::Rc, &load, shape);
        let preset = Preset::built_in("connect_ib").expect("a preset of Adverb's");
        let mut cluster = Cluster::new(&preset, &[Placement::Cached; 2]);
        let schedule = Schedule {
            warm_up: Span::ZERO,
            measured: Span::from_ms(ms),
        };
        let tallies: Vec<_> = (0..pattern.members.len() as u32)
            .map(|role| {
                let machine = cluster.machine(pattern.members[role as usize].machine);
                let pattern = pattern.clone();
                cluster.spawn(machine, "member", move |station| {
                    run(station, &pattern, RoleId(role), schedule)
                })
            })
            .collect();
        let start = Instant::now();
        let outcome = cluster.run(&Budget::NONE);
        let took = start.elapsed().as_secs_f64();
        let tallies = tallies.iter().filter_map(|tally| tally.take()?.ok());
        let completed: u64 = tallies.map(|tally| tally.completed).sum();
        println!(
            "{name}: {:.2} M operations/s, {:.1} M events/s ({outcome}, {completed} operations)",
            completed as f64 / took / 1e6,
            cluster.happened() as f64 / took / 1e6,
        );
    }
}
