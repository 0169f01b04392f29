//! The members of a program, started: threads of this process on a real device, coroutines of one
//! simulation on the model.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use adverb_host::{HostStation, Link, usable_cores};
use adverb_hwmodel::{Cluster, Placement};
use adverb_patterns::{PatternError, Schedule};
use adverb_sim::{Budget, Outcome, Resource, Returned};
use adverb_verbs::{self as verbs, Device, Guarded, RoleId};
use anyhow::{Context, anyhow, bail};

use crate::device::DeviceChoice;
use crate::failure::Usage;
use crate::interrupt::Interrupt;
use crate::model::Hardware;

use super::program::Program;
use super::stopping::UntilStopped;

/// Threads of a program on a real device at most: each spins on a core, or waits for its turn there.
const MOST_THREADS: u32 = 256;
/// Between two looks at whether all threads have ended.
const LOOK: Duration = Duration::from_millis(10);
/// Events of a simulation between two looks at whether the user wants the end.
const SLICE: u64 = 200_000;

/// Runs all members; their tallies in order.
///
/// # Errors
/// The device cannot be opened or cannot run the program, a member failed, or the user wants the end.
pub(super) fn run<P: Program>(
    device: &DeviceChoice,
    program: &P,
    schedule: Schedule,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<P::Tally>> {
    let ended = match device {
        DeviceChoice::Soft(address) => {
            on_threads(&address.device()?, program, schedule, interrupt)?
        }
        DeviceChoice::Verbs(verbs) => {
            if device.to_string().starts_with("verbs+cm:") {
                return Err(Usage(format!(
                    "{device}: clients are connected by hand; name the device as verbs:NAME"
                ))
                .into());
            }
            on_threads(verbs, program, schedule, interrupt)?
        }
        DeviceChoice::Model(preset) => {
            let hardware = Hardware::load(preset)?;
            in_virtual_time(&hardware, program, schedule, interrupt)?
        }
    };
    all_well(ended)
}

type Ends<T> = Vec<Result<T, anyhow::Error>>;

/// The tallies, or the first failure that is not only another member's absence.
fn all_well<T>(ended: Ends<T>) -> anyhow::Result<Vec<T>> {
    let (mut tallies, mut failures) = (Vec::new(), Vec::new());
    for (end, role) in ended.into_iter().zip((0..).map(RoleId)) {
        match end {
            Ok(tally) => tallies.push(tally),
            Err(error) => failures.push((role, error)),
        }
    }
    let is_cause = |(_, error): &(RoleId, anyhow::Error)| {
        !matches!(
            error.downcast_ref::<PatternError>(),
            Some(PatternError::OutOfBand(_))
        )
    };
    let place = failures.iter().position(is_cause).unwrap_or(0);
    match failures.into_iter().nth(place) {
        Some((role, error)) => Err(match error.downcast_ref::<PatternError>() {
            // What was typed, and no member, is the cause.
            Some(PatternError::Count { .. } | PatternError::Record { .. }) => {
                Usage(error.to_string()).into()
            }
            _ => error.context(role.to_string()),
        }),
        None => Ok(tallies),
    }
}

fn on_threads<D, P: Program>(
    device: &D,
    program: &P,
    schedule: Schedule,
    interrupt: &Interrupt,
) -> anyhow::Result<Ends<P::Tally>>
where
    D: Device + Clone + Send + 'static,
    D::Context: verbs::Context,
{
    let members = program.members();
    if members > MOST_THREADS {
        return Err(Usage(format!(
            "{members} members are threads of this machine: at most {MOST_THREADS} are possible"
        ))
        .into());
    }
    // Members that share a core give it away when they find nothing.
    let shares_core = members as usize > usable_cores().len();
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for (links, role) in links(program)?.into_iter().zip((0..).map(RoleId)) {
        let (device, program, stop) = (device.clone(), program.clone(), Arc::clone(&stop));
        let body = move || -> anyhow::Result<P::Tally> {
            let station = HostStation::new(device.open()?, links).sharing_core(shares_core);
            Ok(program.run(&Guarded::new(&station, UntilStopped(&stop)), role, schedule)?)
        };
        let thread = std::thread::Builder::new().name(role.to_string());
        threads.push(thread.spawn(body).context("cannot start a thread")?);
    }
    while threads.iter().any(|thread| !thread.is_finished()) {
        if interrupt.within(LOOK) {
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            break;
        }
    }
    let ended = threads.into_iter().map(|thread| {
        let end = thread.join();
        end.unwrap_or_else(|_| Err(anyhow!("its thread panicked")))
    });
    let ended = ended.collect();
    if interrupt.raised() {
        bail!("interrupted");
    }
    Ok(ended)
}

/// Links between the members that talk with one another.
fn links<P: Program>(program: &P) -> anyhow::Result<Vec<Vec<(RoleId, Link)>>> {
    let members = program.members();
    let mut pairs = HashSet::new();
    for role in (0..members).map(RoleId) {
        for peer in program.peers(role).into_iter().chain([RoleId(0)]) {
            if peer != role {
                pairs.insert((role.min(peer), role.max(peer)));
            }
        }
    }
    let mut ends: HashMap<RoleId, Vec<(RoleId, Link)>> = HashMap::new();
    for (a, b) in pairs {
        let (one, other) = Link::pair().context("cannot make a socket pair")?;
        ends.entry(a).or_default().push((b, one));
        ends.entry(b).or_default().push((a, other));
    }
    let mut take = |role| ends.remove(&role).unwrap_or_default();
    Ok((0..members).map(|role| take(RoleId(role))).collect())
}

fn in_virtual_time<P: Program>(
    hardware: &Hardware,
    program: &P,
    schedule: Schedule,
    interrupt: &Interrupt,
) -> anyhow::Result<Ends<P::Tally>> {
    let machines = vec![Placement::Cached; program.machines() as usize];
    let mut cluster = Cluster::new(&hardware.preset, &machines);
    let members: Vec<_> = (0..program.members())
        .map(RoleId)
        .map(|role| {
            let (machine, program) = (cluster.machine(program.machine(role)), program.clone());
            cluster.spawn(machine, &role.to_string(), move |station| {
                program.run(station, role, schedule)
            })
        })
        .collect();
    let slice = Budget {
        events: Some(SLICE),
        ..Budget::NONE
    };
    let outcome = loop {
        if interrupt.raised() {
            bail!("interrupted");
        }
        let outcome = cluster.run(&slice);
        let is_slice = matches!(
            outcome,
            Outcome::Exhausted {
                budget: Resource::Events(_),
                ..
            }
        );
        if !is_slice {
            break outcome;
        }
    };
    let ended: Option<Vec<_>> = members.iter().map(Returned::take).collect();
    let ended = ended.ok_or_else(|| anyhow!("{outcome}"))?;
    Ok(ended.into_iter().map(|end| Ok(end?)).collect())
}
