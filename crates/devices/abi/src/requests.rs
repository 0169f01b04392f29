//! Work requests and completions.

use std::ffi::{c_int, c_uint, c_void};

use crate::mirror::mirror;
use crate::{ibv_ah, ibv_mr, ibv_mw};

mirror! {
    #[derive(Clone, Copy)]
    struct ibv_sge = "struct ibv_sge" {
        addr: u64,
        length: u32,
        lkey: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_data_buf = "struct ibv_data_buf" {
        addr: *mut c_void,
        length: usize,
    }

    #[derive(Clone, Copy)]
    struct ibv_mw_bind_info = "struct ibv_mw_bind_info" {
        mr: *mut ibv_mr,
        addr: u64,
        length: u64,
        mw_access_flags: c_uint,
    }

    #[derive(Clone, Copy)]
    struct ibv_mw_bind = "struct ibv_mw_bind" {
        wr_id: u64,
        send_flags: c_uint,
        bind_info: ibv_mw_bind_info,
    }

    #[derive(Clone, Copy)]
    struct ibv_send_wr_rdma = "__typeof__(((struct ibv_send_wr *)0)->wr.rdma)" {
        remote_addr: u64,
        rkey: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_send_wr_atomic = "__typeof__(((struct ibv_send_wr *)0)->wr.atomic)" {
        remote_addr: u64,
        compare_add: u64,
        swap: u64,
        rkey: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_send_wr_ud = "__typeof__(((struct ibv_send_wr *)0)->wr.ud)" {
        ah: *mut ibv_ah,
        remote_qpn: u32,
        remote_qkey: u32,
    }

    #[derive(Clone, Copy)]
    union ibv_send_wr_wr = "__typeof__(((struct ibv_send_wr *)0)->wr)" {
        rdma: ibv_send_wr_rdma,
        atomic: ibv_send_wr_atomic,
        ud: ibv_send_wr_ud,
    }

    #[derive(Clone, Copy)]
    struct ibv_send_wr_bind_mw = "__typeof__(((struct ibv_send_wr *)0)->bind_mw)" {
        mw: *mut ibv_mw,
        rkey: u32,
        bind_info: ibv_mw_bind_info,
    }

    /// `imm_data` (network byte order) is a union with `invalidate_rkey` in C, `bind_mw` with
    /// `tso`, and `qp_type` holds `xrc.remote_srqn`.
    #[derive(Clone, Copy)]
    struct ibv_send_wr = "struct ibv_send_wr" {
        wr_id: u64,
        next: *mut ibv_send_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        opcode: u32,
        send_flags: c_uint,
        imm_data: u32,
        wr: ibv_send_wr_wr,
        qp_type: u32,
        bind_mw: ibv_send_wr_bind_mw,
    }

    #[derive(Clone, Copy)]
    struct ibv_recv_wr = "struct ibv_recv_wr" {
        wr_id: u64,
        next: *mut ibv_recv_wr,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
    }

    /// `imm_data` (network byte order) is a union with `invalidated_rkey` in C.
    #[derive(Clone, Copy, Debug)]
    struct ibv_wc = "struct ibv_wc" {
        wr_id: u64,
        status: u32,
        opcode: u32,
        vendor_err: u32,
        byte_len: u32,
        imm_data: u32,
        qp_num: u32,
        src_qp: u32,
        wc_flags: c_uint,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
    }
}
