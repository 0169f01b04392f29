//! Cells of a study: pings, which are predicted as cells, and blasts over one queue pair, next to which
//! published values are drawn.

use adverb_hwmodel::Cluster;
use adverb_results::{self as results, Completion, Metrics, Opcode, Posting, Signaling, Traffic};
use adverb_units::Bytes;
use adverb_validate::{
    self as published, Budget, Experiment, Metric, PostList, Refill, Refusal, Side, Transport,
};
use adverb_workload::pair::{ACTIVE, CellSpec, Length, MAX_BUFFERS, Request};

use super::hosts::{placements, preset};
use super::run::run_on;
use super::{cannot, failed, no_metric};

/// Rounds of a ping. Few suffice: in the model their times soon become equal.
const ROUNDS: Length = Length::Iters(300);

pub(super) fn ping_cell(experiment: &Experiment) -> Result<CellSpec, Refusal> {
    let op = opcode(experiment)?;
    let signal = match (op, signaled_every(experiment)) {
        (Opcode::WriteRead, 2) => Signaling::WriteUnsignaled,
        (_, 1) => Signaling::All,
        (_, every) => return Err(cannot(format!("ping with one signaled request in {every}"))),
    };
    let request = Request {
        signal,
        length: ROUNDS,
        ..request(experiment, op)
    };
    Ok(CellSpec::ping(request))
}

pub(super) fn ping(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    let metrics = run(experiment, &ping_cell(experiment)?, budget)?;
    match experiment.metric {
        Metric::OneWayNs => one_way(&metrics),
        Metric::RoundTripNs => Ok(2.0 * one_way(&metrics)?),
        Metric::CpuPercent => cpu_percent(experiment, &metrics),
        // A round is two messages.
        Metric::CpuNsPerOp => {
            Ok(cpu_percent(experiment, &metrics)? / 100.0 * 2.0 * one_way(&metrics)?)
        }
        _ => Err(no_metric(experiment)),
    }
}

/// Whether `adverb blast` over one queue pair is equivalent.
pub(super) fn is_one_pair(experiment: &Experiment) -> bool {
    let p = &experiment.parameters;
    let buffers = buffers(experiment);
    let singly = matches!(p.posting.post_list, None | Some(PostList::AllFree))
        || p.posting
            .post_list
            .is_some_and(|list| matches!(list, PostList::Of(n) if n.get() == 1));
    p.operation.transport == Some(Transport::Rc)
        && p.operation.size.is_some_and(|size| size.get() > 0)
        && opcode(experiment).is_ok_and(|op| op != Opcode::WriteRead)
        && p.parties.peers == Some(1)
        && p.parties.cores == Some(1)
        && p.queueing.qps == Some(1)
        && p.queueing.window_per_core.is_none()
        && p.posting.refill != Some(Refill::Window)
        && (1..=MAX_BUFFERS).contains(&buffers)
        && signaled_every(experiment) <= buffers
        && singly
}

/// The cell of a `blast_outbound` over one queue pair.
pub(super) fn blast_cell(experiment: &Experiment) -> Result<CellSpec, Refusal> {
    let posting = &experiment.parameters.posting;
    let all_free = posting.post_list == Some(PostList::AllFree);
    let request = Request {
        buffers: buffers(experiment),
        post: if all_free || posting.refill == Some(Refill::List) {
            Posting::List
        } else {
            Posting::Single
        },
        signal: match signaled_every(experiment) {
            1 => Signaling::All,
            every => Signaling::Every(every),
        },
        ..request(experiment, opcode(experiment)?)
    };
    Ok(CellSpec::blast(request))
}

fn buffers(experiment: &Experiment) -> u32 {
    let outstanding = experiment.parameters.queueing.outstanding;
    outstanding.map_or(1, std::num::NonZero::get)
}

fn signaled_every(experiment: &Experiment) -> u32 {
    let every = experiment.parameters.posting.signaled_every;
    every.map_or(1, std::num::NonZero::get)
}

fn request(experiment: &Experiment, op: Opcode) -> Request {
    let p = &experiment.parameters;
    Request {
        traffic: Traffic {
            transport: match p.operation.transport {
                Some(Transport::Sockets) => results::Transport::Tcp,
                _ => results::Transport::Rc,
            },
            ..Traffic::default()
        },
        inline: p.operation.inline == Some(true) && op != Opcode::Read,
        completion: match p.posting.completion {
            Some(published::Completion::Event) => Completion::Event,
            _ => Completion::Poll,
        },
        ..Request::new(op, p.operation.size.unwrap_or(Bytes::new(1)))
    }
}

fn opcode(experiment: &Experiment) -> Result<Opcode, Refusal> {
    let operation = &experiment.parameters.operation;
    match operation.transport {
        Some(Transport::Rc | Transport::Sockets) | None => {}
        Some(other) => {
            let program = experiment.program;
            return Err(cannot(format!("the model runs no {program} over {other}")));
        }
    }
    match operation.opcode {
        Some(published::Opcode::Send) => Ok(Opcode::Send),
        Some(published::Opcode::Write) => Ok(Opcode::Write),
        Some(published::Opcode::WriteImm) => Ok(Opcode::WriteImm),
        Some(published::Opcode::Read) => Ok(Opcode::Read),
        Some(published::Opcode::WriteThenRead) => Ok(Opcode::WriteRead),
        Some(other) => Err(cannot(format!("{} with {other}", experiment.program))),
        None => Err(cannot(format!("{} without an opcode", experiment.program))),
    }
}

/// Runs a ping. The measured machine is number 0, whichever side it is.
fn run(experiment: &Experiment, spec: &CellSpec, budget: &Budget) -> Result<Metrics, Refusal> {
    let mut cluster = Cluster::new(&preset(experiment)?, &placements(experiment, 2));
    let requester = u32::from(experiment.parameters.measured_at == Some(Side::Responder));
    let machines = [cluster.machine(requester), cluster.machine(1 - requester)];
    let mut results = run_on(&mut cluster, &machines, spec, budget)?;
    let result = results.swap_remove(ACTIVE.0 as usize);
    let result = result.ok_or_else(|| failed("the requester measured nothing"))?;
    Ok(result.metrics)
}

fn one_way(metrics: &Metrics) -> Result<f64, Refusal> {
    let mean = metrics.one_way_ns.mean;
    mean.ok_or_else(|| failed("the program measured no time"))
}

fn cpu_percent(experiment: &Experiment, metrics: &Metrics) -> Result<f64, Refusal> {
    let share = match experiment.parameters.measured_at {
        Some(Side::Responder) => metrics.cpu.passive,
        _ => metrics.cpu.active,
    };
    let percent = share
        .percent
        .ok_or_else(|| failed("the program measured no CPU time"))?;
    // Reading the clock before and after a run is CPU time outside the run. A side is one thread.
    Ok(percent.min(100.0))
}
