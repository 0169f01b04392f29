//! `adverb overlap`, `fetch`, `interference` and `rendezvous`: programs of the study of RDMA in a WAN.

use adverb_launch::{DeviceChoice, Usage};
use adverb_measure::JobCell;
use adverb_patterns::rendezvous::Protocol;
use adverb_patterns::{By, Job, Task, Wan};
use adverb_report::format;
use adverb_results::{Completion, Record, Word};
use adverb_units::{Bytes, Span};
use anyhow::Result;

use super::result::{Column, Rows};
use super::start::{Setting, measure_as};
use super::words::counted;
use crate::args::{FetchArgs, InterferenceArgs, OverlapArgs, RendezvousArgs, TargetArgs};
use crate::table;

/// The longest computation: a peer waits twice as long for its end.
const MOST_COMPUTE: Span = Span::from_secs(5);
/// The most memory that a computation reads in a millisecond.
const MOST_READ: Bytes = Bytes::mib(64);
/// The smallest messages that clients stream over sockets of a model.
const LEAST_STREAMED: Bytes = Bytes::kib(1);

/// `adverb overlap`.
pub(crate) fn overlap(points: &[OverlapArgs]) -> Result<()> {
    let cell = |args: &OverlapArgs| {
        let by = way("--by", args.by, (By::Write, By::Tcp), &args.on)?;
        check_time("--compute", args.compute)?;
        let compute = args.compute;
        let title = format!(
            "{} exchanges of {} by {}, computation of {compute}",
            args.iters,
            args.size,
            name(by, args.wait.completion)
        );
        let task = Task::Overlap { by, compute };
        let waits = (args.wait.completion, &args.on);
        cell_of(task, (args.size, args.iters), waits, title)
    };
    run(points.iter().map(cell), &points[0].on, &OVERLAP)
}

/// `adverb fetch`.
pub(crate) fn fetch(points: &[FetchArgs]) -> Result<()> {
    let cell = |args: &FetchArgs| {
        let by = way("--by", args.by, (By::Read, By::Tcp), &args.on)?;
        check_time("--response-delay", args.response_delay)?;
        let response_delay = args.response_delay;
        let title = format!(
            "{} fetches of {} by {}, response delay of {response_delay}",
            args.iters,
            args.size,
            name(by, args.wait.completion)
        );
        let task = Task::Fetch { by, response_delay };
        let waits = (args.wait.completion, &args.on);
        cell_of(task, (args.size, args.iters), waits, title)
    };
    run(points.iter().map(cell), &points[0].on, &FETCH)
}

/// `adverb interference`.
pub(crate) fn interference(points: &[InterferenceArgs]) -> Result<()> {
    let cell = |args: &InterferenceArgs| {
        let by = way("--by", args.by, (By::Write, By::Tcp), &args.on)?;
        check_time("--compute", args.compute)?;
        if args.compute == Span::ZERO {
            return Err(Usage("--compute 0: expected more than 0".to_owned()));
        }
        if args.read_memory > MOST_READ {
            let given = args.read_memory;
            return Err(Usage(format!(
                "--read-memory {given}: expected at most {MOST_READ} in each millisecond"
            )));
        }
        let is_model = matches!(args.on.device.choice(), DeviceChoice::Model(_));
        if is_model && by == By::Tcp && args.size < LEAST_STREAMED {
            return Err(Usage(format!(
                "--size {} with --by tcp: the model's TCP does not merge small writes, so that the server would only handle interrupts; use {LEAST_STREAMED} or more",
                args.size
            )));
        }
        let machines = args.machines.unwrap_or(match args.on.device.choice() {
            DeviceChoice::Model(_) => args.clients,
            _ => args.on.other_hosts(),
        });
        let task = Task::Interference {
            by,
            compute: args.compute,
            clients: args.clients,
            machines,
            reads: args.read_memory,
        };
        let title = format!(
            "computation of {}, {} with messages of {} by {}",
            args.compute,
            counted(args.clients, "client"),
            args.size,
            name(by, args.wait.completion)
        );
        let waits = (args.wait.completion, &args.on);
        cell_of(task, (args.size, args.iters), waits, title)
    };
    run(points.iter().map(cell), &points[0].on, &INTERFERENCE)
}

/// `adverb rendezvous`.
pub(crate) fn rendezvous(points: &[RendezvousArgs]) -> Result<()> {
    let cell = |args: &RendezvousArgs| {
        let usual = (Protocol::Write, Protocol::Sockets);
        let protocol = way("--protocol", args.protocol, usual, &args.on)?;
        let title = format!(
            "{} rounds with messages of {}, {}",
            args.iters,
            args.size,
            match protocol {
                Protocol::Write => "rendezvous by WRITE",
                Protocol::Read => "rendezvous by READ",
                Protocol::Prearranged => "prearranged buffers",
                Protocol::Eager => "eager copies",
                Protocol::Sockets => "sockets",
            }
        );
        let waits = (Completion::Poll, &args.on);
        let task = Task::Rendezvous { protocol };
        cell_of(task, (args.size, args.iters), waits, title)
    };
    run(points.iter().map(cell), &points[0].on, &RENDEZVOUS)
}

/// Returns the cell of a program whose messages have this size.
fn cell_of(
    task: Task,
    (size, iters): (Bytes, u32),
    (completion, on): (Completion, &TargetArgs),
    title: String,
) -> Result<JobCell, Usage> {
    if size == Bytes::new(0) || size > Wan::MOST_SIZE {
        let most = Wan::MOST_SIZE;
        return Err(Usage(format!("--size {size}: expected 1 B to {most}")));
    }
    let program = Wan {
        task,
        size,
        iters,
        completion,
        path: on.path.options()?,
    };
    let (name, params) = program.parameters();
    Ok(JobCell::new(name, &params, title, Job::Wan(program)))
}

fn check_time(flag: &str, given: Span) -> Result<(), Usage> {
    if given <= MOST_COMPUTE {
        return Ok(());
    }
    Err(Usage(format!(
        "{flag} {given}: expected at most {MOST_COMPUTE}"
    )))
}

/// Returns how messages are sent: as asked for, by `sockets` on a device that has nothing else, or else in the `usual` way.
///
/// # Errors
/// Sockets on a device that has none, or queue pairs on TCP.
fn way<W: Word + PartialEq>(
    flag: &str,
    asked: Option<W>,
    (usual, sockets): (W, W),
    on: &TargetArgs,
) -> Result<W, Usage> {
    let device = on.device.choice();
    let is_tcp = matches!(device, DeviceChoice::Tcp(_));
    let way = asked.unwrap_or(if is_tcp { sockets } else { usual });
    let word = way.word();
    match (way == sockets, &device) {
        (true, DeviceChoice::Tcp(_) | DeviceChoice::Model(_)) => Ok(way),
        (true, _) => Err(Usage(format!(
            "{flag} {word}: {device} is an RDMA device; name --device tcp"
        ))),
        (false, DeviceChoice::Tcp(_)) => Err(Usage(format!(
            "{flag} {word}: {device} has no queue pairs; leave it out"
        ))),
        (false, _) => Ok(way),
    }
}

fn name(by: By, completion: Completion) -> String {
    let by = by.word().to_uppercase();
    match completion {
        Completion::Poll => by,
        other => format!("{by}, completions by {other}"),
    }
}

fn run(
    cells: impl Iterator<Item = Result<JobCell, Usage>>,
    on: &TargetArgs,
    columns: &'static [Column],
) -> Result<()> {
    let setting = Setting::new(on, 1);
    let rows = |title| Rows {
        title,
        columns,
        width: 11,
        remark: checked,
    };
    measure_as(cells, &setting, rows).map(drop)
}

const OVERLAP: [Column; 5] = [
    Column("total", "latency_ns.p50", table::ns),
    Column("p99", "latency_ns.p99", table::ns),
    Column("comm", "communication_ns.p50", table::ns),
    Column("compute", "computation_ns.p50", table::ns),
    Column("ratio", "overlap_ratio", table::two_places),
];

const FETCH: [Column; 4] = [
    Column("mean", "latency_ns.mean", table::ns),
    Column("p50", "latency_ns.p50", table::ns),
    Column("p99", "latency_ns.p99", table::ns),
    Column("max", "latency_ns.max", table::ns),
];

const INTERFERENCE: [Column; 5] = [
    Column("alone", "computation_ns.p50", table::ns),
    Column("loaded", "loaded_computation_ns.p50", table::ns),
    Column("slowdown", "slowdown", table::two_places),
    Column("rate", "messages_per_s", format::rate),
    Column("goodput", "bytes_per_s", format::throughput),
];

const RENDEZVOUS: [Column; 5] = [
    Column("mean", "one_way_ns.mean", table::ns),
    Column("p50", "one_way_ns.p50", table::ns),
    Column("p99", "one_way_ns.p99", table::ns),
    Column("max", "one_way_ns.max", table::ns),
    Column("requests", "requests_per_transfer", table::two_places),
];

/// What the peers have checked.
fn checked(record: &Record) -> Option<String> {
    let bytes = record.metric("checked.bytes");
    let messages = record.metric("checked.messages");
    match (bytes, messages) {
        (Some(bytes), _) => Some(format!("Checked: {bytes} bytes.")),
        (_, Some(messages)) => Some(format!("Checked: every byte of {messages} messages.")),
        _ => None,
    }
}
