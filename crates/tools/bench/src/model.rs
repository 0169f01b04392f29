//! The speed of the hardware model, in operations and as elapsed time of commands.

use std::process::{Command, Stdio};
use std::time::Instant;

use adverb_hwmodel::{Cluster, Placement, Preset};
use adverb_patterns::{
    Limits, Load, Opcode, Outbound, Pattern, Refill, Schedule, Tally, Transport, run,
};
use adverb_sim::Budget;
use adverb_units::Span;
use adverb_verbs::RoleId;
use anyhow::{Context as _, Result, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::child::on_core;
use crate::row::Setting;

/// Virtual time that is simulated.
const SIMULATED: Span = Span::from_ms(50);

/// Operations per second of real time on one core, and of virtual time.
pub(crate) fn operations(core: u32) -> Result<(f64, f64)> {
    on_core(core, simulate)
}

/// A blast of inline WRITEs between two Connect-IB machines.
fn simulate() -> Result<(f64, f64)> {
    let load = Load {
        inline: true,
        refill: Refill::Continuous,
        limits: Limits {
            per_qp: 64,
            per_member: 256,
            rd_atomic: 16,
        },
        ..Load::new(Opcode::Write, 32)
    };
    let shape = Outbound {
        cores: 2,
        qps: 4,
        peers: 1,
        memory: 4096,
    };
    let pattern = Pattern::outbound(Transport::Rc, &load, shape);
    let preset = Preset::built_in("connect_ib")?;
    let mut cluster = Cluster::new(&preset, &[Placement::Cached; 2]);
    let schedule = Schedule {
        warm_up: Span::ZERO,
        measured: SIMULATED,
    };
    let members: Vec<_> = (0..pattern.members.len() as u32)
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
    ensure!(outcome.is_finished(), "the simulation: {outcome}");
    let tallies = members.iter().filter_map(|member| member.take()?.ok());
    let completed: u64 = tallies.map(|tally: Tally| tally.completed).sum();
    Ok((
        completed as f64 / took,
        completed as f64 / SIMULATED.as_secs_f64(),
    ))
}

/// Seconds that an `adverb` command takes on both cores, and of CPU time.
pub(crate) fn seconds(setting: &Setting, command: &str) -> Result<(f64, f64)> {
    std::thread::scope(|scope| {
        let timed = scope.spawn(|| {
            let mut both = CpuSet::new();
            for core in setting.cores {
                both.set(core as usize);
            }
            // Commands that this thread starts run there, too.
            sched_setaffinity(None, &both).context("cannot pin")?;
            let (start, used) = (Instant::now(), children()?);
            let status = Command::new(&setting.adverb)
                .args(command.split(' '))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .context("cannot start adverb")?;
            ensure!(status.success(), "adverb {command}: {status}");
            Ok((start.elapsed().as_secs_f64(), children()? - used))
        });
        timed.join().expect("the timed thread does not panic")
    })
}

/// A study into a folder that is removed again.
pub(crate) fn study(setting: &Setting, command: &str) -> Result<(f64, f64)> {
    let folder = std::env::temp_dir().join(format!("adverb-bench-{}", std::process::id()));
    let measured = seconds(setting, &format!("{command} --out {}", folder.display()));
    // A study that failed to start has no folder.
    let _ = std::fs::remove_dir_all(&folder);
    measured
}

/// Seconds of CPU time of all children that have ended (proc(5): `cutime`, `cstime`).
fn children() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    // The name may hold blanks; what follows it does not.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(13).take(2);
    let ticks: Vec<f64> = ticks.map(str::parse).collect::<Result<_, _>>()?;
    ensure!(ticks.len() == 2, "/proc/self/stat: {text}");
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Ok(ticks.iter().sum::<f64>() / per_second)
}
