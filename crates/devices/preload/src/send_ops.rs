//! What an extended queue pair has in addition: the operations that `ibv_wr_*` may post (`send_ops_flags`), and a batch.

use adverb_abi::{self as abi, ibv_qp_init_attr_ex};
use spin::Yield;
use spin::mutex::SpinMutex;

use crate::batch::Batch;
use crate::call::Refusal;

const SENDS: u64 = abi::IBV_QP_EX_WITH_SEND | abi::IBV_QP_EX_WITH_SEND_WITH_IMM;
const WRITES: u64 = abi::IBV_QP_EX_WITH_RDMA_WRITE | abi::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
const READS: u64 = abi::IBV_QP_EX_WITH_RDMA_READ
    | abi::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | abi::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
const LOCAL: u64 = abi::IBV_QP_EX_WITH_LOCAL_INV | abi::IBV_QP_EX_WITH_BIND_MW;

/// Returns the names of operations in errors.
pub(crate) fn names(operations: u64) -> String {
    const NAMES: [&str; 13] = [
        "RDMA_WRITE",
        "RDMA_WRITE_WITH_IMM",
        "SEND",
        "SEND_WITH_IMM",
        "RDMA_READ",
        "ATOMIC_CMP_AND_SWP",
        "ATOMIC_FETCH_AND_ADD",
        "LOCAL_INV",
        "BIND_MW",
        "SEND_WITH_INV",
        "TSO",
        "FLUSH",
        "ATOMIC_WRITE",
    ];
    let bits = (0..u64::BITS).filter(|bit| operations & 1 << bit != 0);
    let name = |bit: u32| match NAMES.get(bit as usize) {
        Some(name) => format!("IBV_QP_EX_WITH_{name}"),
        None => format!("bit {bit}"),
    };
    bits.map(name).collect::<Vec<_>>().join(", ")
}

/// What an extended queue pair has in addition.
#[derive(Debug)]
pub(crate) struct Extended {
    /// `send_ops_flags`.
    pub(crate) operations: u64,
    /// Locked from `ibv_wr_start` on.
    pub(crate) batch: SpinMutex<Batch, Yield>,
}

impl Extended {
    /// Checks which operations a queue pair of type `qp_type` is to have.
    fn new(qp_type: u32, operations: u64) -> Result<Self, Refusal> {
        let known = match qp_type {
            abi::IBV_QPT_UD => SENDS,
            abi::IBV_QPT_UC => SENDS | WRITES | LOCAL,
            abi::IBV_QPT_XRC_RECV => 0,
            _ => SENDS | WRITES | READS | LOCAL | abi::IBV_QP_EX_WITH_SEND_WITH_INV,
        };
        let unknown = operations & !known;
        if unknown != 0 {
            let unknown = names(unknown);
            let reason = format!("such a queue pair does not support {unknown} in send_ops_flags");
            return Err(Refusal::unsupported(reason));
        }
        let batch = SpinMutex::new(Batch::default());
        Ok(Extended { operations, batch })
    }
}

/// Returns the operations that `attr` asks for; `None` if the queue pair is not to have `ibv_wr_*`.
pub(crate) fn extension(attr: &ibv_qp_init_attr_ex) -> Result<Option<Extended>, Refusal> {
    let is_target = attr.qp_type == abi::IBV_QPT_XRC_RECV;
    let has_pd = attr.comp_mask & abi::IBV_QP_INIT_ATTR_PD != 0 && !attr.pd.is_null();
    if !has_pd && !is_target {
        return Err(Refusal::invalid(
            "comp_mask without IBV_QP_INIT_ATTR_PD, or pd is NULL",
        ));
    }
    let has = |bit: u32| attr.comp_mask & bit != 0;
    let refused = [
        (
            has(abi::IBV_QP_INIT_ATTR_XRCD) && !is_target,
            "XRC domains of queue pairs other than XRC receive ones",
        ),
        (has(abi::IBV_QP_INIT_ATTR_IND_TABLE), "work queues"),
        (has(abi::IBV_QP_INIT_ATTR_RX_HASH), "hashing of packets"),
        (
            has(abi::IBV_QP_INIT_ATTR_MAX_TSO_HEADER) && attr.max_tso_header > 0,
            "segmentation offload",
        ),
        (
            has(abi::IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags > 0,
            "create_flags",
        ),
    ];
    if let Some((_, feature)) = refused.into_iter().find(|(asked, _)| *asked) {
        return Err(Refusal::unsupported(format!("the device has no {feature}")));
    }
    let unknown = attr.comp_mask & !(2 * abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS - 1);
    if unknown != 0 {
        return Err(Refusal::unsupported(format!(
            "unknown bits {unknown:#x} of comp_mask"
        )));
    }
    let is_extended = has(abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    is_extended
        .then(|| Extended::new(attr.qp_type, attr.send_ops_flags))
        .transpose()
}
