//! XRC for librdmacm: the library has one XRC domain for each device, and opens it when the first object needs it.

use std::ffi::c_int;
use std::sync::Mutex;

use adverb_abi::{
    IBV_QP_INIT_ATTR_XRCD, IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_context, ibv_qp,
    ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_xrcd, ibv_xrcd_init_attr,
};

use crate::call::Refusal;
use crate::object::lock;
use crate::{qp_ex, xrcd};

/// The domains of the devices, which stay open.
static DOMAINS: Mutex<Vec<(Address, Address)>> = Mutex::new(Vec::new());

/// The address of an object that lives as long as the process.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Address(*mut std::ffi::c_void);

// SAFETY: addresses are only compared and passed on.
unsafe impl Send for Address {}

/// Returns the XRC domain of a device of the library.
pub(super) fn domain(context: *mut ibv_context) -> Result<*mut ibv_xrcd, Refusal> {
    let mut domains = lock(&DOMAINS);
    let device = Address(context.cast());
    if let Some((_, domain)) = domains.iter().find(|(of, _)| *of == device) {
        return Ok(domain.0.cast());
    }
    let mut attr = ibv_xrcd_init_attr {
        comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        fd: -1,
        oflags: libc::O_CREAT as c_int,
    };
    // SAFETY: the context of a device of the library is open.
    let opened = unsafe { xrcd::open_xrcd(context, &raw mut attr) };
    if opened.is_null() {
        return Err(Refusal::new(libc::ENOMEM, "cannot open an XRC domain"));
    }
    domains.push((device, Address(opened.cast())));
    Ok(opened)
}

/// Creates an XRC receive queue pair; returns `NULL` and sets errno if that fails.
pub(super) fn create_recv_qp(
    context: *mut ibv_context,
    base: &mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let Ok(xrcd) = domain(context) else {
        return std::ptr::null_mut();
    };
    let mut attr = ibv_qp_init_attr_ex {
        qp_context: base.qp_context,
        qp_type: base.qp_type,
        comp_mask: IBV_QP_INIT_ATTR_XRCD,
        xrcd,
        ..ibv_qp_init_attr_ex::zeroed()
    };
    // SAFETY: the context is open, and the domain is the library's.
    unsafe { qp_ex::create_qp_ex(context, &raw mut attr) }
}
