//! Programs of many members: who talks to whom is a pattern, what is posted a load.

use std::num::NonZero;

use adverb_hwmodel::Cluster;
use adverb_patterns::{
    Aim, Dc, Inbound, Landing, Limits, Load, Member, Outbound, Part, Pattern, PatternError, Piece,
    Places, Posting, Refill, Request, Schedule, Seen, Symmetric, Tally, Timing, Transport, Wait,
    run,
};
use adverb_sim::Returned;
use adverb_units::{Bytes, Span};
use adverb_validate::{
    self as published, Budget, Completion, DcTarget, Experiment, Metric, PostList, Refusal, Side,
};
use adverb_verbs::{QpType, RoleId};

use super::hosts::{placements, preset};
use super::load;
use super::{cannot, ended_by, failed, no_metric, simulated, unfinished};

/// Memory of each member, or as much as its requests need.
const MEMORY: u64 = 2 << 20;
/// Most requests in flight on a queue pair: many more than a NIC keeps, and few enough that filling the
/// queue is over when the measured time begins.
const MOST_OUTSTANDING: u32 = 1024;
/// Room for the global routing header, before a datagram's payload.
const GRH: u64 = 40;
/// Receives that a member keeps posted, at most, and memory that their buffers take, if they are long.
const RECEIVES: u32 = 2048;
const RECEIVE_MEMORY: u64 = 64 << 20;
const FEWEST_RECEIVES: u32 = 16;
/// How long a program is measured, after half of it again to warm up.
pub(super) const WINDOW: Span = Span::from_ms(1);
/// Where fewer requests complete, or fewer than come in a bunch, the window is longer, up to a longest one.
const ENOUGH: u64 = 64;
const LONGEST_WINDOW: Span = Span::from_ms(500);
/// The same of programs whose requests take milliseconds, or queue up for that long.
const LONG_WINDOW: Span = Span::from_ms(20);
/// What posting one request takes, on slow hosts.
const POST: Span = Span::from_ns(200);
/// A computation that mostly finds its data in its core's caches.
const PIECE: Piece = Piece {
    busy: Span::from_us(1),
    lines: 8,
};
/// What it computes on: more than caches hold.
const COMPUTED: u64 = 64 << 20;

/// One machine posts to others, computing for `think` before each post.
pub(super) fn outbound(
    experiment: &Experiment,
    think: Span,
    budget: &Budget,
) -> Result<f64, Refusal> {
    let load = Load {
        think,
        ..load(experiment)?
    };
    let pattern = Pattern::outbound(transport(experiment)?, &load, to_peers(experiment));
    let measured = measure(experiment, &pattern, Counted::Requests, WINDOW, budget)?;
    figure(experiment, &measured)
}

/// The same, each request timed.
pub(super) fn closed_loop(
    experiment: &Experiment,
    think: Span,
    budget: &Budget,
) -> Result<f64, Refusal> {
    let load = Load {
        think,
        timing: Timing::Each,
        ..load(experiment)?
    };
    let pattern = Pattern::outbound(transport(experiment)?, &load, to_peers(experiment));
    let measured = measure(experiment, &pattern, Counted::Requests, WINDOW, budget)?;
    figure(experiment, &measured)
}

/// Other machines post to one.
pub(super) fn inbound(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    let load = load(experiment)?;
    let receivers = if load.request.needs_receive() {
        experiment.parameters.parties.cores.unwrap_or(1)
    } else {
        0
    };
    let shape = from_peers(experiment, receivers);
    let is_inline = experiment.parameters.operation.inline_recv == Some(true);
    let pattern = Pattern {
        landing: if is_inline {
            Landing::Completion
        } else {
            Landing::Buffer
        },
        ..Pattern::inbound(transport(experiment)?, &load, &shape)
    };
    let counted = if receivers > 0 {
        Counted::Members(receives, pattern.members.len())
    } else {
        Counted::Arrivals
    };
    let measured = measure(experiment, &pattern, counted, WINDOW, budget)?;
    figure(experiment, &measured)
}

/// Other machines post atomics on one machine's words.
pub(super) fn atomics(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    let counters = experiment.parameters.store.counters;
    let load = Load {
        places: Places::Random {
            align: 8,
            within: counters.map_or(1, NonZero::get) * 8,
        },
        ..load(experiment)?
    };
    if !matches!(load.request, Request::FetchAdd | Request::CompareSwap) {
        return Err(cannot(format!("{}, which is none", named(experiment))));
    }
    let shape = Inbound {
        memory: memory(experiment).max(counters.map_or(1, NonZero::get) * 8),
        ..from_peers(experiment, 0)
    };
    let pattern = Pattern::inbound(transport(experiment)?, &load, &shape);
    let measured = measure(experiment, &pattern, Counted::Arrivals, LONG_WINDOW, budget)?;
    figure(experiment, &measured)
}

/// A core of one machine computes while others post to that machine, if there are any.
pub(super) fn interference(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    let transport = transport(experiment)?;
    let load = load(experiment)?;
    if load.request.needs_receive() {
        let request = load.request;
        return Err(cannot(format!(
            "{request:?} to a machine that computes: nobody posts receives"
        )));
    }
    let mut pattern = match experiment.parameters.parties.peers {
        None | Some(0) => Pattern::new(transport),
        Some(_) => Pattern::inbound(transport, &load, &from_peers(experiment, 0)),
    };
    pattern.add(0, Part::Compute(PIECE), COMPUTED);
    let computed = Counted::Members(computes, pattern.members.len());
    let measured = measure(experiment, &pattern, computed, LONG_WINDOW, budget)?;
    figure(experiment, &measured)
}

/// Every machine posts to every other one, at random.
pub(super) fn symmetric(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    let p = &experiment.parameters;
    let size = p.operation.size.map_or(0, Bytes::get).max(64);
    let memory = MEMORY.max(2 * size);
    let mut load = Load {
        random_link: true,
        places: Places::Random {
            align: 64,
            within: memory - size.next_multiple_of(64),
        },
        ..load(experiment)?
    };
    if load.request.needs_receive() && transport(experiment)? == QpType::Rc {
        return Err(cannot(format!(
            "{} over RC: its threads post no receives",
            named(experiment)
        )));
    }
    if load.signaled_every > 1 && matches!(transport(experiment)?, QpType::Rc | QpType::Uc) {
        if load.request == Request::Read && load.limits.per_member < u32::MAX {
            // Most completions do not show: the program looks at the data.
            load.seen = Seen::Memory;
        } else {
            // Nor can it count a window of them: only its queues bound it.
            load.limits.per_member = u32::MAX;
        }
        if p.queueing.outstanding.is_none() {
            // Before it signals again it waits for the signal before: 2U - 1 unacknowledged requests.
            load.limits.per_qp =
                (2 * load.signaled_every.min(MOST_OUTSTANDING) - 1).min(MOST_OUTSTANDING);
        }
    }
    let shape = Symmetric {
        machines: p.parties.peers.unwrap_or(1) + 1,
        cores: p.parties.cores.unwrap_or(1),
        qps: count(p.queueing.qps_per_core, 1),
        memory,
    };
    let pattern = Pattern::symmetric(transport(experiment)?, &load, shape);
    let measured = measure(experiment, &pattern, Counted::Requests, WINDOW, budget)?;
    figure(experiment, &measured)
}

pub(super) fn to_peers(experiment: &Experiment) -> Outbound {
    let p = &experiment.parameters;
    Outbound {
        cores: p.parties.cores.unwrap_or(1),
        qps: count(p.queueing.qps_per_core, 1),
        peers: p.parties.peers.unwrap_or(1),
        memory: memory(experiment),
    }
}

/// Memory of each member: places for each queue pair, or a buffer for each receive.
fn memory(experiment: &Experiment) -> u64 {
    let p = &experiment.parameters;
    let size = p.operation.size.map_or(0, Bytes::get);
    let posted = p.parties.cores.unwrap_or(1) * count(p.queueing.qps_per_core, 1);
    let threads = p.parties.peer_threads.unwrap_or(1).max(1);
    let qps = posted.max(p.queueing.qps.unwrap_or(1).next_multiple_of(threads));
    let each = load(experiment).map_or(1, |load| load.places_a_link());
    MEMORY.max(load::distance(experiment) * u64::from(qps) * each + size)
}

fn from_peers(experiment: &Experiment, receivers: u32) -> Inbound {
    let p = &experiment.parameters;
    let buffer = p.operation.size.map_or(0, Bytes::get) + GRH;
    let fit = u32::try_from(RECEIVE_MEMORY / buffer).unwrap_or(u32::MAX);
    let depth = fit.clamp(FEWEST_RECEIVES, RECEIVES);
    let threads = p.parties.peer_threads.unwrap_or(1);
    Inbound {
        threads,
        peers: p.parties.peers.unwrap_or(1),
        qps: p.queueing.qps.unwrap_or(threads).max(threads),
        window: p.parties.peer_window.map(NonZero::get),
        receivers,
        depth,
        memory: if receivers > 0 {
            memory(experiment).max(u64::from(depth) * buffer)
        } else {
            memory(experiment)
        },
    }
}

fn computes(part: &Part) -> bool {
    matches!(part, Part::Compute(_))
}

pub(super) fn posts(part: &Part) -> bool {
    matches!(part, Part::Request(_))
}

fn receives(part: &Part) -> bool {
    matches!(part, Part::Receive { .. })
}

pub(super) fn count(cell: Option<NonZero<u32>>, default: u32) -> u32 {
    cell.map_or(default, NonZero::get)
}

pub(super) fn transport(experiment: &Experiment) -> Result<Transport, Refusal> {
    use published::Transport as T;
    match experiment.parameters.operation.transport {
        Some(T::Rc) | None => Ok(QpType::Rc),
        Some(T::Uc) => Ok(QpType::Uc),
        Some(T::Ud) => Ok(QpType::Ud),
        Some(T::Dc) => Ok(QpType::Dci),
        Some(other @ T::Sockets) => {
            let program = experiment.program;
            Err(cannot(format!("the model runs no {program} over {other}")))
        }
    }
}

fn request(experiment: &Experiment, size: u32) -> Result<Request, Refusal> {
    use published::Opcode as O;
    let operation = &experiment.parameters.operation;
    match operation.opcode {
        Some(O::Send) if size == 0 || operation.header_only == Some(true) => {
            Ok(Request::SendHeaderOnly)
        }
        Some(O::Send) => Ok(Request::Send),
        Some(O::Write) => Ok(Request::Write),
        Some(O::WriteImm) => Ok(Request::WriteImm),
        Some(O::Read) => Ok(Request::Read),
        Some(O::FetchAdd) => Ok(Request::FetchAdd),
        Some(O::Cas) => Ok(Request::CompareSwap),
        Some(_) => Err(cannot(named(experiment))),
        None => Err(cannot(format!("{} without an opcode", experiment.program))),
    }
}

/// The program and its operation, for refusals.
fn named(experiment: &Experiment) -> String {
    let opcode = experiment.parameters.operation.opcode;
    let opcode = opcode.map_or_else(String::new, |opcode| opcode.to_string());
    format!("{} with {opcode}", experiment.program)
}

/// Whom DC initiators address.
fn aim(target: Option<DcTarget>) -> Aim {
    match target {
        Some(DcTarget::Other) => Aim::Other,
        Some(DcTarget::Random) => Aim::Random,
        Some(DcTarget::Fixed) | None => Aim::Fixed(0),
    }
}

pub(super) fn load(experiment: &Experiment) -> Result<Load, Refusal> {
    let p = &experiment.parameters;
    let size = p.operation.size.map_or(0, Bytes::get);
    let size = u32::try_from(size).map_err(|_| cannot(format!("messages of {size} B")))?;
    let request = request(experiment, size)?;
    Ok(Load {
        // What brings data back carries none.
        inline: p.operation.inline == Some(true) && size > 0 && request.carries_payload(),
        signaled_every: count(p.posting.signaled_every, 1),
        posting: match p.posting.post_list {
            Some(PostList::Of(n)) if n.get() > 1 => Posting::List(n.get()),
            _ => Posting::Single,
        },
        refill: match p.posting.refill {
            Some(published::Refill::Window) => Refill::Window,
            Some(published::Refill::List) => Refill::List,
            Some(published::Refill::Continuous) | None => Refill::Continuous,
        },
        limits: Limits {
            per_qp: count(p.queueing.outstanding, MOST_OUTSTANDING).min(MOST_OUTSTANDING),
            per_member: count(p.queueing.window_per_core, u32::MAX),
            rd_atomic: u8::try_from(count(p.queueing.max_rd_atomic, 16)).unwrap_or(u8::MAX),
        },
        dc: Dc {
            aim: aim(p.queueing.dc_target),
            ..Load::new(Request::Read, 0).dc
        },
        places: Places::Own(load::distance(experiment)),
        ..Load::new(request, size)
    })
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
    /// What members of this part saw done, of the first so many.
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
    let pattern = &pattern;
    load::start(experiment, &mut cluster)?;
    let schedule = Schedule {
        warm_up: window / 2,
        measured: window,
    };
    let tallies: Vec<_> = pattern
        .members
        .iter()
        .zip((0..).map(RoleId))
        .map(|(member, role)| {
            let (machine, pattern) = (cluster.machine(member.machine), pattern.clone());
            let name = role.to_string();
            if matches!(member.part, Part::Serve | Part::Count) {
                return cluster.spawn_sleeper(machine, &name, move |station| {
                    run(station, &pattern, role, schedule)
                });
            }
            cluster.spawn(machine, &name, move |station| {
                run(station, &pattern, role, schedule)
            })
        })
        .collect();
    let outcome = cluster.run(&simulated(budget));
    if !outcome.is_finished() {
        return Err(unfinished(&outcome));
    }
    let ended: Option<Vec<_>> = tallies.iter().map(Returned::take).collect();
    let tallies = all_well(ended.ok_or_else(|| unfinished(&outcome))?)?;
    let device = &tallies[counter.0 as usize];
    let mut measured = Measured::of(pattern, &tallies, counted);
    if shows_in_bunches(pattern) {
        measured.count_by_device(device, counted);
    }
    measured.pcie_reads = per_second(device, "pcie_read_lines");
    Ok(measured)
}

/// The members' tallies, or the first failure that is not only another member's absence.
fn all_well(ended: Vec<Result<Tally, PatternError>>) -> Result<Vec<Tally>, Refusal> {
    let failures = || ended.iter().filter_map(|end| end.as_ref().err());
    let cause = failures().find(|error| !matches!(error, PatternError::OutOfBand(_)));
    match cause.or_else(|| failures().next()) {
        Some(error) => Err(ended_by(error)),
        None => Ok(ended.into_iter().flatten().collect()),
    }
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
        self.all.waited += tally.waited;
        self.all.timed += tally.timed;
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
