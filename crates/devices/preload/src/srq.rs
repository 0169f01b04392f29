//! Shared receive queues.

use std::ffi::c_int;

use std::sync::Arc;

use adverb_abi::{
    IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_cq, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr,
    ibv_xrcd,
};
use adverb_softnic::SoftSrq;
use adverb_verbs::{Context as _, SharedReceiveQueue as _, SrqCaps};

use crate::activity;
use crate::activity::counts::PostCounts;
use crate::call::{self, Refusal};
use crate::context::Context;
use crate::cq::Cq;
use crate::object::{Object, Unacknowledged, Users, lock};
use crate::pd::Pd;
use crate::xrcd::Xrcd;

/// A shared receive queue, behind its `ibv_srq`.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) soft: SoftSrq,
    /// Queue pairs.
    pub(crate) users: Users,
    /// Asynchronous events.
    pub(crate) events: Unacknowledged,
    /// Set if the program is observed.
    pub(crate) counts: Option<Arc<PostCounts>>,
    xrc: Option<Xrc>,
}

/// The XRC domain and the completion queue of an XRC queue.
pub(crate) type Xrc = (*mut ibv_xrcd, *mut ibv_cq);

type SrqObject = Object<ibv_srq, Srq>;

impl Srq {
    /// Returns the queue behind a pointer from C.
    ///
    /// # Safety
    /// `srq` is from [`Srq::create`], and not destroyed within `'a`.
    #[inline]
    pub(crate) unsafe fn of<'a>(srq: *const ibv_srq) -> &'a Self {
        // SAFETY: the caller's.
        &unsafe { SrqObject::of(srq) }.own
    }

    /// Creates a queue, and stores its sizes in `init`.
    ///
    /// # Safety
    /// `pd` is an allocated protection domain, and the objects in `xrc` exist.
    pub(crate) unsafe fn create(
        pd: *mut ibv_pd,
        init: &mut ibv_srq_init_attr,
        xrc: Option<Xrc>,
    ) -> Result<*mut ibv_srq, Refusal> {
        // SAFETY: the caller's.
        let (own, context) = unsafe { (Pd::of(pd), (*pd).context) };
        // SAFETY: a protection domain has an open context.
        let open = unsafe { Context::of(context) };
        let caps = SrqCaps {
            max_wr: init.attr.max_wr,
            max_sge: init.attr.max_sge.max(1),
        };
        let soft = match xrc {
            None => open.soft.create_srq(&own.soft, &caps)?,
            // SAFETY: the caller's.
            Some((xrcd, cq)) => unsafe {
                let of = (&Xrcd::of(xrcd).soft, &Cq::of(cq).soft);
                open.soft.create_xrc_srq(&own.soft, &caps, of)?
            },
        };
        let made = soft
            .query()
            .map_err(|error| Refusal::new(libc::EIO, error.to_string()))?;
        init.attr.max_wr = made.caps.max_wr;
        init.attr.max_sge = made.caps.max_sge;
        let number = soft.id().0;
        let c = ibv_srq {
            context,
            srq_context: init.srq_context,
            pd,
            handle: number,
            ..ibv_srq::zeroed()
        };
        let (users, events) = (Users::default(), Unacknowledged::default());
        let srq = Object::create(
            c,
            Srq {
                soft,
                users,
                events,
                counts: activity::shared_receives(),
                xrc,
            },
        );
        own.users.add();
        // SAFETY: the queue is new, and its objects exist.
        unsafe { Srq::of(srq).count_users(Users::add) };
        lock(&open.srqs).insert(number, srq);
        Ok(srq)
    }

    /// Counts an XRC queue as a user of its objects, or no longer.
    ///
    /// # Safety
    /// The objects exist.
    unsafe fn count_users(&self, count: fn(&Users)) {
        if let Some((xrcd, cq)) = self.xrc {
            // SAFETY: the caller's.
            unsafe {
                count(&Xrcd::of(xrcd).users);
                count(&Cq::of(cq).users);
            }
        }
    }

    fn modify(&self, attr: &ibv_srq_attr, mask: u32) -> Result<(), Refusal> {
        if mask & IBV_SRQ_MAX_WR != 0 {
            return Err(Refusal::unsupported(
                "the device does not resize shared receive queues",
            ));
        }
        if mask & !IBV_SRQ_LIMIT != 0 {
            return Err(Refusal::invalid(format!(
                "srq_attr_mask {mask:#x} has unknown attributes"
            )));
        }
        if mask & IBV_SRQ_LIMIT != 0 {
            self.soft.arm(attr.srq_limit)?;
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    forward!(pd => ibv_create_srq(pd, init));
    // SAFETY: the program passes a protection domain and attributes.
    call::pointer("ibv_create_srq", || unsafe {
        Srq::create(pd, &mut *init, None)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    forward!(srq => ibv_modify_srq(srq, attr, mask));
    // SAFETY: the program passes a shared receive queue and attributes.
    call::status("ibv_modify_srq", || unsafe {
        Srq::of(srq).modify(&*attr, mask as u32)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    forward!(srq => ibv_query_srq(srq, attr));
    call::status("ibv_query_srq", || {
        // SAFETY: the program passes a shared receive queue.
        let found = unsafe { Srq::of(srq) }.soft.query();
        let found = found.map_err(|error| Refusal::new(libc::EIO, error.to_string()))?;
        let found = ibv_srq_attr {
            max_wr: found.caps.max_wr,
            max_sge: found.caps.max_sge,
            srq_limit: found.srq_limit,
        };
        // SAFETY: the program passes room for the attributes.
        unsafe { attr.write(found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    forward!(srq => ibv_destroy_srq(srq));
    call::status("ibv_destroy_srq", || {
        // SAFETY: the program passes a shared receive queue that it has created.
        let (own, context) = unsafe { (Srq::of(srq), Context::of((*srq).context)) };
        own.users.check_none("the shared receive queue")?;
        lock(&context.srqs).remove(own.soft.id().0);
        own.events.wait();
        // SAFETY: the program destroys it once; its objects outlive the queue.
        unsafe {
            let pd = (*srq).pd;
            own.count_users(Users::remove);
            SrqObject::destroy(srq);
            Pd::of(pd).users.remove();
        }
        Ok(())
    })
}
