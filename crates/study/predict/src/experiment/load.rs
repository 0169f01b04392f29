//! The CPU load of the responder while the program runs.

use adverb_hwmodel::{Access, Cluster, CpuLoad, Node, Work};
use adverb_units::Bytes;
use adverb_validate::{Experiment, LoadNode, LoadOp, LoadTarget, Program, Refusal};

use super::cannot;

/// The responder of the programs that can have a load.
const RESPONDER: u32 = 1;

/// Starts the threads of the row's load on the responder, if it has any.
pub(super) fn start(experiment: &Experiment, cluster: &mut Cluster) -> Result<(), Refusal> {
    let load = &experiment.parameters.load;
    let Some(threads) = load.threads.filter(|threads| *threads > 0) else {
        return Ok(());
    };
    let load = CpuLoad {
        threads,
        node: match load.node {
            Some(LoadNode::NicLocal) | None => Node::Nic,
            Some(LoadNode::NicRemote) => Node::Other,
            Some(LoadNode::Agnostic) => Node::Both,
        },
        work: match load.target {
            // A computation accesses no memory, even if the row names a target.
            Some(LoadTarget::SameBuffer) if load.op != Some(LoadOp::Compute) => Work::Walk {
                bytes: buffer(experiment),
                access: access(experiment)?,
            },
            _ => Work::Own,
        },
    };
    let responder = cluster.machine(RESPONDER);
    cluster.load(responder, &load);
    Ok(())
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
        Some(LoadOp::Read) => Ok(Access::Bytes { writes: 0.0 }),
        Some(LoadOp::Cas) => Ok(Access::CompareSwap),
        Some(LoadOp::Rw) => {
            let writes = load.write_ratio.map(adverb_validate::Share::get);
            let writes = writes.ok_or_else(|| cannot("a load of rw without load_write_ratio"))?;
            Ok(Access::Bytes { writes })
        }
        Some(LoadOp::Compute) | None => Err(cannot("a load on a buffer without load_op")),
    }
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
