//! Extended completion queues: `ibv_create_cq_ex`, and polling by `ibv_start_poll` to `ibv_end_poll`.
//!
//! The completion queue stays locked from `ibv_start_poll` to `ibv_end_poll`. The completion timestamp is the time at
//! which the completion is polled, because the NIC has no clock of its own: nanoseconds of `CLOCK_MONOTONIC`.

use std::ffi::c_int;

use adverb_abi::{
    self as abi, ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_poll_cq_attr, ibv_wc,
    ibv_wc_tm_info,
};
use spin::Yield;
use spin::mutex::SpinMutex;

use crate::call::{self, Refusal};
use crate::convert::check_mask;
use crate::cq::{Cq, CqInit};

/// The fields that programs may ask for. A completion has all others of the header, too, but they are always 0.
pub(crate) const WC_FLAGS: u64 = abi::IBV_WC_EX_WITH_BYTE_LEN
    | abi::IBV_WC_EX_WITH_IMM
    | abi::IBV_WC_EX_WITH_QP_NUM
    | abi::IBV_WC_EX_WITH_SRC_QP
    | abi::IBV_WC_EX_WITH_SLID
    | abi::IBV_WC_EX_WITH_SL
    | abi::IBV_WC_EX_WITH_DLID_PATH_BITS
    | TIMES;
const TIMES: u64 =
    abi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | abi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// Returns the time of a clock of the system in nanoseconds.
pub(crate) fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is ours; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What an extended completion queue has in addition.
#[derive(Debug)]
pub(crate) struct Extended {
    wc_flags: u64,
    /// The completion that `ibv_start_poll` or `ibv_next_poll` has taken. Locked until `ibv_end_poll`.
    current: SpinMutex<Current, Yield>,
}

#[derive(Debug)]
struct Current {
    wc: ibv_wc,
    /// Nanoseconds.
    monotonic: u64,
    wallclock: u64,
}

impl Extended {
    /// Checks `attr`.
    pub(crate) fn new(attr: &ibv_cq_init_attr_ex) -> Result<Self, Refusal> {
        let unknown = attr.wc_flags & !WC_FLAGS;
        if unknown != 0 {
            let reason = format!(
                "completions have no fields {unknown:#x} (wc_flags): expected bits of {WC_FLAGS:#x}"
            );
            return Err(Refusal::unsupported(reason));
        }
        let masks = abi::IBV_CQ_INIT_ATTR_MASK_FLAGS | abi::IBV_CQ_INIT_ATTR_MASK_PD;
        check_mask(attr.comp_mask, masks)?;
        // The queue is thread-safe in any case.
        let flags = abi::IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
        if attr.comp_mask & abi::IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 && attr.flags & !flags != 0 {
            let given = attr.flags;
            return Err(Refusal::unsupported(format!(
                "flags {given:#x}: an overrun cannot be ignored"
            )));
        }
        let current = Current {
            wc: ibv_wc::zeroed(),
            monotonic: 0,
            wallclock: 0,
        };
        Ok(Extended {
            wc_flags: attr.wc_flags,
            current: SpinMutex::new(current),
        })
    }
}

/// `ibv_create_cq_ex` of the table.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    call::pointer("ibv_create_cq_ex", || {
        // SAFETY: the program passes attributes.
        let attr = unsafe { &*attr };
        let extended = Extended::new(attr)?;
        let init = CqInit {
            entries: attr.cqe,
            cq_context: attr.cq_context,
            channel: attr.channel,
            vector: attr.comp_vector,
        };
        // SAFETY: the program passes an open context, and `NULL` or a channel.
        let cq = unsafe { Cq::create(context, &init) }?;
        // SAFETY: the queue is new, and begins with this structure.
        unsafe {
            fill(&mut *cq.cast());
            let _ = Cq::of(cq).extended.set(extended);
        }
        Ok(cq.cast())
    })
}

/// Returns the completion queue and its extension.
///
/// # Safety
/// `cq` is from `ibv_create_cq_ex` and is not destroyed within `'a`.
#[inline]
unsafe fn parts<'a>(cq: *mut ibv_cq_ex) -> (&'a Cq, &'a Extended) {
    // SAFETY: the caller's.
    let own = unsafe { Cq::of(cq.cast()) };
    (
        own,
        own.extended
            .get()
            .expect("it was set when the queue was created"),
    )
}

/// Fills the table of an extended completion queue.
pub(crate) fn fill(c: &mut ibv_cq_ex) {
    c.start_poll = Some(start_poll);
    c.next_poll = Some(next_poll);
    c.end_poll = Some(end_poll);
    c.read_opcode = Some(read_opcode);
    c.read_vendor_err = Some(read_vendor_err);
    c.read_byte_len = Some(read_byte_len);
    c.read_imm_data = Some(read_imm_data);
    c.read_qp_num = Some(read_qp_num);
    c.read_src_qp = Some(read_src_qp);
    c.read_wc_flags = Some(read_wc_flags);
    c.read_slid = Some(read_slid);
    c.read_sl = Some(read_sl);
    c.read_dlid_path_bits = Some(read_dlid_path_bits);
    c.read_completion_ts = Some(read_completion_ts);
    c.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
    c.read_cvlan = Some(read_cvlan);
    c.read_flow_tag = Some(read_flow_tag);
    c.read_tm_info = Some(read_tm_info);
}

/// Takes the next completion; `Ok(false)` if there is none.
///
/// # Safety
/// `cq` is an extended completion queue, whose current completion the calling thread has locked.
unsafe fn take(cq: *mut ibv_cq_ex) -> Result<bool, Refusal> {
    // SAFETY: the caller's.
    unsafe {
        let (own, extended) = parts(cq);
        let current = &mut *extended.current.as_mut_ptr();
        if own.poll(1, &raw mut current.wc)? == 0 {
            return Ok(false);
        }
        if extended.wc_flags & TIMES != 0 {
            current.monotonic = nanoseconds(libc::CLOCK_MONOTONIC);
            current.wallclock = nanoseconds(libc::CLOCK_REALTIME);
        }
        (*cq).wr_id = current.wc.wr_id;
        (*cq).status = current.wc.status;
        Ok(true)
    }
}

fn taken(call: &str, taken: Result<bool, Refusal>) -> c_int {
    match taken {
        Ok(true) => 0,
        Ok(false) => libc::ENOENT,
        Err(refusal) => call::refuse(call, &refusal),
    }
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: the program passes an extended completion queue, and attributes or `NULL`.
    unsafe {
        if !attr.is_null() && (*attr).comp_mask != 0 {
            let refusal = Refusal::invalid("comp_mask of ibv_poll_cq_attr is not 0");
            return call::refuse("ibv_start_poll", &refusal);
        }
        let current = &parts(cq).1.current;
        // `end_poll` unlocks it, which the program calls only after a success.
        std::mem::forget(current.lock());
        let result = taken("ibv_start_poll", take(cq));
        if result != 0 {
            current.force_unlock();
        }
        result
    }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the program calls this after `ibv_start_poll`, which has locked the current completion.
    taken("ibv_next_poll", unsafe { take(cq) })
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: the program calls this after `ibv_start_poll`, which has locked the current completion.
    unsafe { parts(cq).1.current.force_unlock() };
}

/// Makes functions that read the current completion.
macro_rules! readers {
    ($($name:ident() -> $type:ty = $current:ident => $value:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $type {
            // SAFETY: the program calls this after `ibv_start_poll`, which has locked the current completion.
            let $current = unsafe { &*parts(cq).1.current.as_mut_ptr() };
            $value
        }
    )*};
}

readers! {
    read_opcode() -> u32 = current => current.wc.opcode;
    read_vendor_err() -> u32 = current => current.wc.vendor_err;
    read_byte_len() -> u32 = current => current.wc.byte_len;
    read_imm_data() -> u32 = current => current.wc.imm_data;
    read_qp_num() -> u32 = current => current.wc.qp_num;
    read_src_qp() -> u32 = current => current.wc.src_qp;
    read_wc_flags() -> u32 = current => current.wc.wc_flags;
    read_slid() -> u32 = current => current.wc.slid.into();
    read_sl() -> u8 = current => current.wc.sl;
    read_dlid_path_bits() -> u8 = current => current.wc.dlid_path_bits;
    read_completion_ts() -> u64 = current => current.monotonic;
    read_completion_wallclock_ns() -> u64 = current => current.wallclock;
}

extern "C" fn read_cvlan(_: *mut ibv_cq_ex) -> u16 {
    0
}

extern "C" fn read_flow_tag(_: *mut ibv_cq_ex) -> u32 {
    0
}

unsafe extern "C" fn read_tm_info(_: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: the program passes the address of the information.
    unsafe { info.write(ibv_wc_tm_info::zeroed()) };
}
