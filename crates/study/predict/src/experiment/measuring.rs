//! Runs a pattern on modelled machines, and calculates a row's figure from its members' tallies.

use adverb_hwmodel::Cluster;
use adverb_hwmodel::params::NicParams;
use adverb_patterns::{Job, JobReport, Member, Part, Pattern, Seen, Tally, Wait};
use adverb_units::Span;
use adverb_validate::{Budget, Completion, Experiment, Metric, Program, Refusal, Side};

use super::hosts::{placements, preset};
use super::run::{run, schedule};
use super::{cannot, failed, load, no_metric};

/// Measured time of a program, after a warm-up of half that time.
pub(super) const WINDOW: Span = Span::from_ms(1);
/// Smallest number of completions, unless a batch has more. With fewer, the window is lengthened.
const ENOUGH: u64 = 64;
const LONGEST_WINDOW: Span = Span::from_ms(500);
/// Measured time of programs whose requests take milliseconds, including queueing.
pub(super) const LONG_WINDOW: Span = Span::from_ms(20);
/// Time of posting a request on a slow host.
const POST: Span = Span::from_ns(200);

pub(super) fn posts(part: &Part) -> bool {
    matches!(part, Part::Request(_))
}

/// The sum of what the counted members did.
#[derive(Default)]
struct Measured {
    /// Operations per second.
    rate: f64,
    all: Tally,
    /// CPU use of members that post, and of all others.
    posting: Cpus,
    serving: Cpus,
    /// Lines per second that the measured machine's NIC read over PCIe.
    pcie_reads: f64,
    /// Whether the machine was in steady state.
    is_steady: bool,
}

/// What is counted.
///
/// Members with unsignaled requests would count in batches: for them the device counts.
#[derive(Clone, Copy)]
pub(super) enum Counted {
    /// Requests that the first machine's NIC has completed.
    Requests,
    /// Requests that have arrived at the first machine.
    Arrivals,
    /// Completions seen by members with this part, among the first members.
    Members(fn(&Part) -> bool, usize),
}

/// Runs `pattern` for at least `window`; returns the figure of the row's metric.
pub(super) fn measure(
    experiment: &Experiment,
    pattern: &Pattern,
    counted: Counted,
    window: Span,
    budget: &Budget,
) -> Result<f64, Refusal> {
    let enough = unsignaled_in_flight(pattern).max(ENOUGH);
    let filling = filling(pattern, &preset(experiment)?.params.nic);
    let mut window = window.max(filling * 2).min(LONGEST_WINDOW);
    // Some loads never become steady, such as those that alternate between two states.
    let steady_by = window * 16;
    loop {
        let measured = measure_for(experiment, pattern, counted, window, budget)?;
        let has_enough = measured.all.completed >= enough;
        if has_enough && (measured.is_steady || window >= steady_by) || window >= LONGEST_WINDOW {
            return figure(experiment, &measured);
        }
        window = window * if has_enough { 2 } else { 8 };
    }
}

/// The time that members need to fill their queues, and the NICs to send what is in them: until then requests complete
/// faster, or from emptier queues, than in steady state, so the warm-up must last as long.
fn filling(pattern: &Pattern, nic: &NicParams) -> Span {
    let machines = pattern.machines() as usize;
    let (mut most, mut of_machine) = (0, vec![0; machines]);
    for member in &pattern.members {
        let posted = member.outstanding();
        most = most.max(posted);
        of_machine[member.machine as usize] += posted;
    }
    let slowest = nic.send_mops.min(nic.read_request_mops);
    let drain = of_machine
        .iter()
        .max()
        .map_or(0.0, |posted| *posted as f64 * 1e3 / slowest);
    POST * most + Span::from_ns(drain as u64)
}

/// The number of requests in flight of measured members with unsignaled requests. The rate is not steady
/// before all of them have completed.
fn unsignaled_in_flight(pattern: &Pattern) -> u64 {
    let members = pattern.members.iter();
    let measured = members.filter(|member| is_measured(pattern, member));
    let each = measured.map(|member| match &member.part {
        Part::Request(load) if load.signaled_every > 1 => member.outstanding(),
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
    if is_one_process(experiment.program) {
        cluster.share_contexts();
        if experiment.program != Program::NumaClosedLoop {
            cluster.poll_apart();
        }
    }
    let mut pattern = Pattern {
        wait: match experiment.parameters.posting.completion {
            Some(Completion::Event) => Wait::Event,
            _ => Wait::Poll,
        },
        ..pattern.clone().under_load(&load::threads(experiment)?)
    };
    let counter = pattern.add(0, Part::Count, 64);
    let job = Job::Pattern(pattern.clone(), schedule(window));
    let reports = run(&mut cluster, &job, budget)?.into_iter();
    let tallies = reports.filter_map(|report| match report {
        JobReport::Member(tally) => Some(tally),
        _ => None,
    });
    let tallies: Vec<Tally> = tallies.collect();
    let device = &tallies[counter.0 as usize];
    let mut measured = Measured::of(&pattern, &tallies, counted);
    if completes_in_batches(&pattern) {
        measured.count_by_device(device, counted);
    }
    measured.pcie_reads = per_second(device, "pcie_read_lines");
    measured.is_steady = device.is_steady();
    Ok(measured)
}

/// Whether the clients of a machine are threads of one process (schema.md).
fn is_one_process(program: Program) -> bool {
    matches!(
        program,
        Program::NumaClosedLoop | Program::NumaOpenLoop | Program::NumaServerLoad
    )
}

/// Whether a member is counted. If every member posts, the machines are equal, and only the first machine's
/// members count.
fn is_measured(pattern: &Pattern, member: &Member) -> bool {
    let is_symmetric = pattern
        .members
        .iter()
        .all(|member| posts(&member.part) || member.part == Part::Count);
    !is_symmetric || member.machine == 0
}

/// Whether completions are seen in batches, because only some requests are signaled.
fn completes_in_batches(pattern: &Pattern) -> bool {
    pattern.members.iter().any(|member| match &member.part {
        Part::Request(load) => load.signaled_every > 1 && load.seen == Seen::Completion,
        _ => false,
    })
}

/// The rate of a device's counter during the measured time.
fn per_second(device: &Tally, name: &str) -> f64 {
    let count = device.counted.get(name).copied().unwrap_or(0);
    count as f64 / device.elapsed.as_secs_f64()
}

impl Measured {
    /// Sums the tallies of the members.
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

    /// Replaces the rate by the rate that the first machine's device counters show.
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

    /// Mean CPU use per member, in percent.
    fn percent(self) -> f64 {
        self.used * 100.0 / f64::from(self.members.max(1))
    }
}

fn figure(experiment: &Experiment, measured: &Measured) -> Result<f64, Refusal> {
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

#[cfg(test)]
mod tests {
    use adverb_hwmodel::Preset;
    use adverb_patterns::{Limits, Load, Opcode, Outbound};

    use super::*;
    use adverb_verbs::QpType;

    /// It was 200 ns for each post of a thread, however many threads share the NIC.
    #[test]
    fn the_warm_up_lasts_until_the_nic_has_sent_what_all_threads_queued() {
        let nic = Preset::built_in("cx3").expect("a preset").params.nic;
        let of = |cores| {
            let load = Load {
                limits: Limits {
                    per_qp: 100,
                    per_member: u32::MAX,
                    rd_atomic: 16,
                },
                ..Load::new(Opcode::Write, 8)
            };
            let shape = Outbound {
                cores,
                qps: 10,
                peers: 1,
                memory: 1 << 16,
            };
            filling(&Pattern::outbound(QpType::Rc, &load, shape), &nic).as_ns_f64()
        };
        // 1,000 posts of 200 ns each at a time, and 1,000 requests of each thread at 21 M/s.
        for cores in [1, 8] {
            let drain = f64::from(cores) * 1_000.0 * 1e3 / 21.0;
            let found = of(cores);
            assert!(
                (found - 200_000.0 - drain).abs() < 2.0,
                "{cores}: {found} ns"
            );
        }
    }
}
