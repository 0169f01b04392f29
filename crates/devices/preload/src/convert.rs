//! Conversions between C's attributes and completions and ours.

use adverb_abi::{
    IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_LOCAL_INV, IBV_WC_RDMA_READ,
    IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SEND, ibv_wc,
};
use adverb_verbs::{PathMtu, Qpn, WcFlags, WcOpcode, WcStatus, WorkCompletion};

use crate::call::Refusal;

/// Low bits of the service level in completions of datagrams: the IP version of the packet, as mlx5 reports it. The
/// service level itself is 0, because it is a part of VLAN tags only.
const SL_IPV4: u8 = 2;

/// Returns the code of a path MTU (`enum ibv_mtu`).
pub(crate) const fn mtu_code(mtu: PathMtu) -> u32 {
    mtu as u32 + 1
}

/// Checks that a `comp_mask` has only bits of `known`.
pub(crate) fn check_mask(mask: u32, known: u32) -> Result<(), Refusal> {
    match mask & !known {
        0 => Ok(()),
        unknown => Err(Refusal::invalid(format!(
            "unknown bits {unknown:#x} of comp_mask"
        ))),
    }
}

/// Returns the code of an opcode (`enum ibv_wc_opcode`).
const fn opcode(opcode: WcOpcode) -> u32 {
    match opcode {
        WcOpcode::RdmaWrite => IBV_WC_RDMA_WRITE,
        WcOpcode::RdmaRead => IBV_WC_RDMA_READ,
        WcOpcode::CompareSwap => IBV_WC_COMP_SWAP,
        WcOpcode::FetchAdd => IBV_WC_FETCH_ADD,
        WcOpcode::Recv => IBV_WC_RECV,
        WcOpcode::RecvRdmaWithImm => IBV_WC_RECV_RDMA_WITH_IMM,
        WcOpcode::BindWindow => IBV_WC_BIND_MW,
        WcOpcode::LocalInvalidate => IBV_WC_LOCAL_INV,
        _ => IBV_WC_SEND,
    }
}

/// Converts a completion.
#[inline]
pub(crate) fn completion(from: &WorkCompletion) -> ibv_wc {
    let status = match from.status {
        WcStatus::Success => 0,
        other => other.code(),
    };
    let sl = if from.flags.contains(WcFlags::GRH) {
        SL_IPV4
    } else {
        0
    };
    let imm_data = match (from.imm, from.invalidated) {
        (Some(imm), _) => imm.0.to_be(),
        (None, Some(rkey)) => rkey.0,
        (None, None) => 0,
    };
    ibv_wc {
        wr_id: from.wr_id.0,
        status,
        opcode: opcode(from.opcode),
        vendor_err: 0,
        byte_len: from.byte_len,
        imm_data,
        qp_num: from.qp_num.get(),
        src_qp: from.src_qp.map_or(0, Qpn::get),
        wc_flags: from.flags.bits(),
        pkey_index: 0,
        slid: 0,
        sl,
        dlid_path_bits: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtus_have_the_codes_of_the_header() {
        let codes = PathMtu::ALL.map(mtu_code);
        assert_eq!(codes, [1, 2, 3, 4, 5]);
        assert_eq!(mtu_code(PathMtu::B4096), adverb_abi::IBV_MTU_4096);
    }
}
