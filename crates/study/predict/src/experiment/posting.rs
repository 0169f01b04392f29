//! The requests that a row's members post, and their transport.

use std::num::NonZero;

use adverb_patterns::{Aim, Dc, Limits, Load, Opcode, Places, Posting, Refill, Transport};
use adverb_units::Bytes;
use adverb_validate::{self as published, DcTarget, Experiment, PostList, Refusal};
use adverb_verbs::QpType;

use super::cannot;
use super::load::distance;

/// Largest number of requests in flight on a queue pair: many more than a NIC processes concurrently, but few
/// enough to fill the queue during the warm-up.
pub(super) const MOST_OUTSTANDING: u32 = 1024;

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

fn opcode(experiment: &Experiment, size: u32) -> Result<Opcode, Refusal> {
    use published::Opcode as O;
    let operation = &experiment.parameters.operation;
    match operation.opcode {
        Some(O::Send) if size == 0 => Ok(Opcode::SendImm),
        Some(O::Send) => Ok(Opcode::Send),
        Some(O::Write) => Ok(Opcode::Write),
        Some(O::WriteImm) => Ok(Opcode::WriteImm),
        Some(O::Read) => Ok(Opcode::Read),
        Some(O::FetchAdd) => Ok(Opcode::FetchAdd),
        Some(O::Cas) => Ok(Opcode::Cas),
        Some(_) => Err(cannot(named(experiment))),
        None => Err(cannot(format!("{} without an opcode", experiment.program))),
    }
}

/// The program and its operation, for refusals.
pub(super) fn named(experiment: &Experiment) -> String {
    let opcode = experiment.parameters.operation.opcode;
    let opcode = opcode.map_or_else(String::new, |opcode| opcode.to_string());
    format!("{} with {opcode}", experiment.program)
}

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
    let size = match (p.operation.opcode, p.operation.header_only) {
        (Some(published::Opcode::Send), Some(true)) => 0,
        _ => size,
    };
    let op = opcode(experiment, size)?;
    Ok(Load {
        // Requests that fetch data carry none.
        inline: p.operation.inline == Some(true) && size > 0 && !op.is_fetch(),
        signaled_every: count(p.posting.signaled_every, 1),
        posting: match p.posting.post_list {
            Some(PostList::Of(n)) if n.get() > 1 => Posting::List(n.get()),
            _ => Posting::Single,
        },
        refill: match (p.posting.refill, p.posting.post_list) {
            (Some(published::Refill::Window), _) => Refill::Window,
            (Some(published::Refill::List), _) | (_, Some(PostList::AllFree)) => Refill::List,
            (Some(published::Refill::Continuous) | None, _) => Refill::Continuous,
        },
        limits: Limits {
            per_qp: count(p.queueing.outstanding, MOST_OUTSTANDING).min(MOST_OUTSTANDING),
            per_member: count(p.queueing.window_per_core, u32::MAX),
            rd_atomic: u8::try_from(count(p.queueing.max_rd_atomic, 16)).unwrap_or(u8::MAX),
        },
        dc: Dc {
            aim: aim(p.queueing.dc_target),
            ..Load::new(Opcode::Read, 0).dc
        },
        places: Places::Own(distance(experiment)),
        ..Load::new(op, size)
    })
}
