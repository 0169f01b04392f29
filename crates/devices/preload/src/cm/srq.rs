//! Shared receive queues of ids.

use std::ffi::c_int;

use adverb_abi::{
    IBV_QPT_XRC_RECV, ibv_context, ibv_pd, ibv_srq, ibv_srq_init_attr, ibv_srq_init_attr_ex,
    rdma_cm_id, verbs_context,
};

use super::cq::{create_cqs, destroy_cqs, failed};
use super::id::Shared;
use super::{verbs, xrc};
use crate::call::{self, Refusal};

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    call::number("rdma_create_srq", || {
        // SAFETY: the program passes an id, NULL or a protection domain, and attributes.
        unsafe {
            let shared = Shared::of(id)?;
            shared.agent()?;
            if !(*id).srq.is_null() {
                return Err(Refusal::invalid("the id has a shared receive queue"));
            }
            let domain = if pd.is_null() { (*id).pd } else { pd };
            if (*id).qp_type == IBV_QPT_XRC_RECV {
                let attr = attr.as_mut();
                let attr = attr.ok_or_else(|| Refusal::invalid("the attributes are NULL"))?;
                create_xrc_srq(id, domain, attr)?;
                return Ok(0);
            }
            let srq = verbs::ibv_create_srq(domain, attr);
            if srq.is_null() {
                return Err(failed("a shared receive queue"));
            }
            (*id).pd = domain;
            (*id).srq = srq;
        }
        Ok(0)
    })
}

/// Creates the XRC shared receive queue of an id, in the XRC domain of the library.
///
/// # Safety
/// `id` is alive and bound to a device, and `pd` is a protection domain.
unsafe fn create_xrc_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: &mut ibv_srq_init_attr,
) -> Result<(), Refusal> {
    let mut extended = ibv_srq_init_attr_ex {
        srq_context: attr.srq_context,
        attr: attr.attr,
        comp_mask: adverb_abi::IBV_SRQ_INIT_ATTR_TYPE | adverb_abi::IBV_SRQ_INIT_ATTR_PD,
        srq_type: adverb_abi::IBV_SRQT_XRC,
        pd,
        ..ibv_srq_init_attr_ex::zeroed()
    };
    // SAFETY: the caller's.
    unsafe { create_srq_ex(id, &mut extended) }?;
    attr.attr = extended.attr;
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    call::number("rdma_create_srq_ex", || {
        // SAFETY: the program passes an id and attributes.
        unsafe {
            let attr = attr.as_mut();
            let attr = attr.ok_or_else(|| Refusal::invalid("the attributes are NULL"))?;
            create_srq_ex(id, attr)?;
        }
        Ok(0)
    })
}

/// Creates the shared receive queue of an id. The program may leave out the protection domain and, of an XRC queue, the
/// XRC domain and the completion queue.
///
/// # Safety
/// `id` is from this library, and the objects in `attr` exist.
unsafe fn create_srq_ex(
    id: *mut rdma_cm_id,
    attr: &mut ibv_srq_init_attr_ex,
) -> Result<(), Refusal> {
    use adverb_abi::{
        IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_INIT_ATTR_XRCD,
        IBV_SRQT_XRC,
    };
    type Create = unsafe extern "C" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq;
    // SAFETY: the caller's.
    unsafe {
        let context = Shared::of(id)?.agent()?.context();
        if !(*id).srq.is_null() {
            return Err(Refusal::invalid("the id has a shared receive queue"));
        }
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || attr.pd.is_null() {
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
            attr.pd = (*id).pd;
        }
        let has_type = attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE != 0;
        let is_xrc = has_type && attr.srq_type == IBV_SRQT_XRC;
        if is_xrc && attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD == 0 {
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD;
            attr.xrcd = xrc::domain(context)?;
        }
        let needs_cq = is_xrc && attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ == 0;
        if needs_cq {
            create_cqs(id, (None, Some(attr.attr.max_wr)))?;
            attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ;
            attr.cq = (*id).recv_cq;
        }
        let place = std::mem::offset_of!(verbs_context, create_srq_ex);
        let operation = verbs_context::op::<Create>(context, place);
        let operation = operation.ok_or_else(|| Refusal::unsupported("ibv_create_srq_ex"))?;
        let srq = operation(context, attr);
        if srq.is_null() {
            let refusal = failed("a shared receive queue");
            if needs_cq {
                destroy_cqs(id);
            }
            return Err(refusal);
        }
        if is_xrc {
            (*id).recv_cq = attr.cq;
        }
        (*id).pd = attr.pd;
        (*id).srq = srq;
    }
    Ok(())
}

/// Destroys the shared receive queue of an id, if it has one.
///
/// # Safety
/// `id` is alive.
pub(super) unsafe fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: the caller's.
    unsafe {
        let srq: *mut ibv_srq = (*id).srq;
        if !srq.is_null() {
            verbs::ibv_destroy_srq(srq);
            (*id).srq = std::ptr::null_mut();
            // An XRC queue has the completion queue of receives.
            if (*id).qp.is_null() {
                destroy_cqs(id);
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: the program passes an id.
    unsafe {
        if Shared::of(id).is_ok() {
            destroy(id);
        }
    }
}
