//! `ibv_create_srq_ex` and `ibv_get_srq_num`.

use std::ffi::c_int;

use adverb_abi::{self as abi, ibv_context, ibv_srq, ibv_srq_init_attr, ibv_srq_init_attr_ex};
use adverb_verbs::SharedReceiveQueue as _;

use crate::call::{self, Refusal};
use crate::srq::Srq;

/// `ibv_create_srq_ex` of the table. Only basic queues are supported.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    call::pointer("ibv_create_srq_ex", || {
        // SAFETY: the program passes attributes.
        let (mask, srq_type, pd) = unsafe { ((*attr).comp_mask, (*attr).srq_type, (*attr).pd) };
        if mask & abi::IBV_SRQ_INIT_ATTR_TYPE != 0 && srq_type != abi::IBV_SRQT_BASIC {
            let reason = format!(
                "the device has no shared receive queues of type {srq_type}: only basic ones (0)"
            );
            return Err(Refusal::unsupported(reason));
        }
        if mask & abi::IBV_SRQ_INIT_ATTR_PD == 0 || pd.is_null() {
            return Err(Refusal::invalid(
                "comp_mask without IBV_SRQ_INIT_ATTR_PD, or pd is NULL",
            ));
        }
        // SAFETY: both structures begin with the same members; the domain is the program's.
        unsafe { Srq::create(pd, &mut *attr.cast::<ibv_srq_init_attr>()) }
    })
}

/// `ibv_get_srq_num` of the table.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    call::status("ibv_get_srq_num", || {
        // SAFETY: the program passes a shared receive queue that it has created, and room for the number.
        unsafe { number.write(Srq::of(srq).soft.id().0) };
        Ok(())
    })
}
