//! The CPU load of the responder while the program runs.

use adverb_patterns::WORKER_THINK;
use adverb_units::Bytes;
use adverb_validate::{Experiment, LoadNode, LoadOp, LoadTarget, Program, Refusal};
use adverb_verbs::{Access, CpuLoad, LoadWork, NodeChoice, Probability};

use super::cannot;

/// Array of each thread of an independent load: larger than the caches (schema.md).
const ARRAY: Bytes = Bytes::mib(64);

/// Returns the threads of the row's load on the responder, if it has any.
pub(super) fn threads(experiment: &Experiment) -> Result<Vec<CpuLoad>, Refusal> {
    let load = &experiment.parameters.load;
    let Some(threads) = load.threads.filter(|threads| *threads > 0) else {
        return Ok(Vec::new());
    };
    Ok(vec![CpuLoad {
        threads,
        node: match load.node {
            Some(LoadNode::NicLocal) | None => NodeChoice::Nic,
            Some(LoadNode::NicRemote) => NodeChoice::Other,
            Some(LoadNode::Agnostic) => NodeChoice::Any,
        },
        work: match load.target {
            // A computation accesses no memory, even if the row names a target.
            _ if load.op == Some(LoadOp::Compute) => LoadWork::Compute,
            Some(LoadTarget::SameBuffer) => LoadWork::Buffer {
                bytes: buffer(experiment),
                access: access(experiment)?,
                think: WORKER_THINK,
            },
            _ => LoadWork::Independent {
                bytes: ARRAY,
                writes: writes(experiment).unwrap_or(Probability::ZERO),
                memory: NodeChoice::Any,
            },
        },
    }])
}

/// The size of the RDMA buffer: the slots of all queue pairs (schema.md).
fn buffer(experiment: &Experiment) -> Bytes {
    let p = &experiment.parameters;
    let slots = p.queueing.qps.unwrap_or(1).max(1);
    Bytes::new(distance(experiment) * u64::from(slots))
}

/// The distance of the slots of successive queue pairs, in bytes.
pub(super) fn distance(experiment: &Experiment) -> u64 {
    let p = &experiment.parameters;
    let size = p.operation.size.map_or(0, Bytes::get);
    if p.placement.shared_cache_line == Some(true) {
        size
    } else {
        size.next_multiple_of(64)
    }
}

fn access(experiment: &Experiment) -> Result<Access, Refusal> {
    let load = &experiment.parameters.load;
    match load.op {
        Some(LoadOp::Read) => Ok(Access::Mixed {
            writes: Probability::ZERO,
        }),
        Some(LoadOp::Cas) => Ok(Access::CompareSwap),
        Some(LoadOp::Rw) => {
            let writes = writes(experiment);
            let writes = writes.ok_or_else(|| cannot("a load of rw without load_write_ratio"))?;
            Ok(Access::Mixed { writes })
        }
        Some(LoadOp::Compute) | None => Err(cannot("a load on a buffer without load_op")),
    }
}

fn writes(experiment: &Experiment) -> Option<Probability> {
    let share = experiment.parameters.load.write_ratio;
    Probability::new(share?.get())
}

pub(super) fn takes_load(program: Program) -> bool {
    matches!(
        program,
        Program::NumaServerLoad
            | Program::NumaOpenLoop
            | Program::NumaClosedLoop
            | Program::ClosedLoop
    )
}
