//! `adverb closed-loop`: single requests to members that do nothing.

use adverb_launch::{DeviceInfo, Usage};
use adverb_patterns::{
    Job, Limits, Load, Outbound, Part, Pattern, Places, Posting, Request, Tally, Timing, Transport,
};
use adverb_units::Bytes;
use serde_json::json;

use super::check::{AS_OUTSTANDING, check_counts, check_memory, posting};
use super::result::{Checked, Figures, Waiting, together};
use super::start::{machines, members, run, schedule};
use super::words::{with_common, word, words};
use super::{RD_ATOMIC, duration};
use crate::VERSION;
use crate::args::{ClosedLoopArgs, ClosedLoopOp};

/// Memory of a member of a closed loop.
const MEMORY: u64 = 2 << 20;
/// Payload of a request of a closed loop, where none is named.
const DEFAULT_SIZE: Bytes = Bytes::new(64);
/// What an atomic operation works on.
const ATOMIC_SIZE: Bytes = Bytes::new(8);

/// `adverb closed-loop`.
pub(crate) fn closed_loop(args: &ClosedLoopArgs) -> anyhow::Result<()> {
    let clients = &args.clients;
    let payload = payload(args)?;
    check_inline(args, payload)?;
    check_counts(clients, args.posting)?;
    let posting = posting(args.posting, clients.outstanding, AS_OUTSTANDING)?;
    let pattern = pattern(args, payload, posting)?;
    let job = Job::Pattern(pattern.clone(), schedule(clients));
    let tallies = members(run(clients, &job)?);
    let members = pattern.members.iter().zip(&tallies);
    let requesters = members.filter(|(member, _)| matches!(member.part, Part::Request(_)));
    let posts: Vec<&Tally> = requesters.map(|(_, tally)| tally).collect();
    figures(args, payload, posting, &posts).print(clients.format)
}

/// Who posts what to whom.
fn pattern(args: &ClosedLoopArgs, payload: Bytes, posting: Posting) -> anyhow::Result<Pattern> {
    let clients = &args.clients;
    let request = match args.op {
        ClosedLoopOp::Write => Request::Write,
        ClosedLoopOp::Read => Request::Read,
        ClosedLoopOp::FetchAdd => Request::FetchAdd,
        ClosedLoopOp::Cas => Request::CompareSwap,
    };
    let size = u32::try_from(payload.get()).unwrap_or(u32::MAX);
    let places = u64::from(clients.clients) * u64::from(args.posting.qps);
    let distance = u64::from(size).max(8).next_multiple_of(64);
    // Each client has room for all places, and so have the members that serve them.
    let members = u64::from(clients.clients) + u64::from(machines(clients));
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
        ..Load::new(request, size)
    };
    let shape = Outbound {
        cores: clients.clients,
        qps: args.posting.qps,
        peers: machines(clients),
        memory: MEMORY.max(distance * places),
    };
    Ok(Pattern::outbound(Transport::Rc, &load, shape))
}

/// What those who posted saw.
fn figures(args: &ClosedLoopArgs, payload: Bytes, posting: Posting, posts: &[&Tally]) -> Figures {
    let clients = &args.clients;
    let params = json!({
        "op": word(&args.op), "size_bytes": payload, "inline": args.inline,
    });
    Figures {
        program: "closed-loop",
        device: clients.device.choice().reference(),
        adverb: VERSION,
        title: format!(
            "{} of {payload}, {}",
            word(&args.op),
            words(posting, args.posting.qps, clients)
        ),
        params: with_common(params, posting, args.posting.qps, clients),
        requests: posts.iter().map(|tally| tally.completed).sum(),
        elapsed_ns: duration(clients).as_ns_f64(),
        requests_per_s: together(posts.iter().filter_map(|tally| tally.per_second())),
        batch_mean: None,
        waiting_ns: Waiting::of(posts.iter().filter_map(|tally| tally.waits.as_ref())),
        checked: Checked::default(),
    }
}

/// What a request of a closed loop moves.
fn payload(args: &ClosedLoopArgs) -> Result<Bytes, Usage> {
    let is_atomic = matches!(args.op, ClosedLoopOp::FetchAdd | ClosedLoopOp::Cas);
    match args.size {
        None if is_atomic => Ok(ATOMIC_SIZE),
        None => Ok(DEFAULT_SIZE),
        Some(size) if is_atomic && size != ATOMIC_SIZE => Err(Usage(format!(
            "--size {}: {} is an operation on {ATOMIC_SIZE}; leave it out",
            size.get(),
            word(&args.op)
        ))),
        Some(size) => Ok(size),
    }
}

/// Refuses inline where there is no payload, or where the device does not take so much.
fn check_inline(args: &ClosedLoopArgs, payload: Bytes) -> anyhow::Result<()> {
    if !args.inline {
        return Ok(());
    }
    if args.op != ClosedLoopOp::Write {
        let op = word(&args.op);
        let reason = format!("--inline is for --op write: {op} carries no payload");
        return Err(Usage(reason).into());
    }
    let caps = DeviceInfo::query(&args.clients.device.choice())?.caps;
    let most = Bytes::new(caps.max_inline_data.into());
    if payload > most {
        return Err(Usage(format!(
            "{payload} inline: this device takes at most {most}; choose a smaller size or no inline"
        ))
        .into());
    }
    Ok(())
}
