//! Devices, contexts and their operation tables.

use std::ffi::{c_char, c_int, c_void};

use crate::mirror::mirror;
use crate::{
    Unused, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_port_attr, ibv_qp, ibv_qp_ex,
    ibv_qp_init_attr_ex, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc,
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
type CreateCqEx =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex;
type CreateQpEx = unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;

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
        alloc_mw: Unused,
        bind_mw: Unused,
        dealloc_mw: Unused,
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
        advise_mr: Unused,
        alloc_null_mr: Unused,
        read_counters: Unused,
        attach_counters_point_flow: Unused,
        create_counters: Unused,
        destroy_counters: Unused,
        reg_dm_mr: Unused,
        alloc_dm: Unused,
        free_dm: Unused,
        modify_flow_action_esp: Unused,
        destroy_flow_action: Unused,
        create_flow_action_esp: Unused,
        modify_qp_rate_limit: Unused,
        alloc_parent_domain: Unused,
        dealloc_td: Unused,
        alloc_td: Unused,
        modify_cq: Unused,
        post_srq_ops: Unused,
        destroy_rwq_ind_table: Unused,
        create_rwq_ind_table: Unused,
        destroy_wq: Unused,
        modify_wq: Unused,
        create_wq: Unused,
        query_rt_values: Unused,
        create_cq_ex: Option<CreateCqEx>,
        priv_: *mut c_void,
        query_device_ex: Unused,
        ibv_destroy_flow: Unused,
        ABI_placeholder2: Unused,
        ibv_create_flow: Unused,
        ABI_placeholder1: Unused,
        open_qp: Unused,
        create_qp_ex: Option<CreateQpEx>,
        get_srq_num: Unused,
        create_srq_ex: Unused,
        open_xrcd: Unused,
        close_xrcd: Unused,
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
    /// `context` is a live context of libibverbs; `offset` is that of a member of type `Option<F>`,
    /// `F` being a function pointer.
    pub unsafe fn op<F>(context: *mut ibv_context, offset: usize) -> Option<F> {
        // SAFETY: the context is live.
        if unsafe { (*context).abi_compat } as usize != VERBS_ABI_IS_EXTENDED {
            return None;
        }
        let outer = context
            .cast::<u8>()
            .wrapping_sub(std::mem::offset_of!(verbs_context, context));
        // SAFETY: an extended context lies in a verbs_context, of which `sz` bytes up to its end
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
