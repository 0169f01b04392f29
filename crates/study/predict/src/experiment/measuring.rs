//! Runs a pattern on modelled machines, and makes a row's figure of what its members did.

use adverb_hwmodel::Cluster;
use adverb_patterns::{Job, JobReport, Member, Part, Pattern, Seen, Tally, Wait};
use adverb_units::Span;
use adverb_validate::{Budget, Completion, Experiment, Metric, Refusal, Side};
use adverb_verbs::QpType;

use super::hosts::{placements, preset};
use super::run::{run, schedule};
use super::{cannot, failed, load, no_metric};

/// How long a program is measured, after half of it again to warm up.
pub(super) const WINDOW: Span = Span::from_ms(1);
/// Where fewer requests complete, or fewer than come in a bunch, the window is longer, up to a longest one.
const ENOUGH: u64 = 64;
const LONGEST_WINDOW: Span = Span::from_ms(500);
/// The same of programs whose requests take milliseconds, or queue up for that long.
pub(super) const LONG_WINDOW: Span = Span::from_ms(20);
/// What posting one request takes, on slow hosts.
const POST: Span = Span::from_ns(200);

pub(super) fn posts(part: &Part) -> bool {
    matches!(part, Part::Request(_))
}

/// What the members that count did together.
#[derive(Default)]
pub(super) struct Measured {
    /// Operations a second.
    rate: f64,
    all: Tally,
    /// CPUs of those that post, and of all others.
    posting: Cpus,
    serving: Cpus,
    /// Lines that the measured machine's NIC read over PCIe, a second.
    pcie_reads: f64,
}

/// What is measured.
///
/// Members that see few of their completions count in bunches: for them the device counts.
#[derive(Clone, Copy)]
pub(super) enum Counted {
    /// Requests of the first machine that its NIC has done.
    Requests,
    /// Requests that have come to the first machine.
    Arrivals,
    /// What members of this part saw complete, among the first members.
    Members(fn(&Part) -> bool, usize),
}

pub(super) fn measure(
    experiment: &Experiment,
    pattern: &Pattern,
    counted: Counted,
    window: Span,
    budget: &Budget,
) -> Result<Measured, Refusal> {
    let enough = bunched(pattern).max(ENOUGH);
    let mut window = window.max(filling(pattern) * 2).min(LONGEST_WINDOW);
    loop {
        let measured = measure_for(experiment, pattern, counted, window, budget)?;
        if measured.all.completed >= enough || window >= LONGEST_WINDOW {
            return Ok(measured);
        }
        window = window * 8;
    }
}

/// How long a member takes at most to fill its queues. Meanwhile it only posts, and what it has posted
/// is done faster than when it reaps, too: the warm-up, half of the window, lasts as long.
fn filling(pattern: &Pattern) -> Span {
    let posted = pattern.members.iter().map(|member| match &member.part {
        Part::Request(load) => {
            let queues = match member.transport {
                QpType::Dci => u64::from(load.dc.initiators),
                _ => member.links.len() as u64,
            };
            let all = queues * u64::from(load.limits.per_qp);
            all.min(load.limits.per_member.into())
        }
        _ => 0,
    });
    POST * posted.max().unwrap_or(0)
}

/// Requests of the measured members that are under way where few of them show that they are done: what
/// is measured is not steady before they all are.
fn bunched(pattern: &Pattern) -> u64 {
    let members = pattern.members.iter();
    let measured = members.filter(|member| is_measured(pattern, member));
    let each = measured.map(|member| match &member.part {
        Part::Request(load) if load.signaled_every > 1 => {
            let links = member.links.len() as u64;
            let queues = links * u64::from(load.limits.per_qp);
            queues.min(load.limits.per_member.into())
        }
        _ => 0,
    });
    each.sum()
}

fn measure_for(
    experiment: &Experiment,
    pattern: &Pattern,
    counted: Counted,
    window: Span,
    budget: &Budget,
) -> Result<Measured, Refusal> {
    let preset = preset(experiment)?;
    let mut cluster = Cluster::new(&preset, &placements(experiment, pattern.machines()));
    let mut pattern = Pattern {
        wait: match experiment.parameters.posting.completion {
            Some(Completion::Event) => Wait::Event,
            _ => Wait::Poll,
        },
        ..pattern.clone()
    };
    let counter = pattern.add(0, Part::Count, 64);
    load::start(experiment, &mut cluster)?;
    let job = Job::Pattern(pattern.clone(), schedule(window));
    let reports = run(&mut cluster, &job, budget)?.into_iter();
    let tallies = reports.filter_map(|report| match report {
        JobReport::Member(tally) => Some(tally),
        _ => None,
    });
    let tallies: Vec<Tally> = tallies.collect();
    let device = &tallies[counter.0 as usize];
    let mut measured = Measured::of(&pattern, &tallies, counted);
    if shows_in_bunches(&pattern) {
        measured.count_by_device(device, counted);
    }
    measured.pcie_reads = per_second(device, "pcie_read_lines");
    Ok(measured)
}

/// Whether a member may count: where every member posts, those of the first machine do, as the
/// machines are equal.
fn is_measured(pattern: &Pattern, member: &Member) -> bool {
    let is_symmetric = pattern
        .members
        .iter()
        .all(|member| posts(&member.part) || member.part == Part::Count);
    !is_symmetric || member.machine == 0
}

/// Whether a completion stands for many requests.
fn shows_in_bunches(pattern: &Pattern) -> bool {
    pattern.members.iter().any(|member| match &member.part {
        Part::Request(load) => load.signaled_every > 1 && load.seen == Seen::Completion,
        _ => false,
    })
}

/// What a device counted in a second of the measured time.
fn per_second(device: &Tally, name: &str) -> f64 {
    let count = device.counted.get(name).copied().unwrap_or(0);
    count as f64 / device.elapsed.as_secs_f64()
}

impl Measured {
    /// What the members saw.
    fn of(pattern: &Pattern, tallies: &[Tally], counted: Counted) -> Self {
        let (counts, first) = match counted {
            Counted::Members(counts, first) => (counts, first),
            Counted::Requests | Counted::Arrivals => (posts as fn(&Part) -> bool, tallies.len()),
        };
        let mut measured = Measured::default();
        for (member, tally) in pattern.members.iter().zip(tallies).take(first) {
            if !is_measured(pattern, member) {
                continue;
            }
            if counts(&member.part) {
                measured.add(tally);
            }
            match member.part {
                Part::Request(_) => measured.posting.add(tally),
                Part::Count => {}
                _ => measured.serving.add(tally),
            }
        }
        measured
    }

    /// Takes the rate that the first machine's device counted instead.
    fn count_by_device(&mut self, device: &Tally, counted: Counted) {
        let name = match counted {
            Counted::Requests => "completed_requests",
            Counted::Arrivals => "received_messages",
            Counted::Members(..) => return,
        };
        self.rate = per_second(device, name);
        self.all.completed = device.counted.get(name).copied().unwrap_or(0);
    }

    fn add(&mut self, tally: &Tally) {
        self.rate += tally.per_second().unwrap_or(0.0);
        self.all.completed += tally.completed;
        self.all.elapsed += tally.elapsed;
        if let Some(waits) = &tally.waits {
            self.all.waits.get_or_insert_default().merge(waits);
        }
    }
}

/// CPUs that members used.
#[derive(Clone, Copy, Default)]
struct Cpus {
    used: f64,
    members: u32,
}

impl Cpus {
    fn add(&mut self, tally: &Tally) {
        self.used += tally.cpu_share();
        self.members += 1;
    }

    /// Of each member, in percent.
    fn percent(self) -> f64 {
        self.used * 100.0 / f64::from(self.members.max(1))
    }
}

pub(super) fn figure(experiment: &Experiment, measured: &Measured) -> Result<f64, Refusal> {
    if measured.all.completed == 0 {
        return Err(failed("nothing completed in the measured time"));
    }
    let size = experiment.parameters.operation.size;
    let cpus = match experiment.parameters.measured_at {
        Some(Side::Responder) => measured.serving,
        _ => measured.posting,
    };
    match experiment.metric {
        Metric::OpsPerS => Ok(measured.rate),
        Metric::NsPerOp => Ok(1e9 / measured.rate),
        Metric::Gbps => {
            let size = size.ok_or_else(|| cannot("gbps without size_bytes"))?;
            Ok(measured.rate * size.get() as f64 * 8.0 / 1e9)
        }
        Metric::RoundTripNs => {
            let wait = measured.all.mean_wait().map(Span::as_ns_f64);
            wait.ok_or_else(|| no_metric(experiment))
        }
        Metric::CpuNsPerOp => Ok(cpus.used * 1e9 / measured.rate),
        Metric::CpuPercent => Ok(cpus.percent()),
        Metric::PcieReadsPerS => Ok(measured.pcie_reads),
        _ => Err(no_metric(experiment)),
    }
}
