//! Modify QP and Query QP: C's attributes and mask, and what was set.

use std::ffi::c_int;

use adverb_abi::{IBV_MIG_MIGRATED, ibv_qp, ibv_qp_attr, ibv_qp_init_attr};
use adverb_verbs::transition::check_mask;
use adverb_verbs::{
    AccessFlags, AckTimeout, ModifyQpError, PathMtu, PortNum, Psn, QpAttr, QpAttrMask as M,
    QpState, Qpn, QueuePair as _, RetryCount, RnrTimer,
};

use super::{Qp, c_caps};
use crate::ah::address_vector;
use crate::call::{self, Refusal};
use crate::context::Context;
use crate::object::lock;

/// Number of partition keys of the port.
const PKEYS: u16 = 1;

impl Qp {
    /// Changes the attributes that `mask` names; returns the new state.
    fn modify(&self, context: &Context, attr: &ibv_qp_attr, mask: u32) -> Result<QpState, Refusal> {
        let mask = M::from_bits(mask).ok_or_else(|| {
            Refusal::invalid(format!("attr_mask {mask:#x} has unknown attributes"))
        })?;
        let state = named(mask, M::STATE, || state(attr.qp_state))?;
        let current = named(mask, M::CUR_STATE, || state_named(attr.cur_qp_state))?;
        // The attributes are kept by one modify at a time, in the order in which they take effect.
        let mut kept = lock(&self.attr);
        check_mask(self.qp_type, self.soft.state(), (state, current), mask)?;
        check_migration(attr, mask)?;
        let mut change = converted(context, attr, mask)?;
        change.state = state;
        change.cur_state = current;
        self.soft.modify(&change)?;
        self.count(&change);
        if state == Some(QpState::Reset) {
            *kept = ibv_qp_attr::zeroed();
        }
        keep(&mut kept, attr, mask);
        Ok(self.soft.state())
    }

    /// Counts a connection, if the program is observed.
    fn count(&self, change: &QpAttr) {
        match (&self.counts, change.state, change.address) {
            (Some(counts), Some(QpState::Rtr), Some(to)) => {
                counts.connected(self.soft.route(to.dgid));
            }
            (Some(counts), Some(QpState::Reset), _) => counts.reset(),
            _ => {}
        }
    }

    /// Returns the attributes that were set, and the present state.
    fn query(&self) -> ibv_qp_attr {
        let state = self.soft.state() as u32;
        ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            path_mig_state: IBV_MIG_MIGRATED,
            sq_draining: self.soft.is_draining().into(),
            cap: c_caps(&self.soft.caps()),
            ..*lock(&self.attr)
        }
    }
}

fn state(code: u32) -> Result<QpState, Refusal> {
    QpState::from_code(code).ok_or_else(|| Refusal::invalid(format!("invalid qp_state {code}")))
}

fn state_named(code: u32) -> Result<QpState, Refusal> {
    QpState::from_code(code).ok_or_else(|| Refusal::invalid(format!("invalid cur_qp_state {code}")))
}

/// Returns the attribute `flag` if `mask` names it.
fn named<T>(
    mask: M,
    flag: M,
    value: impl FnOnce() -> Result<T, Refusal>,
) -> Result<Option<T>, Refusal> {
    mask.contains(flag).then(value).transpose()
}

/// Refuses what the transition table allows and this device does not have.
fn check_migration(attr: &ibv_qp_attr, mask: M) -> Result<(), Refusal> {
    let migrates = mask.contains(M::PATH_MIG_STATE) && attr.path_mig_state != IBV_MIG_MIGRATED;
    if mask.contains(M::ALT_PATH) || migrates {
        return Err(Refusal::unsupported("the device has no path migration"));
    }
    if mask.contains(M::EN_SQD_ASYNC_NOTIFY) && attr.en_sqd_async_notify != 0 {
        return Err(Refusal::unsupported(
            "the device has no event when the send queue is drained",
        ));
    }
    Ok(())
}

fn range(attribute: &'static str, value: impl Into<u64>, max: u64) -> Refusal {
    let value = value.into();
    ModifyQpError::AttributeRange {
        attribute,
        value,
        min: 0,
        max,
    }
    .into()
}

/// Converts the attributes except the states.
fn converted(context: &Context, attr: &ibv_qp_attr, mask: M) -> Result<QpAttr, Refusal> {
    let invalid_mtu = || {
        Refusal::invalid(format!(
            "invalid path_mtu {}: expected 1 (256 B) to 5 (4096 B)",
            attr.path_mtu
        ))
    };
    let mtu = || {
        let index = (attr.path_mtu as usize).checked_sub(1);
        index
            .and_then(|index| PathMtu::ALL.get(index).copied())
            .ok_or_else(invalid_mtu)
    };
    let retries = |attribute, n| RetryCount::new(n).ok_or_else(|| range(attribute, n, 7));
    let pkey = || match attr.pkey_index {
        index if index < PKEYS => Ok(index),
        index => Err(range("pkey_index", index, (PKEYS - 1).into())),
    };
    let mut to = QpAttr::default();
    to.access = named(mask, M::ACCESS_FLAGS, || {
        Ok(AccessFlags::from_bits_truncate(attr.qp_access_flags))
    })?;
    to.pkey_index = named(mask, M::PKEY_INDEX, pkey)?;
    to.port = named(mask, M::PORT, || Ok(PortNum(attr.port_num)))?;
    to.qkey = named(mask, M::QKEY, || Ok(attr.qkey))?;
    to.address = named(mask, M::AV, || address_vector(context, &attr.ah_attr))?;
    to.path_mtu = named(mask, M::PATH_MTU, mtu)?;
    to.timeout = named(mask, M::TIMEOUT, || {
        AckTimeout::new(attr.timeout).ok_or_else(|| range("timeout", attr.timeout, 31))
    })?;
    to.retry_cnt = named(mask, M::RETRY_CNT, || retries("retry_cnt", attr.retry_cnt))?;
    to.rnr_retry = named(mask, M::RNR_RETRY, || retries("rnr_retry", attr.rnr_retry))?;
    to.rq_psn = named(mask, M::RQ_PSN, || Ok(Psn::new(attr.rq_psn)))?;
    to.sq_psn = named(mask, M::SQ_PSN, || Ok(Psn::new(attr.sq_psn)))?;
    to.max_rd_atomic = named(mask, M::MAX_QP_RD_ATOMIC, || Ok(attr.max_rd_atomic))?;
    to.max_dest_rd_atomic = named(mask, M::MAX_DEST_RD_ATOMIC, || Ok(attr.max_dest_rd_atomic))?;
    to.min_rnr_timer = named(mask, M::MIN_RNR_TIMER, || {
        RnrTimer::new(attr.min_rnr_timer)
            .ok_or_else(|| range("min_rnr_timer", attr.min_rnr_timer, 31))
    })?;
    to.dest_qpn = named(mask, M::DEST_QPN, || {
        Qpn::new(attr.dest_qp_num).ok_or_else(|| range("dest_qp_num", attr.dest_qp_num, 0xff_ffff))
    })?;
    Ok(to)
}

/// Stores the attributes that `mask` names.
fn keep(kept: &mut ibv_qp_attr, attr: &ibv_qp_attr, mask: M) {
    macro_rules! keep {
        ($($flag:ident: $($field:ident),*;)*) => {
            $(if mask.contains(M::$flag) {
                $(kept.$field = attr.$field;)*
            })*
        };
    }
    keep! {
        ACCESS_FLAGS: qp_access_flags;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        AV: ah_attr;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        SQ_PSN: sq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        MIN_RNR_TIMER: min_rnr_timer;
        DEST_QPN: dest_qp_num;
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    forward!(qp => ibv_modify_qp(qp, attr, mask));
    call::status("ibv_modify_qp", || {
        // SAFETY: the program passes a queue pair and attributes.
        let state = unsafe { Qp::of(qp).modify(Context::of((*qp).context), &*attr, mask as u32) }?;
        // SAFETY: as above.
        unsafe { (*qp).state = state as u32 };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    forward!(qp => ibv_query_qp(qp, attr, _mask, init));
    call::status("ibv_query_qp", || {
        // SAFETY: the program passes a queue pair, and room for both attributes.
        unsafe {
            let own = Qp::of(qp);
            let found = own.query();
            (*qp).state = found.qp_state;
            attr.write(found);
            init.write(ibv_qp_init_attr {
                qp_context: (*qp).qp_context,
                send_cq: (*qp).send_cq,
                recv_cq: (*qp).recv_cq,
                srq: (*qp).srq,
                cap: found.cap,
                qp_type: (*qp).qp_type,
                sq_sig_all: own.sq_sig_all,
            });
        }
        Ok(())
    })
}
