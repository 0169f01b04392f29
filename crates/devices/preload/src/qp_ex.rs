//! Extended queue pairs: `ibv_create_qp_ex`, and posting by `ibv_wr_start` to `ibv_wr_complete`.
//!
//! A batch is posted completely or not at all (ibv_wr_post(3)). The queue pair stays locked from
//! `ibv_wr_start` to `ibv_wr_complete` or `ibv_wr_abort`.

use std::ffi::{c_int, c_void};

use adverb_abi::{
    self as abi, ibv_ah, ibv_context, ibv_data_buf, ibv_qp, ibv_qp_ex, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_sge,
};
use adverb_verbs::{
    AddressHandle as _, Comparison, Destination, Imm, Operation, Qpn, QueuePair as _,
    RemoteAddress, Rkey, SendFlags, Srqn,
};

use crate::ah::Ah;
use crate::batch::Batch;
use crate::call::{self, Refusal};
use crate::explain;
use crate::mw;
use crate::pd::Pd;
use crate::qp::Qp;
use crate::send_ops::{Extended, extension, names};

/// Flags of requests that have a meaning here. `IBV_SEND_INLINE` has none: the setters decide.
const FLAGS: SendFlags = SendFlags::FENCE
    .union(SendFlags::SIGNALED)
    .union(SendFlags::SOLICITED);

/// `ibv_create_qp_ex` of the table.
pub(crate) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    call::pointer("ibv_create_qp_ex", || {
        // SAFETY: the program passes attributes.
        let (extended, pd) = unsafe { (extension(&*attr)?, (*attr).pd) };
        // SAFETY: the program passes attributes, which name objects of the program.
        unsafe {
            if (*attr).qp_type == abi::IBV_QPT_XRC_RECV {
                return Qp::create_xrc_recv(context, &mut *attr);
            }
        }
        // SAFETY: both structures begin with the same members, and name objects of the program.
        let qp = unsafe { Qp::create(pd, &mut *attr.cast::<ibv_qp_init_attr>()) }?;
        if let Some(extended) = extended {
            // SAFETY: the queue pair is new, and begins with this structure.
            unsafe {
                fill(&mut *qp.cast());
                let _ = Qp::of(qp).extended.set(extended);
            }
        }
        Ok(qp)
    })
}

/// Returns the extended queue pair; `NULL` if the queue pair was created without `send_ops_flags`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    forward!(qp => ibv_qp_to_qp_ex(qp));
    call::pointer("ibv_qp_to_qp_ex", || {
        // SAFETY: the program passes a queue pair that it has created.
        match unsafe { Qp::of(qp) }.extended.get() {
            Some(_) => Ok(qp.cast()),
            None => Err(Refusal::invalid(
                "the queue pair was created without send_ops_flags",
            )),
        }
    })
}

/// Fills the table of an extended queue pair.
pub(crate) fn fill(c: &mut ibv_qp_ex) {
    c.wr_start = Some(start);
    c.wr_complete = Some(complete);
    c.wr_abort = Some(abort);
    c.wr_send = Some(send);
    c.wr_send_imm = Some(send_imm);
    c.wr_rdma_write = Some(rdma_write);
    c.wr_rdma_write_imm = Some(rdma_write_imm);
    c.wr_rdma_read = Some(rdma_read);
    c.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    c.wr_atomic_fetch_add = Some(atomic_fetch_add);
    c.wr_set_ud_addr = Some(set_ud_addr);
    c.wr_set_sge = Some(set_sge);
    c.wr_set_sge_list = Some(set_sge_list);
    c.wr_set_inline_data = Some(set_inline_data);
    c.wr_set_inline_data_list = Some(set_inline_data_list);
    c.wr_bind_mw = Some(bind_mw);
    c.wr_local_inv = Some(local_inv);
    c.wr_send_inv = Some(send_inv);
    c.wr_send_tso = Some(send_tso);
    c.wr_set_xrc_srqn = Some(set_xrc_srqn);
    c.wr_atomic_write = Some(atomic_write);
}

/// Returns the queue pair and its extension.
///
/// # Safety
/// `qp` is from `ibv_qp_to_qp_ex` and is not destroyed within `'a`.
#[inline]
unsafe fn parts<'a>(qp: *mut ibv_qp_ex) -> (&'a Qp, &'a Extended) {
    // SAFETY: the caller's.
    let own = unsafe { Qp::of(qp.cast()) };
    (
        own,
        own.extended
            .get()
            .expect("`ibv_qp_to_qp_ex` returns only extended queue pairs"),
    )
}

/// Runs `change` on the batch.
///
/// # Safety
/// The program calls this between `ibv_wr_start` and `ibv_wr_complete`.
#[inline]
unsafe fn build(qp: *mut ibv_qp_ex, change: impl FnOnce(&mut Batch)) {
    // SAFETY: the queue pair exists; the calling thread has locked the batch in `start`.
    change(unsafe { &mut *parts(qp).1.batch.as_mut_ptr() });
}

/// Begins a request.
///
/// # Safety
/// As for [`build`].
#[inline]
unsafe fn begin(qp: *mut ibv_qp_ex, needed: u64, operation: Operation) {
    // SAFETY: as the caller promises. The program has set `wr_id` and `wr_flags`.
    unsafe {
        let (own, extended) = parts(qp);
        let flags = SendFlags::from_bits_retain((*qp).wr_flags) & FLAGS | own.flags;
        let batch = &mut *extended.batch.as_mut_ptr();
        if extended.operations & needed == 0 {
            let needed = names(needed);
            let reason = format!("the queue pair was created without {needed} in send_ops_flags");
            batch.fail(Refusal::invalid(reason));
        }
        batch.begin((*qp).wr_id, operation, flags);
    }
}

const fn remote(rkey: u32, addr: u64) -> RemoteAddress {
    RemoteAddress {
        addr,
        rkey: Rkey(rkey),
    }
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    // SAFETY: the program passes an extended queue pair.
    let mut batch = unsafe { parts(qp) }.1.batch.lock();
    batch.clear();
    // `complete` or `abort` unlocks it.
    std::mem::forget(batch);
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the program passes an extended queue pair.
    let (own, extended) = unsafe { parts(qp) };
    call::quick_status("ibv_wr_complete", || {
        // SAFETY: the calling thread has locked it in `start`.
        let batch = unsafe { &mut *extended.batch.as_mut_ptr() };
        let completed = batch.complete(|requests| {
            // SAFETY: the queue pair exists, and its domain is not deallocated before it.
            let pd = unsafe { Pd::of((*qp).qp_base.pd) };
            explain::sends("ibv_wr_complete", &pd.soft, &own.soft, requests);
            let post = || own.soft.post_send_all(requests);
            let posted = match own.counts.as_ref().map(|counts| counts.posting()) {
                None => post(),
                // All requests are posted, or none.
                Some(counted) => counted.post(requests, post, |_| 0),
            };
            if let (Some(counts), Ok(())) = (&own.counts, &posted) {
                counts.wr_batches.add(1);
            }
            posted.map_err(|error| error.cause.into())
        });
        // SAFETY: as above; the batch is not used after this.
        unsafe { extended.batch.force_unlock() };
        completed
    })
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the program passes an extended queue pair, whose batch the calling thread has locked in `start`.
    unsafe { parts(qp).1.batch.force_unlock() };
}

unsafe extern "C" fn send(qp: *mut ibv_qp_ex) {
    // SAFETY: the program calls this in a batch.
    unsafe { begin(qp, abi::IBV_QP_EX_WITH_SEND, Operation::Send) };
}

unsafe extern "C" fn send_imm(qp: *mut ibv_qp_ex, imm: u32) {
    let operation = Operation::SendWithImm(Imm(u32::from_be(imm)));
    // SAFETY: the program calls this in a batch.
    unsafe { begin(qp, abi::IBV_QP_EX_WITH_SEND_WITH_IMM, operation) };
}

unsafe extern "C" fn rdma_write(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    let operation = Operation::RdmaWrite(remote(rkey, addr));
    // SAFETY: the program calls this in a batch.
    unsafe { begin(qp, abi::IBV_QP_EX_WITH_RDMA_WRITE, operation) };
}

unsafe extern "C" fn rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, imm: u32) {
    let operation = Operation::RdmaWriteWithImm(remote(rkey, addr), Imm(u32::from_be(imm)));
    // SAFETY: the program calls this in a batch.
    unsafe { begin(qp, abi::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, operation) };
}

unsafe extern "C" fn rdma_read(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    let operation = Operation::RdmaRead(remote(rkey, addr));
    // SAFETY: the program calls this in a batch.
    unsafe { begin(qp, abi::IBV_QP_EX_WITH_RDMA_READ, operation) };
}

unsafe extern "C" fn atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    addr: u64,
    compare: u64,
    swap: u64,
) {
    let values = Comparison {
        expected: compare,
        new: swap,
    };
    let operation = Operation::CompareSwap(remote(rkey, addr), values);
    // SAFETY: the program calls this in a batch.
    unsafe { begin(qp, abi::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, operation) };
}

unsafe extern "C" fn atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, add: u64) {
    let operation = Operation::FetchAdd(remote(rkey, addr), add);
    // SAFETY: the program calls this in a batch.
    unsafe { begin(qp, abi::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, operation) };
}

unsafe extern "C" fn send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    let operation = Operation::SendWithInvalidate(Rkey(rkey));
    // SAFETY: the program calls this in a batch.
    unsafe { begin(qp, abi::IBV_QP_EX_WITH_SEND_WITH_INV, operation) };
}

unsafe extern "C" fn local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    let operation = Operation::LocalInvalidate(Rkey(rkey));
    // SAFETY: the program calls this in a batch.
    unsafe { begin(qp, abi::IBV_QP_EX_WITH_LOCAL_INV, operation) };
}

unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp_ex,
    window: *mut abi::ibv_mw,
    rkey: u32,
    info: *const abi::ibv_mw_bind_info,
) {
    // SAFETY: the program calls this in a batch, with a window and what it is to be bound to.
    unsafe {
        match mw::bind_type_2(window, rkey, &*info) {
            Ok(operation) => begin(qp, abi::IBV_QP_EX_WITH_BIND_MW, operation),
            Err(refusal) => build(qp, |batch| batch.fail(refusal)),
        }
    }
}

unsafe extern "C" fn set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: the program calls this in a batch, with an address handle that lives until the batch is complete.
    unsafe {
        let ah = Ah::of(ah).soft.handle();
        let to = Qpn::new(qpn).map(|qpn| Destination { ah, qpn, qkey });
        build(qp, |batch| match to {
            Some(to) => batch.set_destination(to),
            None => batch.fail(Refusal::invalid(format!(
                "invalid queue pair number {qpn:#x}: it has 24 bits"
            ))),
        });
    }
}

unsafe extern "C" fn set_xrc_srqn(qp: *mut ibv_qp_ex, srqn: u32) {
    // SAFETY: the program calls this in a batch.
    unsafe { build(qp, |batch| batch.set_srq(Srqn(srqn))) };
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: the program calls this in a batch.
    unsafe { build(qp, |batch| batch.set_sges([(addr, length, lkey)])) };
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: the program calls this in a batch, with a list of `count` elements.
    unsafe {
        let max = parts(qp).0.soft.caps().max_send_sge as usize;
        let sges = slice(list, count.min(max))
            .iter()
            .map(|sge| (sge.addr, sge.length, sge.lkey));
        // A longer list is refused, so one SGE too many is enough. The rest of it may not exist.
        let rest = (count > max).then_some((0, 0, 0));
        build(qp, |batch| batch.set_sges(sges.chain(rest)));
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let buffer = ibv_data_buf { addr, length };
    // SAFETY: as in the program's call.
    unsafe { set_inline_data_list(qp, 1, &raw const buffer) };
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    // SAFETY: the program calls this in a batch, with a list of `count` readable buffers.
    unsafe {
        let max = parts(qp).0.soft.caps().max_inline_data;
        let buffers = slice(list, count)
            .iter()
            .map(|buffer| (buffer.addr.cast_const(), buffer.length));
        build(qp, |batch| batch.set_inline(buffers, max));
    }
}

/// Returns a list of C as a slice.
///
/// # Safety
/// `list` has `count` elements; it may be `NULL` if that is 0.
unsafe fn slice<'a, T>(list: *const T, count: usize) -> &'a [T] {
    match count {
        0 => &[],
        // SAFETY: the caller's.
        _ => unsafe { std::slice::from_raw_parts(list, count) },
    }
}

/// Makes functions that begin a request, or set a part of one, that the device does not have.
macro_rules! unsupported {
    ($($name:ident($($argument:ty),*): $feature:literal,)*) => {$(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex, $(_: $argument),*) {
            let reason = concat!("the device has no ", $feature);
            // SAFETY: the program calls this in a batch.
            unsafe { build(qp, |batch| batch.fail(Refusal::unsupported(reason))) };
        }
    )*};
}

unsupported! {
    send_tso(*mut c_void, u16, u16): "segmentation offload",
    atomic_write(u32, u64, *const c_void): "atomic WRITE",
}
