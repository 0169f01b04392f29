//! Protection domains.

use std::ffi::c_int;

use adverb_abi::{ibv_context, ibv_pd};
use adverb_softnic::SoftPd;
use adverb_verbs::Context as _;

use crate::call;
use crate::context::Context;
use crate::domains::Parts;
use crate::object::{Object, Users};

/// A protection domain, behind its `ibv_pd`.
#[derive(Debug)]
pub(crate) struct Pd {
    pub(crate) soft: SoftPd,
    /// Regions, queue pairs, shared receive queues, address handles and parent domains.
    pub(crate) users: Users,
    /// What it was created from, if it is a parent domain.
    parts: Option<Parts>,
}

type PdObject = Object<ibv_pd, Pd>;

impl Pd {
    pub(crate) fn create(c: ibv_pd, soft: SoftPd, parts: Option<Parts>) -> *mut ibv_pd {
        let users = Users::default();
        Object::create(c, Pd { soft, users, parts })
    }

    /// Returns the protection domain behind a pointer from C.
    ///
    /// # Safety
    /// `pd` is from `ibv_alloc_pd`, and not deallocated within `'a`.
    pub(crate) unsafe fn of<'a>(pd: *const ibv_pd) -> &'a Self {
        // SAFETY: the caller's.
        &unsafe { PdObject::of(pd) }.own
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    forward!(context => ibv_alloc_pd(context));
    call::pointer("ibv_alloc_pd", || {
        // SAFETY: the program passes an open context.
        let soft = unsafe { Context::of(context) }.soft.alloc_pd()?;
        let c = ibv_pd {
            context,
            ..ibv_pd::zeroed()
        };
        Ok(Pd::create(c, soft, None))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    forward!(pd => ibv_dealloc_pd(pd));
    call::status("ibv_dealloc_pd", || {
        // SAFETY: the program passes an allocated protection domain.
        let own = unsafe { Pd::of(pd) };
        own.users.check_none("the protection domain")?;
        if let Some(parts) = &own.parts {
            // SAFETY: domains are not deallocated before their parent domain.
            unsafe { parts.count_users(Users::remove) };
        }
        // SAFETY: the program deallocates it once, and no object uses it.
        unsafe { PdObject::destroy(pd) };
        Ok(())
    })
}
