//! Conversions between C's attributes and completions and ours.

use adverb_abi::{
    IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_LOCAL_INV, IBV_WC_RDMA_READ,
    IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SEND, ibv_ah_attr, ibv_wc,
};
use adverb_verbs::{
    AddressVector, Gid, Lid, PathMtu, PortNum, Qpn, TrafficClass, WcFlags, WcOpcode, WcStatus,
    WorkCompletion,
};

use crate::call::Refusal;
use crate::context::Context;
use crate::device::checked_settings;
use crate::port::gid_at_lid;

/// Low bits of the service level in completions of datagrams: the IP version of the packet, as mlx5 reports it. The
/// service level itself is 0, because it is a part of VLAN tags only.
const SL_IPV4: u8 = 2;

/// Returns the code of a path MTU (`enum ibv_mtu`).
pub(crate) const fn mtu_code(mtu: PathMtu) -> u32 {
    mtu as u32 + 1
}

/// Converts the address of a peer. The service level and the static rate have no effect: the first is the priority in
/// VLAN tags, and the processor sends at its own rate.
pub(crate) fn address_vector(
    context: &Context,
    attr: &ibv_ah_attr,
) -> Result<AddressVector, Refusal> {
    let port = PortNum(attr.port_num);
    let sgid_index = match attr.is_global {
        0 => 0,
        _ => attr.grh.sgid_index,
    };
    let own = context.gid(attr.port_num.into(), sgid_index.into())?;
    let (dgid, traffic_class) = if attr.is_global == 0 {
        let dgid = gid_at_lid(own, attr.dlid).ok_or_else(|| {
            Refusal::invalid(
                "without is_global a LID is needed, other than 0, which only IPv4 ports have",
            )
        })?;
        (dgid, 0)
    } else {
        // SAFETY: all bytes are a GID.
        (Gid(unsafe { attr.grh.dgid.raw }), attr.grh.traffic_class)
    };
    let address = AddressVector::new(dgid, Lid(0), port);
    // To its own address a port copies messages, as hardware does, instead of sending packets with a class.
    let is_copied = dgid == own && checked_settings()?.faults.is_none();
    Ok(AddressVector {
        traffic_class: TrafficClass(if is_copied { 0 } else { traffic_class }),
        ..address
    })
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
