//! Queue pairs: creation, attributes, multicast groups.

mod modify;
pub(crate) mod post;
pub(crate) mod xrc;

use std::ffi::c_int;
use std::sync::{Arc, Mutex, OnceLock};

use adverb_abi::{
    IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, ibv_cq, ibv_gid,
    ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_xrcd,
};
use adverb_softnic::SoftQp;
use adverb_verbs::{
    Context as _, Gid, Lid, QpCaps, QpInit, QpState, QpType, QueuePair as _, SendFlags,
};

use crate::activity;
use crate::activity::counts::{QpCounts, QpFacts};
use crate::call::{self, Refusal};
use crate::context::Context;
use crate::cq::Cq;
use crate::object::{Object, Unacknowledged, lock};
use crate::pd::Pd;
use crate::send_ops::Extended;
use crate::srq::Srq;
use crate::xrcd::Xrcd;

/// A queue pair, behind its `ibv_qp_ex`, which begins with an `ibv_qp`.
pub(crate) struct Qp {
    pub(crate) soft: SoftQp,
    pub(crate) qp_type: QpType,
    /// Flags that each send request has: `SIGNALED` with `sq_sig_all`.
    pub(crate) flags: SendFlags,
    sq_sig_all: c_int,
    /// The attributes that were set.
    attr: Arc<Mutex<ibv_qp_attr>>,
    xrc: Option<Target>,
    /// Asynchronous events.
    pub(crate) events: Unacknowledged,
    /// Set if it has `ibv_wr_start` and the like.
    pub(crate) extended: OnceLock<Extended>,
    /// Set if the program is observed.
    pub(crate) counts: Option<Arc<QpCounts>>,
}

/// What an XRC receive queue pair has in addition.
#[derive(Clone)]
struct Target {
    xrcd: *mut ibv_xrcd,
    /// The objects of `ibv_create_qp_ex` and `ibv_open_qp` for the queue pair.
    opened: Arc<Mutex<Vec<*mut ibv_qp>>>,
}

type QpObject = Object<ibv_qp_ex, Qp>;

// SAFETY: the attributes contain no pointers; the addresses of objects are only passed on.
unsafe impl Sync for Qp {}

impl Qp {
    /// Returns the queue pair behind a pointer from C.
    ///
    /// # Safety
    /// `qp` is from [`Qp::create`], and not destroyed within `'a`.
    #[inline]
    pub(crate) unsafe fn of<'a>(qp: *const ibv_qp) -> &'a Self {
        // SAFETY: the caller's.
        &unsafe { QpObject::of(qp.cast()) }.own
    }

    /// Creates a queue pair, and stores its sizes in `init`.
    ///
    /// # Safety
    /// `pd` is an allocated protection domain, and the objects in `init` exist.
    pub(crate) unsafe fn create(
        pd: *mut ibv_pd,
        init: &mut ibv_qp_init_attr,
    ) -> Result<*mut ibv_qp, Refusal> {
        let qp_type = match init.qp_type {
            IBV_QPT_RC => QpType::Rc,
            IBV_QPT_UC => QpType::Uc,
            IBV_QPT_UD => QpType::Ud,
            IBV_QPT_XRC_SEND => QpType::XrcSend,
            IBV_QPT_XRC_RECV => {
                return Err(Refusal::invalid(
                    "XRC receive queue pairs are created by ibv_create_qp_ex with an XRC domain",
                ));
            }
            other => {
                return Err(Refusal::unsupported(format!(
                    "no queue pairs of type {other}: only RC, UC, UD and XRC"
                )));
            }
        };
        if qp_type == QpType::XrcSend {
            // It has no receive queue.
            init.recv_cq = init.send_cq;
            init.srq = std::ptr::null_mut();
            (init.cap.max_recv_wr, init.cap.max_recv_sge) = (0, 0);
        }
        if init.send_cq.is_null() || init.recv_cq.is_null() {
            return Err(Refusal::invalid("send_cq and recv_cq are required"));
        }
        // SAFETY: the caller's.
        let (own, context) = unsafe { (Pd::of(pd), (*pd).context) };
        // SAFETY: the caller's.
        let open = unsafe { Context::of(context) };
        let soft = {
            // SAFETY: the caller's.
            let (send_cq, recv_cq) =
                unsafe { (&Cq::of(init.send_cq).soft, &Cq::of(init.recv_cq).soft) };
            let attr = QpInit {
                qp_type,
                send_cq,
                recv_cq,
                caps: caps_of(&init.cap),
            };
            // SAFETY: the caller's.
            match (!init.srq.is_null()).then(|| unsafe { Srq::of(init.srq) }) {
                None => open.soft.create_qp(&own.soft, &attr)?,
                Some(srq) => open.soft.create_qp_with_srq(&own.soft, &attr, &srq.soft)?,
            }
        };
        init.cap = c_caps(&soft.caps());
        let number = soft.qpn().get();
        let c = ibv_qp {
            context,
            qp_context: init.qp_context,
            pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            handle: number,
            qp_num: number,
            state: QpState::Reset as u32,
            qp_type: init.qp_type,
            ..ibv_qp::zeroed()
        };
        // SAFETY: the caller's.
        Ok(unsafe { Self::publish(open, c, (soft, qp_type, init), None) })
    }

    /// Makes the object of a queue pair, which belongs to `open`.
    ///
    /// # Safety
    /// The objects that `c` names exist.
    unsafe fn publish(
        open: &Context,
        c: ibv_qp,
        (soft, qp_type, init): (SoftQp, QpType, &ibv_qp_init_attr),
        xrc: Option<(Target, Arc<Mutex<ibv_qp_attr>>)>,
    ) -> *mut ibv_qp {
        let (xrc, attr) = xrc.unzip();
        let number = c.qp_num;
        let flags = match init.sq_sig_all {
            0 => SendFlags::empty(),
            _ => SendFlags::SIGNALED,
        };
        // SAFETY: the caller's.
        let index = |cq: *mut ibv_cq| unsafe { cq.as_ref().map_or(0, |cq| Cq::of(cq).index()) };
        let facts = QpFacts {
            device: open.device.name.to_owned(),
            qp_num: number,
            qp_type,
            send_cq: index(init.send_cq),
            recv_cq: index(init.recv_cq),
            srq: !init.srq.is_null(),
            max_inline_data: init.cap.max_inline_data,
        };
        let qp = Qp {
            counts: activity::queue_pair(&open.counts, facts),
            soft,
            qp_type,
            flags,
            sq_sig_all: init.sq_sig_all,
            attr: attr.unwrap_or_else(no_attributes),
            xrc,
            events: Unacknowledged::default(),
            extended: OnceLock::new(),
        };
        let qp: *mut ibv_qp = Object::create(
            ibv_qp_ex {
                qp_base: c,
                ..ibv_qp_ex::zeroed()
            },
            qp,
        )
        .cast();
        // SAFETY: the queue pair is new, and its objects exist.
        unsafe { count_users(qp, crate::object::Users::add) };
        lock(&open.qps).insert(number, qp);
        // SAFETY: the queue pair is new.
        if let Some(target) = unsafe { &Qp::of(qp).xrc } {
            lock(&target.opened).push(qp);
        }
        qp
    }

    /// Destroys a queue pair, after its events were acknowledged.
    ///
    /// # Safety
    /// As for [`Qp::of`], and nothing uses the queue pair afterwards.
    unsafe fn destroy(qp: *mut ibv_qp) {
        // SAFETY: the caller's.
        let (own, context) = unsafe { (Qp::of(qp), Context::of((*qp).context)) };
        let number = own.soft.qpn().get();
        lock(&context.qps).remove(number);
        if let Some(target) = &own.xrc {
            let mut opened = lock(&target.opened);
            opened.retain(|other| *other != qp);
            // Another object gets the events of the queue pair.
            if let Some(other) = opened.last() {
                lock(&context.qps).insert(number, *other);
            }
        }
        lock(&context.counts).remove(&number);
        own.events.wait();
        // SAFETY: the caller's, and the objects of a queue pair are not destroyed before it.
        unsafe {
            count_users(qp, crate::object::Users::remove);
            QpObject::destroy(qp.cast());
        }
    }
}

/// Counts a queue pair as a user of its objects, or no longer.
///
/// # Safety
/// The queue pair and its objects exist.
unsafe fn count_users(qp: *const ibv_qp, count: fn(&crate::object::Users)) {
    // SAFETY: the caller's.
    unsafe {
        if let Some(target) = &Qp::of(qp).xrc {
            return count(&Xrcd::of(target.xrcd).users);
        }
        count(&Pd::of((*qp).pd).users);
        count(&Cq::of((*qp).send_cq).users);
        count(&Cq::of((*qp).recv_cq).users);
        if !(*qp).srq.is_null() {
            count(&Srq::of((*qp).srq).users);
        }
    }
}

/// Returns the attributes of a new queue pair.
fn no_attributes() -> Arc<Mutex<ibv_qp_attr>> {
    Arc::new(Mutex::new(ibv_qp_attr::zeroed()))
}

/// Converts sizes. As on other devices, an SGE is there even if none was asked for.
fn caps_of(cap: &ibv_qp_cap) -> QpCaps {
    QpCaps {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge.max(1),
        max_recv_sge: cap.max_recv_sge.max(1),
        max_inline_data: cap.max_inline_data,
    }
}

fn c_caps(caps: &QpCaps) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: caps.max_send_wr,
        max_recv_wr: caps.max_recv_wr,
        max_send_sge: caps.max_send_sge,
        max_recv_sge: caps.max_recv_sge,
        max_inline_data: caps.max_inline_data,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    forward!(pd => ibv_create_qp(pd, init));
    // SAFETY: the program passes a protection domain, and attributes with objects that it has created.
    call::pointer("ibv_create_qp", || unsafe { Qp::create(pd, &mut *init) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    forward!(qp => ibv_destroy_qp(qp));
    call::status("ibv_destroy_qp", || {
        // SAFETY: the program passes a queue pair that it has created.
        if unsafe { Qp::of(qp) }.soft.is_in_group() {
            let reason = "the queue pair is attached to a multicast group: detach it first";
            return Err(Refusal::new(libc::EBUSY, reason));
        }
        // SAFETY: the program destroys it once.
        unsafe { Qp::destroy(qp) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    forward!(qp => ibv_attach_mcast(qp, gid, lid));
    call::status("ibv_attach_mcast", || {
        // SAFETY: the program passes a queue pair and a GID.
        let (qp, gid) = unsafe { (Qp::of(qp), Gid((*gid).raw)) };
        Ok(qp.soft.attach_mcast(gid, Lid(lid))?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    forward!(qp => ibv_detach_mcast(qp, gid, lid));
    call::status("ibv_detach_mcast", || {
        // SAFETY: the program passes a queue pair and a GID.
        let (qp, gid) = unsafe { (Qp::of(qp), Gid((*gid).raw)) };
        Ok(qp.soft.detach_mcast(gid, Lid(lid))?)
    })
}
