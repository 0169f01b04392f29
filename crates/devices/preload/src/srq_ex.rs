//! `ibv_create_srq_ex` and `ibv_get_srq_num`.

use std::ffi::c_int;

use adverb_abi::{self as abi, ibv_context, ibv_srq, ibv_srq_init_attr, ibv_srq_init_attr_ex};
use adverb_verbs::SharedReceiveQueue as _;

use crate::call::{self, Refusal};
use crate::srq::Srq;

/// `ibv_create_srq_ex` of the table: basic and XRC queues.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    call::pointer("ibv_create_srq_ex", || {
        // SAFETY: the program passes attributes.
        let found = unsafe { *attr };
        let (mask, pd) = (found.comp_mask, found.pd);
        let srq_type = match mask & abi::IBV_SRQ_INIT_ATTR_TYPE {
            0 => abi::IBV_SRQT_BASIC,
            _ => found.srq_type,
        };
        let xrc = match srq_type {
            abi::IBV_SRQT_BASIC => None,
            abi::IBV_SRQT_XRC => {
                let needed = abi::IBV_SRQ_INIT_ATTR_XRCD | abi::IBV_SRQ_INIT_ATTR_CQ;
                if mask & needed != needed || found.xrcd.is_null() || found.cq.is_null() {
                    return Err(Refusal::invalid(
                        "XRC queues need an XRC domain and a completion queue, and their bits in comp_mask",
                    ));
                }
                Some((found.xrcd, found.cq))
            }
            other => {
                return Err(Refusal::unsupported(format!(
                    "the device has no shared receive queues of type {other}: only basic (0) and XRC (1)"
                )));
            }
        };
        if mask & abi::IBV_SRQ_INIT_ATTR_PD == 0 || pd.is_null() {
            return Err(Refusal::invalid(
                "comp_mask without IBV_SRQ_INIT_ATTR_PD, or pd is NULL",
            ));
        }
        // SAFETY: both structures begin with the same members; the objects are the program's.
        unsafe { Srq::create(pd, &mut *attr.cast::<ibv_srq_init_attr>(), xrc) }
    })
}

/// `ibv_get_srq_num` of the table.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    call::status("ibv_get_srq_num", || {
        // SAFETY: the program passes a shared receive queue that it has created, and room for the number.
        unsafe {
            let srq = &Srq::of(srq).soft;
            number.write(srq.srqn().map_or(srq.id().0, |srqn| srqn.0));
        }
        Ok(())
    })
}
