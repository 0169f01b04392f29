//! Memory windows.

use std::ffi::c_int;

use adverb_abi::{self as abi, ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_pd, ibv_qp};
use adverb_softnic::{SoftMw, WindowType};
use adverb_verbs::{
    AccessFlags, Lkey, Operation, QueuePair as _, Rkey, SendFlags, SendRequest, WindowBinding, WrId,
};

use crate::call::{self, Refusal};
use crate::object::Object;
use crate::pd::Pd;
use crate::qp::Qp;

type MwObject = Object<ibv_mw, SoftMw>;

/// `alloc_mw` of the tables.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: u32) -> *mut ibv_mw {
    call::pointer("ibv_alloc_mw", || {
        let window_type = match kind {
            abi::IBV_MW_TYPE_1 => WindowType::Type1,
            abi::IBV_MW_TYPE_2 => WindowType::Type2,
            _ => {
                let reason = format!("invalid type {kind} of memory window: expected 1 or 2");
                return Err(Refusal::invalid(reason));
            }
        };
        // SAFETY: the program passes a protection domain that it has allocated.
        let (own, context) = unsafe { (Pd::of(pd), (*pd).context) };
        let soft = own.soft.alloc_mw(window_type)?;
        own.users.add();
        let c = ibv_mw {
            context,
            pd,
            rkey: soft.rkey().0,
            handle: soft.rkey().0,
            type_: kind,
        };
        Ok(Object::create(c, soft))
    })
}

/// `dealloc_mw` of the tables.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the program deallocates a window that it has allocated, once; the domain outlives its windows.
    unsafe {
        Pd::of((*mw).pd).users.remove();
        MwObject::destroy(mw);
    }
    0
}

/// Returns the operation that binds a window with a new key.
///
/// # Safety
/// `mw` is an allocated window, and the information names a region that is registered, or `NULL`.
unsafe fn bind(
    mw: *const ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<Operation, Refusal> {
    if info.mr.is_null() && info.length > 0 {
        return Err(Refusal::invalid("a memory window needs a memory region"));
    }
    // SAFETY: the caller's.
    let region = unsafe { info.mr.as_ref() }.map_or(0, |mr: &ibv_mr| mr.lkey);
    let rights = AccessFlags::all() | AccessFlags::ZERO_BASED;
    Ok(Operation::BindWindow(WindowBinding {
        // SAFETY: the caller's.
        window: unsafe { &MwObject::of(mw).own }.rkey(),
        rkey: Rkey(rkey),
        region: Lkey(region),
        addr: info.addr,
        length: info.length,
        access: AccessFlags::from_bits_retain(info.mw_access_flags) & rights,
    }))
}

/// Returns the operation of a work request that binds a type 2 window.
///
/// # Safety
/// `mw` is an allocated window or `NULL`, and the information names a region that is registered, or `NULL`.
pub(crate) unsafe fn bind_type_2(
    mw: *const ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<Operation, Refusal> {
    // SAFETY: the caller's.
    match unsafe { mw.as_ref() } {
        Some(window) if window.type_ == abi::IBV_MW_TYPE_2 => {
            // SAFETY: the caller's.
            unsafe { bind(mw, rkey, info) }
        }
        _ => Err(Refusal::invalid(
            "work requests bind type 2 memory windows; ibv_bind_mw binds type 1",
        )),
    }
}

/// `bind_mw` of the tables: binds a type 1 window by a work request. The window gets its new key at once.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    to: *mut ibv_mw_bind,
) -> c_int {
    call::status("ibv_bind_mw", || {
        // SAFETY: the program passes a queue pair, a window and what it is to be bound to.
        let (own, window, to) = unsafe { (Qp::of(qp), &mut *mw, &*to) };
        if window.type_ != abi::IBV_MW_TYPE_1 {
            return Err(Refusal::invalid("ibv_bind_mw binds type 1 memory windows"));
        }
        let rkey = next_key(window.rkey);
        // SAFETY: as above; the program passes a registered region.
        let operation = unsafe { bind(mw, rkey, &to.bind_info) }?;
        let flags = SendFlags::from_bits_truncate(to.send_flags) & !SendFlags::INLINE;
        let request =
            SendRequest::new(WrId(to.wr_id), operation, &[]).with_flags(flags | own.flags);
        own.soft
            .post_send(&[request])
            .map_err(|error| error.cause)?;
        window.rkey = rkey;
        Ok(())
    })
}

/// Returns the key after `rkey`, as `ibv_inc_rkey` does: the low 8 bits count up.
const fn next_key(rkey: u32) -> u32 {
    rkey & !0xff | rkey.wrapping_add(1) & 0xff
}
