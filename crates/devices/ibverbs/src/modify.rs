//! Modify QP: converts attributes to `ibv_qp_attr` and explains refusals.

use adverb_abi as abi;
use adverb_verbs::rules::AttrLimits;
use adverb_verbs::transition::check_transition;
use adverb_verbs::{
    AckTimeout, LinkLayer, ModifyQpError, PathMtu, Psn, QpAttr, QpState, Qpn, RetryCount, RnrTimer,
};

use crate::address::{Source, marking_of};
use crate::explain::modify_remedy;
use crate::raw_qp::RawQp;

/// Modifies the queue pair (`ibv_modify_qp`).
pub(crate) fn modify(qp: &RawQp, attr: &QpAttr) -> Result<(), ModifyQpError> {
    let handle = qp.handle();
    if handle.layer == LinkLayer::Iwarp && attr.dest_qpn.is_some() {
        let from = qp.state();
        return Err(ModifyQpError::Refused {
            from,
            to: attr.state.unwrap_or(from),
            reason: "iWARP devices connect through librdmacm, not by hand".into(),
            remedy: "; connect it (`QueuePair::connect`), or use another device".into(),
        });
    }
    if let Some(address) = &attr.address {
        address.check_marking(handle.layer, marking_of(handle.layer))?;
    }
    let mut raw = to_c(attr, Source::of(handle));
    // SAFETY: the queue pair is not destroyed yet, and the structure is exclusive.
    let result = crate::raw::check(unsafe {
        let modify = handle.library().ibv_modify_qp;
        modify(qp.ptr.as_ptr(), &raw mut raw, attr.mask().bits() as i32)
    });
    match result {
        Ok(()) => {
            attr.state
                .iter()
                .for_each(|state| qp.set_modified_to(*state));
            Ok(())
        }
        Err(error) => Err(explain(qp, attr, &error)),
    }
}

/// Calls `ibv_modify_qp` with attributes and mask from the connection manager.
pub(crate) fn modify_raw(
    qp: &RawQp,
    attr: &mut abi::ibv_qp_attr,
    mask: u32,
) -> Result<(), ModifyQpError> {
    let handle = qp.handle();
    // SAFETY: the queue pair is not destroyed yet, and the structure is exclusive.
    let result = crate::raw::check(unsafe {
        let modify = handle.library().ibv_modify_qp;
        modify(qp.ptr.as_ptr(), attr, mask as i32)
    });
    let from = qp.state();
    let state = QpState::from_code(attr.qp_state).filter(|_| mask & abi::IBV_QP_STATE != 0);
    let to = state.unwrap_or(from);
    result.map_err(|error| ModifyQpError::Refused {
        from,
        to,
        reason: error.to_string(),
        remedy: modify_remedy(error.raw_os_error().unwrap_or(0), to, handle.layer).into(),
    })?;
    qp.set_modified_to(to);
    Ok(())
}

/// Converts to `ibv_qp_attr`. Absent attributes are 0; the mask leaves them out.
fn to_c(attr: &QpAttr, source: Source) -> abi::ibv_qp_attr {
    let mut raw = abi::ibv_qp_attr::zeroed();
    raw.qp_state = attr.state.map_or(0, |state| state as u32);
    raw.cur_qp_state = attr.cur_state.map_or(0, |state| state as u32);
    raw.path_mtu = attr.path_mtu.map_or(0, mtu_code);
    raw.qkey = attr.qkey.unwrap_or(0);
    raw.rq_psn = attr.rq_psn.map_or(0, Psn::get);
    raw.sq_psn = attr.sq_psn.map_or(0, Psn::get);
    raw.dest_qp_num = attr.dest_qpn.map_or(0, Qpn::get);
    raw.qp_access_flags = attr.access.map_or(0, |access| access.bits());
    raw.pkey_index = attr.pkey_index.unwrap_or(0);
    raw.max_rd_atomic = attr.max_rd_atomic.unwrap_or(0);
    raw.max_dest_rd_atomic = attr.max_dest_rd_atomic.unwrap_or(0);
    raw.min_rnr_timer = attr.min_rnr_timer.map_or(0, RnrTimer::code);
    raw.port_num = attr.port.map_or(0, |port| port.0);
    raw.timeout = attr.timeout.map_or(0, AckTimeout::code);
    raw.retry_cnt = attr.retry_cnt.map_or(0, RetryCount::get);
    raw.rnr_retry = attr.rnr_retry.map_or(0, RetryCount::get);
    if let Some(address) = &attr.address {
        raw.ah_attr = source.ah_attr(address);
    }
    raw
}

pub(crate) fn mtu_code(mtu: PathMtu) -> u32 {
    match mtu {
        PathMtu::B256 => abi::IBV_MTU_256,
        PathMtu::B512 => abi::IBV_MTU_512,
        PathMtu::B1024 => abi::IBV_MTU_1024,
        PathMtu::B2048 => abi::IBV_MTU_2048,
        PathMtu::B4096 => abi::IBV_MTU_4096,
    }
}

/// Explains a refusal: by the table of state transitions and the device's limits if one of them forbids
/// the change, otherwise by the driver's errno.
fn explain(qp: &RawQp, attr: &QpAttr, error: &std::io::Error) -> ModifyQpError {
    let from = qp.state();
    if let Err(refusal) = check_transition(qp.qp_type, from, attr) {
        return refusal;
    }
    let handle = qp.handle();
    let limits = AttrLimits {
        ports: handle.attr.ports,
        max_rd_atomic: handle.attr.max_qp_init_rd_atom.clamp(0, 255) as u8,
        max_dest_rd_atomic: handle.caps.max_qp_rd_atom,
    };
    if let Err(refusal) = limits.check(attr) {
        return refusal;
    }
    let to = attr.state.unwrap_or(from);
    let errno = error.raw_os_error().unwrap_or(0);
    ModifyQpError::Refused {
        from,
        to,
        reason: error.to_string(),
        remedy: modify_remedy(errno, to, handle.layer).into(),
    }
}

#[cfg(test)]
mod tests {
    use adverb_verbs::{AccessFlags, AddressVector, Gid, Lid, PortNum, QpAttrMask};

    use super::*;

    const SOURCE: Source = Source {
        layer: LinkLayer::Ethernet,
        gid: Gid([0; 16]),
        gid_index: 3,
    };

    #[test]
    fn present_attributes_make_the_mask_and_the_members() {
        let access = AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE;
        let attr = QpAttr::to_init(PortNum(2), access);
        let c = to_c(&attr, SOURCE);
        assert_eq!((c.qp_state, c.port_num), (abi::IBV_QPS_INIT, 2));
        assert_eq!(c.qp_access_flags, 3);
        let bits = abi::IBV_QP_STATE
            | abi::IBV_QP_PKEY_INDEX
            | abi::IBV_QP_PORT
            | abi::IBV_QP_ACCESS_FLAGS;
        assert_eq!(attr.mask().bits(), bits);
    }

    #[test]
    fn packets_are_sent_from_the_chosen_gid() {
        let address = AddressVector::new(Gid([7; 16]), Lid(0), PortNum(1));
        let qpn = Qpn::new(0x12_3456).expect("24 bits");
        let c = to_c(
            &QpAttr::to_rtr(address, qpn, Psn::new(9), PathMtu::B2048),
            SOURCE,
        );
        assert_eq!((c.dest_qp_num, c.rq_psn, c.path_mtu), (0x12_3456, 9, 4));
        assert_eq!((c.ah_attr.grh.sgid_index, c.ah_attr.is_global), (3, 1));
        let c = to_c(&QpAttr::to_rts(Psn::new(5)), SOURCE);
        assert_eq!(
            (c.sq_psn, c.timeout, c.retry_cnt, c.rnr_retry),
            (5, 14, 7, 7)
        );
        assert_eq!(RetryCount::MAX.get(), c.retry_cnt);
    }

    #[test]
    fn masks_have_the_bits_of_c() {
        assert_eq!(QpAttrMask::DEST_QPN.bits(), abi::IBV_QP_DEST_QPN);
        assert_eq!(QpAttrMask::AV.bits(), abi::IBV_QP_AV);
        assert_eq!(QpState::Err as u32, abi::IBV_QPS_ERR);
    }
}
