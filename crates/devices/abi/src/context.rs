//! Devices, contexts and their operation tables.

use std::ffi::{c_char, c_int, c_void};

use crate::mirror::mirror;
use crate::{
    Unused, ibv_alloc_dm_attr, ibv_counter_attach_attr, ibv_counters, ibv_cq, ibv_cq_ex,
    ibv_cq_init_attr_ex, ibv_device_attr_ex, ibv_dm, ibv_modify_cq_attr, ibv_mr, ibv_mw,
    ibv_mw_bind, ibv_parent_domain_init_attr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_ex,
    ibv_qp_init_attr_ex, ibv_qp_open_attr, ibv_qp_rate_limit_attr, ibv_query_device_ex_input,
    ibv_recv_wr, ibv_rwq_ind_table_init_attr, ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_init_attr_ex,
    ibv_td, ibv_td_init_attr, ibv_values_ex, ibv_wc, ibv_wq, ibv_wq_attr, ibv_wq_init_attr,
    ibv_xrcd, ibv_xrcd_init_attr,
};

/// `__VERBS_ABI_IS_EXTENDED`: the value of `abi_compat` if a context is in a [`verbs_context`].
pub const VERBS_ABI_IS_EXTENDED: usize = usize::MAX;

type PostSend =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int;
type PostRecv =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int;
type PostSrqRecv =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int;
type QueryPort =
    unsafe extern "C" fn(*mut ibv_context, port: u8, *mut ibv_port_attr, size: usize) -> c_int;

type AdviseMr = unsafe extern "C" fn(*mut ibv_pd, u32, u32, *mut ibv_sge, u32) -> c_int;
type ReadCounters = unsafe extern "C" fn(*mut ibv_counters, *mut u64, u32, u32) -> c_int;
/// The last argument is a flow (`ibv_flow`).
type AttachCounters =
    unsafe extern "C" fn(*mut ibv_counters, *mut ibv_counter_attach_attr, *mut c_void) -> c_int;
type RegDmMr =
    unsafe extern "C" fn(*mut ibv_pd, *mut ibv_dm, offset: u64, usize, access: u32) -> *mut ibv_mr;
type QueryDeviceEx = unsafe extern "C" fn(
    *mut ibv_context,
    *const ibv_query_device_ex_input,
    *mut ibv_device_attr_ex,
    size: usize,
) -> c_int;
/// Creates an object of type `T` from attributes of type `A`.
type Create<T, A> = Option<unsafe extern "C" fn(*mut ibv_context, *mut A) -> *mut T>;
/// Changes an object of type `T` by attributes of type `A`.
type Modify<T, A> = Option<unsafe extern "C" fn(*mut T, *mut A) -> c_int>;
type Destroy<T> = Option<unsafe extern "C" fn(*mut T) -> c_int>;

mirror! {
    struct ibv_device_ops = "struct _ibv_device_ops" {
        _dummy1: Unused,
        _dummy2: Unused,
    }

    struct ibv_device = "struct ibv_device" {
        _ops: ibv_device_ops,
        node_type: c_int,
        transport_type: c_int,
        name: [c_char; 64],
        dev_name: [c_char; 64],
        dev_path: [c_char; 256],
        ibdev_path: [c_char; 256],
    }

    struct ibv_context_ops = "struct ibv_context_ops" {
        _compat_query_device: Unused,
        _compat_query_port: Unused,
        _compat_alloc_pd: Unused,
        _compat_dealloc_pd: Unused,
        _compat_reg_mr: Unused,
        _compat_rereg_mr: Unused,
        _compat_dereg_mr: Unused,
        alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, kind: u32) -> *mut ibv_mw>,
        bind_mw: Option<unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
        dealloc_mw: Destroy<ibv_mw>,
        _compat_create_cq: Unused,
        poll_cq: Option<unsafe extern "C" fn(*mut ibv_cq, count: c_int, *mut ibv_wc) -> c_int>,
        req_notify_cq: Option<unsafe extern "C" fn(*mut ibv_cq, solicited_only: c_int) -> c_int>,
        _compat_cq_event: Unused,
        _compat_resize_cq: Unused,
        _compat_destroy_cq: Unused,
        _compat_create_srq: Unused,
        _compat_modify_srq: Unused,
        _compat_query_srq: Unused,
        _compat_destroy_srq: Unused,
        post_srq_recv: Option<PostSrqRecv>,
        _compat_create_qp: Unused,
        _compat_query_qp: Unused,
        _compat_modify_qp: Unused,
        _compat_destroy_qp: Unused,
        post_send: Option<PostSend>,
        post_recv: Option<PostRecv>,
        _compat_create_ah: Unused,
        _compat_destroy_ah: Unused,
        _compat_attach_mcast: Unused,
        _compat_detach_mcast: Unused,
        _compat_async_event: Unused,
    }

    struct ibv_context = "struct ibv_context" {
        device: *mut ibv_device,
        ops: ibv_context_ops,
        cmd_fd: c_int,
        async_fd: c_int,
        num_comp_vectors: c_int,
        mutex: libc::pthread_mutex_t,
        abi_compat: *mut c_void,
    }

    /// Grows at its beginning: an operation is there only if `sz` reaches back to it
    /// ([`verbs_context::op`]).
    struct verbs_context = "struct verbs_context" {
        query_port: Option<QueryPort>,
        advise_mr: Option<AdviseMr>,
        alloc_null_mr: Option<unsafe extern "C" fn(*mut ibv_pd) -> *mut ibv_mr>,
        read_counters: Option<ReadCounters>,
        attach_counters_point_flow: Option<AttachCounters>,
        create_counters: Create<ibv_counters, u32>,
        destroy_counters: Destroy<ibv_counters>,
        reg_dm_mr: Option<RegDmMr>,
        alloc_dm: Create<ibv_dm, ibv_alloc_dm_attr>,
        free_dm: Destroy<ibv_dm>,
        modify_flow_action_esp: Modify<c_void, c_void>,
        destroy_flow_action: Destroy<c_void>,
        create_flow_action_esp: Create<c_void, c_void>,
        modify_qp_rate_limit: Modify<ibv_qp, ibv_qp_rate_limit_attr>,
        alloc_parent_domain: Create<ibv_pd, ibv_parent_domain_init_attr>,
        dealloc_td: Destroy<ibv_td>,
        alloc_td: Create<ibv_td, ibv_td_init_attr>,
        modify_cq: Modify<ibv_cq, ibv_modify_cq_attr>,
        post_srq_ops:
            Option<unsafe extern "C" fn(*mut ibv_srq, *mut c_void, *mut *mut c_void) -> c_int>,
        destroy_rwq_ind_table: Destroy<c_void>,
        create_rwq_ind_table: Create<c_void, ibv_rwq_ind_table_init_attr>,
        destroy_wq: Destroy<ibv_wq>,
        modify_wq: Modify<ibv_wq, ibv_wq_attr>,
        create_wq: Create<ibv_wq, ibv_wq_init_attr>,
        query_rt_values: Modify<ibv_context, ibv_values_ex>,
        create_cq_ex: Create<ibv_cq_ex, ibv_cq_init_attr_ex>,
        priv_: *mut c_void,
        query_device_ex: Option<QueryDeviceEx>,
        ibv_destroy_flow: Destroy<c_void>,
        ABI_placeholder2: Unused,
        ibv_create_flow: Option<unsafe extern "C" fn(*mut ibv_qp, *mut c_void) -> *mut c_void>,
        ABI_placeholder1: Unused,
        open_qp: Create<ibv_qp, ibv_qp_open_attr>,
        create_qp_ex: Create<ibv_qp, ibv_qp_init_attr_ex>,
        get_srq_num: Option<unsafe extern "C" fn(*mut ibv_srq, *mut u32) -> c_int>,
        create_srq_ex: Create<ibv_srq, ibv_srq_init_attr_ex>,
        open_xrcd: Create<ibv_xrcd, ibv_xrcd_init_attr>,
        close_xrcd: Destroy<ibv_xrcd>,
        _ABI_placeholder3: u64,
        sz: usize,
        context: ibv_context,
    }
}

impl verbs_context {
    /// Reads the operation at `offset` of the extended context around `context`
    /// (`verbs_get_ctx_op`); `None` if the library or the driver does not have it.
    ///
    /// # Safety
    /// `context` is a live context of libibverbs; `offset` is the offset of a member of type `Option<F>`,
    /// `F` being a function pointer.
    pub unsafe fn op<F>(context: *mut ibv_context, offset: usize) -> Option<F> {
        // SAFETY: the context is live.
        if unsafe { (*context).abi_compat } as usize != VERBS_ABI_IS_EXTENDED {
            return None;
        }
        let outer = context
            .cast::<u8>()
            .wrapping_sub(std::mem::offset_of!(verbs_context, context));
        // SAFETY: an extended context is the end of a verbs_context, whose last `sz` bytes
        // exist; the size is stored right before the context.
        let size = unsafe {
            *outer
                .add(std::mem::offset_of!(verbs_context, sz))
                .cast::<usize>()
        };
        if size < size_of::<verbs_context>() - offset {
            return None;
        }
        // SAFETY: the member is within these bytes, and the caller guarantees its type.
        unsafe { outer.add(offset).cast::<Option<F>>().read() }
    }
}

/// `ibv_qp_to_qp_ex` of the library.
pub type QpToQpEx = unsafe extern "C" fn(*mut ibv_qp) -> *mut ibv_qp_ex;
