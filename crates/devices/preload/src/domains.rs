//! Thread domains and parent domains.
//!
//! Objects are thread-safe with or without a thread domain, so it has no effect. A parent domain is another name of the
//! protection domain that it was created from: regions and queue pairs of both belong together.

use std::ffi::c_int;

use adverb_abi::{
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS, IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT, ibv_context,
    ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr,
};

use crate::call::{self, Refusal};
use crate::convert::check_mask;
use crate::object::{Object, Users};
use crate::pd::Pd;

type TdObject = Object<ibv_td, ()>;

/// `ibv_alloc_td` of the table.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    call::pointer("ibv_alloc_td", || {
        // SAFETY: the program passes attributes.
        check_mask(unsafe { (*attr).comp_mask }, 0)?;
        Ok(TdObject::create(ibv_td { context }, ()))
    })
}

/// `ibv_dealloc_td` of the table.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: the program deallocates a domain that it has allocated, once. Nothing refers to it.
    unsafe { TdObject::destroy(td) };
    0
}

/// `ibv_alloc_parent_domain` of the table.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    call::pointer("ibv_alloc_parent_domain", || {
        // SAFETY: the program passes attributes.
        let attr = unsafe { &*attr };
        let allocators = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
        check_mask(
            attr.comp_mask,
            allocators | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
        )?;
        let has_allocator = attr.alloc.is_some() || attr.free.is_some();
        if attr.comp_mask & allocators != 0 && has_allocator {
            let reason = "the memory of queues is shared with other processes: it cannot come from an allocator";
            return Err(Refusal::unsupported(reason));
        }
        if attr.pd.is_null() {
            return Err(Refusal::invalid("the protection domain is NULL"));
        }
        // SAFETY: the program passes a protection domain that it has allocated.
        let soft = unsafe { Pd::of(attr.pd) }.soft.clone();
        let c = ibv_pd {
            context,
            ..ibv_pd::zeroed()
        };
        let users = Users::default();
        Ok(Object::create(c, Pd { soft, users }))
    })
}
