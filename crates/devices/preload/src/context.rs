//! Contexts: opened devices.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use adverb_abi::{
    self as abi, ADVERB_VENDOR, IBV_ATOMIC_GLOB, ibv_context, ibv_cq, ibv_device_attr, ibv_qp,
    ibv_srq, verbs_context,
};
use adverb_softnic::{SoftContext, SoftXrcd};
use adverb_verbs::Context as _;

use crate::activity::counts::QpsByNumber;
use crate::call;
use crate::device::{Device, text};
use crate::object::{Object, Table, lock};

/// `IBV_DEVICE_CURR_QP_STATE_MOD`, `IBV_DEVICE_SYS_IMAGE_GUID` and `IBV_DEVICE_RC_RNR_NAK_GEN`.
const USUAL_CAPS: u32 = 1 << 7 | 1 << 11 | 1 << 12;
/// Also memory windows, local invalidates, SEND with invalidate, and XRC.
const CAP_FLAGS: u32 = USUAL_CAPS
    | abi::IBV_DEVICE_XRC
    | abi::IBV_DEVICE_MEM_WINDOW
    | abi::IBV_DEVICE_MEM_WINDOW_TYPE_2B
    | abi::IBV_DEVICE_MEM_MGT_EXTENSIONS;
/// Protection domains, address handles and groups have no limit except memory.
const MANY: c_int = 1 << 20;

/// Device and inode of the file of a domain.
pub(crate) type File = (u64, u64);

/// The domains of files that a context has opened, and how often.
type OpenFiles = HashMap<File, (SoftXrcd, usize)>;

/// An opened device, behind its `verbs_context`.
pub(crate) struct Context {
    pub(crate) device: &'static Device,
    pub(crate) soft: SoftContext,
    /// A semaphore that counts the asynchronous events (`async_fd`).
    pub(crate) async_events: OwnedFd,
    pub(crate) cqs: Mutex<Table<ibv_cq>>,
    pub(crate) qps: Mutex<Table<ibv_qp>>,
    pub(crate) srqs: Mutex<Table<ibv_srq>>,
    /// XRC domains of files.
    pub(crate) xrcds: Mutex<OpenFiles>,
    /// Counters of its queue pairs, if the program is observed.
    pub(crate) counts: QpsByNumber,
}

pub(crate) type ContextObject = Object<verbs_context, Context>;

/// An open context.
struct Open(*mut verbs_context);

// SAFETY: the list has addresses of contexts, which all threads may use.
unsafe impl Send for Open {}

static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

/// Adds a context to those that are open.
pub(crate) fn remember(context: *mut verbs_context) {
    lock(&OPEN).push(Open(context));
}

/// Removes a context that is about to be closed.
pub(crate) fn forget(context: *mut verbs_context) {
    lock(&OPEN).retain(|open| open.0 != context);
}

/// Returns the address of the `verbs_context` around an `ibv_context`.
pub(crate) const fn outer(context: *const ibv_context) -> *const verbs_context {
    context
        .wrapping_byte_sub(std::mem::offset_of!(verbs_context, context))
        .cast()
}

impl Context {
    /// Returns the context behind a pointer from C.
    ///
    /// # Safety
    /// `context` is from `ibv_open_device`, and not closed within `'a`.
    #[inline]
    pub(crate) unsafe fn of<'a>(context: *const ibv_context) -> &'a Self {
        // SAFETY: `open` made the `verbs_context` around it as an object.
        &unsafe { ContextObject::of(outer(context)) }.own
    }

    /// Runs `action` on the contexts that this process has opened and not closed; on none while a thread is opening or
    /// closing one, because that thread never continues if it belongs to the parent of a fork.
    pub(crate) fn each_open(mut action: impl FnMut(&Self)) {
        let Ok(open) = OPEN.try_lock() else { return };
        for Open(context) in &*open {
            // SAFETY: contexts are removed from the list before they are closed.
            let object = unsafe { ContextObject::of(*context) };
            if object.is_own() {
                action(&object.own);
            }
        }
    }

    /// Returns the attributes of the device.
    pub(crate) fn attributes(&self) -> ibv_device_attr {
        let caps = self.soft.caps();
        let guid = self.device.guid();
        let number = |n: u32| n as c_int;
        ibv_device_attr {
            fw_ver: text(env!("CARGO_PKG_VERSION")),
            node_guid: guid,
            sys_image_guid: guid,
            max_mr_size: caps.max_mr_size.get(),
            page_size_cap: 0xffff_f000,
            vendor_id: ADVERB_VENDOR,
            vendor_part_id: 1,
            hw_ver: 1,
            max_qp: number(caps.max_qp),
            max_qp_wr: number(caps.max_qp_wr),
            device_cap_flags: CAP_FLAGS,
            max_sge: number(caps.max_sge),
            max_sge_rd: number(caps.max_sge),
            max_cq: number(caps.max_cq),
            max_cqe: number(caps.max_cqe),
            max_mr: number(caps.max_mr),
            max_pd: MANY,
            max_qp_rd_atom: caps.max_qp_rd_atom.into(),
            max_res_rd_atom: c_int::from(caps.max_qp_rd_atom) * number(caps.max_qp),
            max_qp_init_rd_atom: caps.max_qp_rd_atom.into(),
            atomic_cap: IBV_ATOMIC_GLOB,
            max_mw: number(caps.max_mr),
            max_mcast_grp: MANY,
            max_mcast_qp_attach: number(caps.max_qp),
            max_total_mcast_qp_attach: MANY,
            max_ah: MANY,
            max_srq: number(caps.max_srq),
            max_srq_wr: number(caps.max_srq_wr),
            max_srq_sge: number(caps.max_srq_sge),
            max_pkeys: 1,
            local_ca_ack_delay: 15,
            phys_port_cnt: 1,
            ..ibv_device_attr::zeroed()
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    forward!(context => ibv_query_device(context, attr));
    call::status("ibv_query_device", || {
        // SAFETY: the program passes an open context and the address of its attributes.
        unsafe { attr.write(Context::of(context).attributes()) };
        Ok(())
    })
}
