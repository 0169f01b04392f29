//! Extended queue pairs (`ibv_wr_*`) and completion queues (`ibv_start_poll` …).

use std::ffi::{c_int, c_uint, c_void};

use crate::mirror::mirror;
use crate::{
    ibv_ah, ibv_comp_channel, ibv_context, ibv_cq, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_pd,
    ibv_qp, ibv_qp_cap, ibv_sge, ibv_srq, ibv_xrcd,
};

type QpDo = Option<unsafe extern "C" fn(*mut ibv_qp_ex)>;
type QpRdma = Option<unsafe extern "C" fn(*mut ibv_qp_ex, rkey: u32, remote_addr: u64)>;
type CqRead<T> = Option<unsafe extern "C" fn(*mut ibv_cq_ex) -> T>;

mirror! {
    #[derive(Clone, Copy)]
    struct ibv_rx_hash_conf = "struct ibv_rx_hash_conf" {
        rx_hash_function: u8,
        rx_hash_key_len: u8,
        rx_hash_key: *mut u8,
        rx_hash_fields_mask: u64,
    }

    #[derive(Clone, Copy)]
    struct ibv_qp_init_attr_ex = "struct ibv_qp_init_attr_ex" {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: u32,
        sq_sig_all: c_int,
        comp_mask: u32,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        create_flags: u32,
        max_tso_header: u16,
        rwq_ind_tbl: *mut c_void,
        rx_hash_conf: ibv_rx_hash_conf,
        source_qpn: u32,
        send_ops_flags: u64,
    }

    struct ibv_qp_ex = "struct ibv_qp_ex" {
        qp_base: ibv_qp,
        comp_mask: u64,
        wr_id: u64,
        wr_flags: c_uint,
        wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64, u64)>,
        wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64)>,
        wr_bind_mw: Option<
            unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_mw, rkey: u32, *const ibv_mw_bind_info),
        >,
        wr_local_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, rkey: u32)>,
        wr_rdma_read: QpRdma,
        wr_rdma_write: QpRdma,
        wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
        wr_send: QpDo,
        wr_send_imm: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32)>,
        wr_send_inv: Option<unsafe extern "C" fn(*mut ibv_qp_ex, rkey: u32)>,
        wr_send_tso: Option<
            unsafe extern "C" fn(*mut ibv_qp_ex, header: *mut c_void, size: u16, mss: u16),
        >,
        wr_set_ud_addr: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)>,
        wr_set_xrc_srqn: Option<unsafe extern "C" fn(*mut ibv_qp_ex, remote_srqn: u32)>,
        wr_set_inline_data: Option<unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize)>,
        wr_set_inline_data_list:
            Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_data_buf)>,
        wr_set_sge: Option<unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
        wr_set_sge_list: Option<unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge)>,
        wr_start: QpDo,
        wr_complete: Option<unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int>,
        wr_abort: QpDo,
        wr_atomic_write:
            Option<unsafe extern "C" fn(*mut ibv_qp_ex, rkey: u32, remote_addr: u64, *const c_void)>,
    }

    #[derive(Clone, Copy)]
    struct ibv_poll_cq_attr = "struct ibv_poll_cq_attr" {
        comp_mask: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_cq_init_attr_ex = "struct ibv_cq_init_attr_ex" {
        cqe: u32,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: u32,
        wc_flags: u64,
        comp_mask: u32,
        flags: u32,
        parent_domain: *mut ibv_pd,
    }

    #[derive(Clone, Copy)]
    struct ibv_wc_tm_info = "struct ibv_wc_tm_info" {
        tag: u64,
        priv_: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_moderate_cq = "struct ibv_moderate_cq" {
        cq_count: u16,
        cq_period: u16,
    }

    #[derive(Clone, Copy)]
    struct ibv_modify_cq_attr = "struct ibv_modify_cq_attr" {
        attr_mask: u32,
        moderate: ibv_moderate_cq,
    }

    struct ibv_cq_ex = "struct ibv_cq_ex" {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
        comp_mask: u32,
        status: u32,
        wr_id: u64,
        start_poll: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int>,
        next_poll: CqRead<c_int>,
        end_poll: CqRead<()>,
        read_opcode: CqRead<u32>,
        read_vendor_err: CqRead<u32>,
        read_byte_len: CqRead<u32>,
        read_imm_data: CqRead<u32>,
        read_qp_num: CqRead<u32>,
        read_src_qp: CqRead<u32>,
        read_wc_flags: CqRead<c_uint>,
        read_slid: CqRead<u32>,
        read_sl: CqRead<u8>,
        read_dlid_path_bits: CqRead<u8>,
        read_completion_ts: CqRead<u64>,
        read_cvlan: CqRead<u16>,
        read_flow_tag: CqRead<u32>,
        read_tm_info: Option<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_wc_tm_info)>,
        read_completion_wallclock_ns: CqRead<u64>,
    }
}
