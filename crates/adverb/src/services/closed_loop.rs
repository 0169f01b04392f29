//! `adverb closed-loop`: one-sided requests to passive members.

use adverb_launch::Usage;
use adverb_measure::JobCell;
use adverb_patterns::Job;
use adverb_units::Bytes;
use adverb_workload::pair::ATOMIC_SIZE;
use adverb_workload::pattern::{
    Limits, Load, Outbound, Pattern, Places, Posting, Timing, Transport,
};
use serde_json::json;

use super::check::{AS_OUTSTANDING, check_counts, check_memory, posting};
use super::start::{RD_ATOMIC, measure, schedule};
use super::words::{with_common, words};
use crate::args::ClosedLoopArgs;
use crate::request::DEFAULT_SIZE;

/// Memory of a member of a closed loop.
const MEMORY: u64 = 2 << 20;

/// `adverb closed-loop`.
pub(crate) fn closed_loop(points: &[ClosedLoopArgs]) -> anyhow::Result<()> {
    measure(points.iter().map(cell), &points[0].clients)
}

fn cell(args: &ClosedLoopArgs) -> anyhow::Result<JobCell> {
    let (clients, qps) = (&args.clients, args.posting.qps);
    let payload = payload(args)?;
    check_inline(args)?;
    check_counts(clients, args.posting)?;
    let posting = posting(args.posting, clients.outstanding, AS_OUTSTANDING)?;
    let job = Job::Pattern(pattern(args, payload, posting)?, schedule(clients));
    let params = json!({
        "op": args.op, "size_bytes": payload, "inline": args.inline,
    });
    let params = with_common(params, posting, qps, clients);
    let title = format!("{} of {payload}, {}", args.op, words(posting, qps, clients));
    Ok(JobCell::new("closed-loop", &params, title, job))
}

/// Returns the pattern: the members, and the requests that each posts to its peers.
fn pattern(args: &ClosedLoopArgs, payload: Bytes, posting: Posting) -> anyhow::Result<Pattern> {
    let clients = &args.clients;
    let size = u32::try_from(payload.get()).unwrap_or(u32::MAX);
    let places = u64::from(clients.clients) * u64::from(args.posting.qps);
    let distance = u64::from(size).max(8).next_multiple_of(64);
    // Each client and each target has room for all places.
    let members = u64::from(clients.clients) + u64::from(clients.machines());
    check_memory("these payloads", &[distance, places, members])?;
    let load = Load {
        inline: args.inline,
        posting,
        limits: Limits {
            per_qp: clients.outstanding,
            per_member: u32::MAX,
            rd_atomic: RD_ATOMIC,
        },
        places: Places::Own(distance),
        timing: Timing::Each,
        ..Load::new(args.op, size)
    };
    let shape = Outbound {
        cores: clients.clients,
        qps: args.posting.qps,
        peers: clients.machines(),
        memory: MEMORY.max(distance * places),
    };
    let pattern = Pattern::outbound(Transport::Rc, &load, shape);
    Ok(Pattern {
        path: clients.on.path.options()?,
        ..pattern
    })
}

/// Returns the payload of a request.
fn payload(args: &ClosedLoopArgs) -> Result<Bytes, Usage> {
    let is_atomic = args.op.is_atomic();
    match args.size {
        None if is_atomic => Ok(ATOMIC_SIZE),
        None => Ok(DEFAULT_SIZE),
        Some(size) if is_atomic && size != ATOMIC_SIZE => Err(Usage(format!(
            "--size {}: {} is an operation on {ATOMIC_SIZE}; leave it out",
            size.get(),
            args.op
        ))),
        Some(size) => Ok(size),
    }
}

/// Refuses --inline for operations without a payload.
fn check_inline(args: &ClosedLoopArgs) -> Result<(), Usage> {
    if args.inline && args.op.is_fetch() {
        let reason = format!("--inline is for --op write: {} carries no payload", args.op);
        return Err(Usage(reason));
    }
    Ok(())
}
