//! XRC receive queue pairs: `ibv_create_qp_ex` and `ibv_open_qp` for them.

use std::ffi::c_void;
use std::sync::{Arc, Mutex};

use adverb_abi::{
    self as abi, IBV_QP_INIT_ATTR_XRCD, IBV_QP_OPEN_ATTR_CONTEXT, IBV_QPT_XRC_RECV, ibv_context,
    ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_open_attr,
};
use adverb_softnic::{SoftQp, SoftXrcd};
use adverb_verbs::{QpState, QpType, Qpn, QueuePair as _};

use super::{Qp, Target, c_caps, no_attributes};
use crate::call::{self, Refusal};
use crate::context::Context;
use crate::convert::check_mask;
use crate::object::lock;
use crate::xrcd::Xrcd;

impl Qp {
    /// Creates a receive queue pair of an XRC domain.
    ///
    /// # Safety
    /// `context` is open, and the domain exists.
    pub(crate) unsafe fn create_xrc_recv(
        context: *mut ibv_context,
        attr: &mut ibv_qp_init_attr_ex,
    ) -> Result<*mut ibv_qp, Refusal> {
        if attr.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null() {
            return Err(Refusal::invalid(
                "XRC receive queue pairs need an XRC domain, and IBV_QP_INIT_ATTR_XRCD in comp_mask",
            ));
        }
        // SAFETY: the caller's.
        let (open, xrcd) = unsafe { (Context::of(context), Xrcd::of(attr.xrcd)) };
        let soft = open.soft.create_xrc_recv_qp(&xrcd.soft)?;
        attr.cap = c_caps(&soft.caps());
        let target = Target {
            xrcd: attr.xrcd,
            opened: Arc::default(),
        };
        let of = (context, attr.qp_context);
        // SAFETY: the caller's.
        Ok(unsafe { Self::publish_target(of, soft, (target, no_attributes())) })
    }

    /// Makes another object of an XRC receive queue pair.
    ///
    /// # Safety
    /// The queue pair and the domain exist.
    pub(crate) unsafe fn reopen(first: *mut ibv_qp, attr: &ibv_qp_open_attr) -> *mut ibv_qp {
        // SAFETY: the caller's.
        unsafe {
            let own = Qp::of(first);
            let qp_context = match attr.comp_mask & IBV_QP_OPEN_ATTR_CONTEXT {
                0 => std::ptr::null_mut(),
                _ => attr.qp_context,
            };
            let opened = own.xrc.as_ref().map(|target| target.opened.clone());
            let target = Target {
                xrcd: attr.xrcd,
                opened: opened.unwrap_or_default(),
            };
            let of = ((*first).context, qp_context);
            let again = Self::publish_target(of, own.soft.clone(), (target, own.attr.clone()));
            (*again).state = own.soft.state() as u32;
            again
        }
    }

    /// # Safety
    /// The context and the domain exist.
    unsafe fn publish_target(
        (context, qp_context): (*mut ibv_context, *mut c_void),
        soft: SoftQp,
        target: (Target, Arc<Mutex<ibv_qp_attr>>),
    ) -> *mut ibv_qp {
        let number = soft.qpn().get();
        let c = ibv_qp {
            context,
            qp_context,
            handle: number,
            qp_num: number,
            state: QpState::Reset as u32,
            qp_type: IBV_QPT_XRC_RECV,
            ..ibv_qp::zeroed()
        };
        let init = ibv_qp_init_attr::zeroed();
        // SAFETY: the caller's.
        unsafe {
            let open = Context::of(context);
            let own = (soft, QpType::XrcRecv, &init);
            Self::publish(open, c, own, Some(target))
        }
    }

    /// Whether it is a receive queue pair of an XRC domain.
    pub(crate) fn is_of(&self, xrcd: &SoftXrcd) -> bool {
        self.soft.is_of(xrcd)
    }
}

/// `ibv_open_qp` of the table.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_open_attr,
) -> *mut ibv_qp {
    call::pointer("ibv_open_qp", || {
        // SAFETY: the program passes attributes, an open context, and a domain.
        unsafe {
            let attr = &*attr;
            let needed =
                abi::IBV_QP_OPEN_ATTR_NUM | abi::IBV_QP_OPEN_ATTR_XRCD | abi::IBV_QP_OPEN_ATTR_TYPE;
            check_mask(attr.comp_mask, needed | abi::IBV_QP_OPEN_ATTR_CONTEXT)?;
            if attr.comp_mask & needed != needed || attr.xrcd.is_null() {
                return Err(Refusal::invalid(
                    "comp_mask needs number, XRC domain and type of the queue pair",
                ));
            }
            let open = Context::of(context);
            let number = attr.qp_num;
            if Qpn::new(number).is_some_and(|qpn| !open.soft.numbers(qpn)) {
                return Err(Refusal::unsupported(format!(
                    "queue pair {number:#x} belongs to another process or context: \
                     XRC domains are not shared between them"
                )));
            }
            let known = lock(&open.qps).get(number);
            let known = known.filter(|qp| {
                let qp_type = Qp::of(*qp).qp_type;
                qp_type == QpType::XrcRecv && attr.qp_type == abi::IBV_QPT_XRC_RECV
            });
            let is_in = |qp: &*mut ibv_qp| Qp::of(*qp).is_of(&Xrcd::of(attr.xrcd).soft);
            let first = known.filter(is_in).ok_or_else(|| {
                Refusal::invalid(format!(
                    "the XRC domain has no receive queue pair {number:#x}"
                ))
            })?;
            Ok(Qp::reopen(first, attr))
        }
    })
}
