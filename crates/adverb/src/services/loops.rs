//! `adverb closed-loop` and `open-loop`: one-sided requests to passive members.

use adverb_launch::{DeviceChoice, Usage};
use adverb_measure::JobCell;
use adverb_patterns::{
    Job, LoopKind, LoopNodes, OneSidedLoop, ServerLoad, SlotLayout, independent,
};
use adverb_units::{Bytes, Span};
use adverb_verbs::{CpuLoad, LoadWork, NodeChoice, Probability};
use adverb_workload::HardwareChanges;
use adverb_workload::pattern::{Limits, Load};

use super::check::{AS_OUTSTANDING, check_counts, check_memory, posting};
use super::start::{measure, schedule};
use super::words::{counted, words_of_one_sided};
use crate::args::{LoadArgs, LoopArgs, OnOff, WorkerMix};
use crate::request::payload;

/// Largest number of requests that an open loop posts before the first one has to complete.
const MOST_QUEUED: u32 = 4096;
/// Array of each thread of an independent load, unless chosen.
const ARRAY: Bytes = Bytes::mib(64);
/// Share of writes, unless chosen.
const HALF: Probability = Probability::per_million(500_000);

/// `adverb closed-loop` and `open-loop`.
pub(crate) fn loops<'a>(
    kind: LoopKind,
    points: impl Iterator<Item = &'a LoopArgs> + Clone,
) -> anyhow::Result<()> {
    let first = points.clone().next().expect("a command has a point");
    measure(points.map(|args| cell(kind, args)), &first.clients)
}

fn cell(kind: LoopKind, args: &LoopArgs) -> Result<JobCell, Usage> {
    let clients = &args.clients;
    check_inline(args)?;
    check_counts(clients, args.posting)?;
    check_hardware(args)?;
    let program = program(kind, args)?;
    let (name, params) = program.parameters();
    let described = words_of_one_sided(program.load.posting, args.posting.qps(), clients);
    let size = Bytes::new(program.load.size.into());
    let inbound = if args.inbound { ", inbound" } else { "" };
    let load = of_load(&program);
    let title = format!("{} of {size}{inbound}, {described}{load}", args.op);
    let job = Job::Pattern(program.pattern(), schedule(clients));
    Ok(JobCell::new(name, &params, title, job))
}

/// Describes the load of the servers' machines.
fn of_load(program: &OneSidedLoop) -> String {
    let load = program.server_load;
    let mut words = String::new();
    if load.workers > 0 {
        words += &format!(", {} on its words", counted(load.workers, "worker"));
    }
    words + &of_independent(load.independent)
}

/// Describes an independent load.
pub(super) fn of_independent(load: Option<CpuLoad>) -> String {
    match load {
        Some(CpuLoad {
            threads,
            work: LoadWork::Independent { bytes, .. },
            ..
        }) => format!(", load of {} on {bytes}", counted(threads, "thread")),
        _ => String::new(),
    }
}

/// Returns the program of these arguments.
fn program(kind: LoopKind, args: &LoopArgs) -> Result<OneSidedLoop, Usage> {
    let (clients, qps) = (&args.clients, args.posting.qps());
    let size = u32::try_from(payload_of(args)?.get()).unwrap_or(u32::MAX);
    let load = Load {
        inline: args.inline,
        posting: posting(args.posting, clients.outstanding, AS_OUTSTANDING)?,
        limits: Limits::of_each_qp(clients.outstanding, args.rd_atomic),
        think: args.think,
        ..Load::new(args.op, size)
    };
    if kind == LoopKind::Open && clients.outstanding > MOST_QUEUED {
        let given = clients.outstanding;
        return Err(Usage(format!(
            "--outstanding {given}: choose 1 to {MOST_QUEUED}"
        )));
    }
    let numa = &args.numa;
    let server = numa.numa_server.unwrap_or_default();
    let memory = numa.numa_memory.unwrap_or(server);
    let machines = match args.inbound {
        true => clients.machines_of_clients(&clients.on.device),
        false => clients.machines(),
    };
    let program = OneSidedLoop {
        clients: clients.clients,
        qps,
        machines,
        inbound: args.inbound,
        slots: args.slots,
        nodes: LoopNodes {
            client: numa.numa_client.unwrap_or_default(),
            server,
            memory,
            workers: node_of(
                args.workers > 0 || args.flush,
                args.numa_workers,
                memory,
                "--numa-workers",
            )?,
        },
        server_load: server_load(args)?,
        hardware: HardwareChanges {
            without_ddio: args.ddio == Some(OnOff::Off),
            link_mtu: args.link_mtu,
            ..HardwareChanges::default()
        },
        path: clients.on.path.options()?,
        ..OneSidedLoop::new(kind, load)
    };
    let slots = u64::from(clients.clients) * u64::from(qps);
    // Each client and each target has room for all slots.
    let members = u64::from(clients.clients) + u64::from(machines);
    check_memory("these payloads", &[program.distance(), slots, members])?;
    Ok(program)
}

/// Returns the node of threads, if there are any.
fn node_of(
    is_there: bool,
    chosen: Option<NodeChoice>,
    default: NodeChoice,
    flag: &str,
) -> Result<NodeChoice, Usage> {
    match (is_there, chosen) {
        (true, chosen) => Ok(chosen.unwrap_or(default)),
        (false, None) => Ok(NodeChoice::Any),
        (false, Some(node)) => {
            let count = flag.replace("numa-", "");
            Err(Usage(format!(
                "{flag} {node}: there are no such threads; add {count} N, or leave it out"
            )))
        }
    }
}

fn server_load(args: &LoopArgs) -> Result<ServerLoad, Usage> {
    if args.workers == 0 && args.worker_mix.is_some() {
        return Err(without("--worker-mix", "--workers"));
    }
    if args.workers == 0 && args.worker_think > Span::ZERO {
        return Err(without("--worker-think", "--workers"));
    }
    Ok(ServerLoad {
        workers: args.workers,
        worker_writes: args.worker_mix.map_or(HALF, WorkerMix::writes),
        worker_think: args.worker_think,
        independent: independent_load(&args.load)?,
        flushes: args.flush,
    })
}

/// Returns the threads that access arrays of their own; `None` without `--load`.
pub(super) fn independent_load(args: &LoadArgs) -> Result<Option<CpuLoad>, Usage> {
    let is_there = args.load > 0;
    for (given, flag) in [
        (args.load_size.is_some(), "--load-size"),
        (args.load_writes.is_some(), "--load-writes"),
        (args.numa_load_memory.is_some(), "--numa-load-memory"),
    ] {
        if given && !is_there {
            return Err(without(flag, "--load"));
        }
    }
    let node = node_of(is_there, args.numa_load, NodeChoice::Any, "--numa-load")?;
    let array = (
        args.load_size.unwrap_or(ARRAY),
        args.load_writes.unwrap_or(HALF),
    );
    let memory = args.numa_load_memory.unwrap_or_default();
    Ok(independent(args.load, array, (node, memory)))
}

/// Returns the refusal of an option without the threads that it is for.
fn without(flag: &str, of: &str) -> Usage {
    Usage(format!("{flag} is for {of} N; add it, or leave it out"))
}

/// Returns the payload of a request.
fn payload_of(args: &LoopArgs) -> Result<Bytes, Usage> {
    let size = payload(args.op, args.size)?;
    if args.slots == SlotLayout::Packed && size.get() % 8 != 0 {
        return Err(Usage(format!(
            "--size {}: packed slots have whole words of 8 B",
            size.get()
        )));
    }
    Ok(size)
}

/// Refuses --inline for operations without a payload.
fn check_inline(args: &LoopArgs) -> Result<(), Usage> {
    if args.inline && args.op.is_fetch() {
        let reason = format!("--inline is for --op write: {} carries no payload", args.op);
        return Err(Usage(reason));
    }
    Ok(())
}

/// Refuses to change real hardware.
fn check_hardware(args: &LoopArgs) -> Result<(), Usage> {
    let device = args.clients.on.device.choice();
    let given = [
        (args.ddio.is_some(), "--ddio"),
        (args.link_mtu.is_some(), "--link-mtu"),
    ];
    match (given.into_iter().find(|(given, _)| *given), &device) {
        (None, _) | (_, DeviceChoice::Model(_)) => Ok(()),
        (Some((_, flag)), _) => Err(Usage(format!(
            "{flag}: {device} is not a model, and Adverb changes no real hardware; leave it out, or name a model with --device model:PRESET"
        ))),
    }
}
