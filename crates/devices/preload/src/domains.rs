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

/// A thread domain, behind its `ibv_td`; counts its parent domains.
type TdObject = Object<ibv_td, Users>;

/// What a parent domain was created from.
#[derive(Debug)]
pub(crate) struct Parts {
    pd: *mut ibv_pd,
    /// NULL if it has none.
    td: *mut ibv_td,
}

impl Parts {
    /// Counts a parent domain as their user, or no longer.
    ///
    /// # Safety
    /// Both domains exist.
    pub(crate) unsafe fn count_users(&self, count: fn(&Users)) {
        // SAFETY: the caller's.
        unsafe {
            count(&Pd::of(self.pd).users);
            if !self.td.is_null() {
                count(&TdObject::of(self.td).own);
            }
        }
    }
}

/// `ibv_alloc_td` of the table.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    call::pointer("ibv_alloc_td", || {
        // SAFETY: the program passes attributes.
        check_mask(unsafe { (*attr).comp_mask }, 0)?;
        Ok(TdObject::create(ibv_td { context }, Users::default()))
    })
}

/// `ibv_dealloc_td` of the table.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    call::status("ibv_dealloc_td", || {
        // SAFETY: the program passes a domain that it has allocated.
        let users = unsafe { &TdObject::of(td).own };
        users.check_none("the thread domain")?;
        // SAFETY: the program deallocates it once, and no parent domain has it.
        unsafe { TdObject::destroy(td) };
        Ok(())
    })
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
        let parts = Parts {
            pd: attr.pd,
            td: attr.td,
        };
        // SAFETY: the program passes domains that it has allocated.
        unsafe { parts.count_users(Users::add) };
        Ok(Pd::create(c, soft, Some(parts)))
    })
}
