//! A program of several members, started where its command line says.

use std::time::Duration;

use adverb_hwmodel::{Cluster, Placement};
use adverb_launch::{
    DeviceChoice, DeviceInfo, Hardware, Interrupt, RunError, Usage, VirtualLimits,
    run_in_virtual_time,
};
use adverb_patterns::{Job, JobReport, Schedule, ServiceTally, Tally};
use adverb_workload::Program;
use anyhow::{anyhow, bail};

use super::duration;
use crate::args::ClientArgs;
use crate::busy::Beside;
use crate::request::{Shape, check_places};
use crate::{hosts, terminal};

/// How long a program may take beyond the time that it measures.
const PATIENCE: Duration = Duration::from_secs(300);

/// When members measure.
pub(super) fn schedule(args: &ClientArgs) -> Schedule {
    let measured = duration(args);
    Schedule {
        warm_up: measured / 4,
        measured,
    }
}

/// Machines of a program besides the first one: as many as typed, or as there are other hosts.
pub(super) fn machines(args: &ClientArgs) -> u32 {
    let hosts = args.place.peer.len() + args.device.all().len();
    args.machines
        .unwrap_or(hosts.saturating_sub(1).max(1) as u32)
}

/// Runs a program on the device and hosts that were named.
pub(super) fn run(args: &ClientArgs, job: &Job) -> anyhow::Result<Vec<JobReport>> {
    let device = args.device.choice();
    check_places(&device, &args.place, Shape::Many)?;
    match &device {
        DeviceChoice::Model(preset) => {
            let hardware = Hardware::load(preset)?;
            Program::check(job, &hardware.limits()?.caps).map_err(Usage)?;
            in_virtual_time(&hardware, job, &Interrupt::listen()?)
        }
        DeviceChoice::Soft(_) | DeviceChoice::Verbs(_) => on_hosts(args, &device, job),
    }
}

fn on_hosts(args: &ClientArgs, device: &DeviceChoice, job: &Job) -> anyhow::Result<Vec<JobReport>> {
    let launcher = hosts::launcher(args.device.all(), Vec::new(), &args.place)?;
    launcher.check_device(job)?;
    let info = DeviceInfo::query(device)?;
    let peers = hosts::peers(&args.place, device, &info)?;
    let caps = peers
        .iter()
        .fold(info.caps, |caps, peer| peer.common_limits(&caps));
    Program::check(job, &caps).map_err(Usage)?;
    let is_served_here = peers.iter().any(adverb_launch::Peer::is_here);
    let mut launcher = launcher.with_peers(peers);
    if launcher.is_within_memory() {
        terminal::warn(&format!(
            "all members are at {} and share memory: connected queue pairs use the local port, only datagrams go over UDP",
            launcher.device()
        ));
    }
    let interrupt = Interrupt::listen()?;
    let beside = (!is_served_here).then(|| Beside::from_now(device));
    let patience = PATIENCE + Duration::from(duration(args) * 2);
    let run = launcher
        .run(job, patience, &interrupt)
        .map_err(hosts::failed)?;
    let reports = run.reports.map_err(|failure| match failure.is_usage {
        true => Usage(failure.reason).into(),
        false => anyhow!(failure.reason),
    })?;
    if let Some(beside) = beside {
        beside.warn();
    }
    Ok(reports)
}

fn in_virtual_time(
    hardware: &Hardware,
    job: &Job,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<JobReport>> {
    let placements = vec![Placement::Cached; job.hosts() as usize];
    let mut cluster = Cluster::new(&hardware.preset, &placements);
    let machines: Vec<_> = (0..job.hosts()).map(|host| cluster.machine(host)).collect();
    let limits = VirtualLimits::default();
    let is_over = || interrupt.raised();
    let run = run_in_virtual_time(&mut cluster, &machines, job, limits, &is_over);
    let Some(run) = run else {
        bail!(RunError::Interrupted);
    };
    Ok(run.reports()?)
}

/// What the members of a service did.
pub(super) fn services(reports: Vec<JobReport>) -> Vec<ServiceTally> {
    let service = |report| match report {
        JobReport::Service(tally) => Some(tally),
        _ => None,
    };
    reports.into_iter().filter_map(service).collect()
}

/// What the members of a pattern did.
pub(super) fn members(reports: Vec<JobReport>) -> Vec<Tally> {
    let member = |report| match report {
        JobReport::Member(tally) => Some(tally),
        _ => None,
    };
    reports.into_iter().filter_map(member).collect()
}
