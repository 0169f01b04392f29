//! Programs of many members: a pattern connects members, and a load determines what they post.

use std::num::NonZero;

use adverb_patterns::{
    Inbound, Landing, Load, Opcode, Outbound, Part, Pattern, Piece, Places, Seen, Symmetric, Timing,
};
use adverb_units::{Bytes, Span};
use adverb_validate::{Budget, Experiment, Refusal};
use adverb_verbs::QpType;

use super::cannot;
use super::load::distance;
use super::measuring::{Counted, LONG_WINDOW, WINDOW, measure};
use super::posting::{MOST_OUTSTANDING, count, load, named, transport};

/// Smallest memory of a member, in bytes.
const MEMORY: u64 = 2 << 20;
/// Size of the global routing header before a datagram's payload.
const GRH: u64 = 40;
/// Largest number of receives that a member keeps posted, and largest memory of their buffers.
const RECEIVES: u32 = 2048;
const RECEIVE_MEMORY: u64 = 64 << 20;
const FEWEST_RECEIVES: u32 = 16;
/// A computation that mostly hits its core's caches.
const PIECE: Piece = Piece {
    busy: Span::from_us(1),
    lines: 8,
};
/// Memory that it computes on: more than fits the caches.
const COMPUTED: u64 = 64 << 20;

/// One machine posts to others, computing for `think` before each post.
pub(super) fn outbound(
    experiment: &Experiment,
    (think, timing): (Span, Timing),
    budget: &Budget,
) -> Result<f64, Refusal> {
    let load = Load {
        think,
        timing,
        ..load(experiment)?
    };
    let pattern = Pattern::outbound(transport(experiment)?, &load, to_peers(experiment));
    measure(experiment, &pattern, Counted::Requests, WINDOW, budget)
}

/// Other machines post to one.
pub(super) fn inbound(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    let load = load(experiment)?;
    let receivers = if load.op.consumes_receive() {
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
    measure(experiment, &pattern, counted, WINDOW, budget)
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
    if !matches!(load.op, Opcode::FetchAdd | Opcode::Cas) {
        return Err(cannot(format!(
            "{}, which is not an atomic operation",
            named(experiment)
        )));
    }
    let shape = Inbound {
        memory: memory(experiment).max(counters.map_or(1, NonZero::get) * 8),
        ..from_peers(experiment, 0)
    };
    let pattern = Pattern::inbound(transport(experiment)?, &load, &shape);
    measure(experiment, &pattern, Counted::Arrivals, LONG_WINDOW, budget)
}

/// A core of one machine computes while others post to that machine, if there are any.
pub(super) fn interference(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    let transport = transport(experiment)?;
    let load = load(experiment)?;
    if load.op.consumes_receive() {
        return Err(cannot(format!(
            "{} to a machine that computes and posts no receives",
            load.op
        )));
    }
    let mut pattern = match experiment.parameters.parties.peers {
        None | Some(0) => Pattern::new(transport),
        Some(_) => Pattern::inbound(transport, &load, &from_peers(experiment, 0)),
    };
    pattern.add(0, Part::Compute(PIECE), COMPUTED);
    let computed = Counted::Members(computes, pattern.members.len());
    measure(experiment, &pattern, computed, LONG_WINDOW, budget)
}

/// Every machine posts to every other one, at random.
pub(super) fn symmetric(experiment: &Experiment, budget: &Budget) -> Result<f64, Refusal> {
    let p = &experiment.parameters;
    let size = p.operation.size.map_or(0, Bytes::get).max(64);
    let memory = MEMORY.max(2 * size);
    let load = load(experiment)?;
    let peers = p.parties.peers.unwrap_or(1).max(1);
    let mut load = Load {
        random_link: true,
        places: Places::Random {
            align: 64,
            within: memory - size.next_multiple_of(64),
        },
        ..load
    };
    if load.op.consumes_receive() && transport(experiment)? == QpType::Rc {
        return Err(cannot(format!(
            "{} over RC: its threads post no receives",
            named(experiment)
        )));
    }
    if load.signaled_every > 1 && matches!(transport(experiment)?, QpType::Rc | QpType::Uc) {
        if load.op == Opcode::Read && load.limits.per_member < u32::MAX {
            // Few requests are signaled: the program polls the data instead.
            load.seen = Seen::Memory;
        } else {
            // It cannot keep a window of unsignaled requests: only its queues limit it.
            load.limits.per_member = u32::MAX;
        }
        if p.queueing.outstanding.is_none() {
            // Before a signaled request it waits for the previous one: 2U - 1 unacknowledged requests.
            load.limits.per_qp =
                (2 * load.signaled_every.min(MOST_OUTSTANDING) - 1).min(MOST_OUTSTANDING);
        }
    }
    let shape = Symmetric {
        machines: peers + 1,
        cores: p.parties.cores.unwrap_or(1),
        qps: count(p.queueing.qps_per_core, 1),
        memory,
    };
    let pattern = Pattern::symmetric(transport(experiment)?, &load, shape);
    measure(experiment, &pattern, Counted::Requests, WINDOW, budget)
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

/// Memory of each member: slots for each queue pair, or a buffer for each receive.
fn memory(experiment: &Experiment) -> u64 {
    let p = &experiment.parameters;
    let size = p.operation.size.map_or(0, Bytes::get);
    let posted = p.parties.cores.unwrap_or(1) * count(p.queueing.qps_per_core, 1);
    let threads = p.parties.peer_threads.unwrap_or(1).max(1);
    let qps = posted.max(p.queueing.qps.unwrap_or(1).next_multiple_of(threads));
    let each = load(experiment).map_or(1, |load| load.places_a_link());
    MEMORY.max(distance(experiment) * u64::from(qps) * each + size)
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

fn receives(part: &Part) -> bool {
    matches!(part, Part::Receive { .. })
}
