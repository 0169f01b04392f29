//! Objects and their attributes.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::mirror::mirror;
use crate::{ibv_context, ibv_context_ops};

mirror! {
    #[derive(Clone, Copy)]
    struct ibv_gid_global = "__typeof__(((union ibv_gid *)0)->global)" {
        subnet_prefix: u64,
        interface_id: u64,
    }

    #[derive(Clone, Copy)]
    union ibv_gid = "union ibv_gid" {
        raw: [u8; 16],
        global: ibv_gid_global,
    }

    #[derive(Clone, Copy)]
    struct ibv_gid_entry = "struct ibv_gid_entry" {
        gid: ibv_gid,
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        ndev_ifindex: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_device_attr = "struct ibv_device_attr" {
        fw_ver: [c_char; 64],
        node_guid: u64,
        sys_image_guid: u64,
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: c_int,
        max_qp_wr: c_int,
        device_cap_flags: c_uint,
        max_sge: c_int,
        max_sge_rd: c_int,
        max_cq: c_int,
        max_cqe: c_int,
        max_mr: c_int,
        max_pd: c_int,
        max_qp_rd_atom: c_int,
        max_ee_rd_atom: c_int,
        max_res_rd_atom: c_int,
        max_qp_init_rd_atom: c_int,
        max_ee_init_rd_atom: c_int,
        atomic_cap: u32,
        max_ee: c_int,
        max_rdd: c_int,
        max_mw: c_int,
        max_raw_ipv6_qp: c_int,
        max_raw_ethy_qp: c_int,
        max_mcast_grp: c_int,
        max_mcast_qp_attach: c_int,
        max_total_mcast_qp_attach: c_int,
        max_ah: c_int,
        max_fmr: c_int,
        max_map_per_fmr: c_int,
        max_srq: c_int,
        max_srq_wr: c_int,
        max_srq_sge: c_int,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
    }

    #[derive(Clone, Copy)]
    struct ibv_port_attr = "struct ibv_port_attr" {
        state: u32,
        max_mtu: u32,
        active_mtu: u32,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        port_cap_flags2: u16,
    }

    #[derive(Clone, Copy)]
    union ibv_async_event_element = "__typeof__(((struct ibv_async_event *)0)->element)" {
        cq: *mut ibv_cq,
        qp: *mut ibv_qp,
        srq: *mut ibv_srq,
        port_num: c_int,
    }

    #[derive(Clone, Copy)]
    struct ibv_async_event = "struct ibv_async_event" {
        element: ibv_async_event_element,
        event_type: u32,
    }

    struct ibv_pd = "struct ibv_pd" {
        context: *mut ibv_context,
        handle: u32,
    }

    struct ibv_mr = "struct ibv_mr" {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_global_route = "struct ibv_global_route" {
        dgid: ibv_gid,
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    #[derive(Clone, Copy)]
    struct ibv_ah_attr = "struct ibv_ah_attr" {
        grh: ibv_global_route,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    struct ibv_ah = "struct ibv_ah" {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        handle: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_srq_attr = "struct ibv_srq_attr" {
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_srq_init_attr = "struct ibv_srq_init_attr" {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
    }

    struct ibv_srq = "struct ibv_srq" {
        context: *mut ibv_context,
        srq_context: *mut c_void,
        pd: *mut ibv_pd,
        handle: u32,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        events_completed: u32,
    }

    struct ibv_comp_channel = "struct ibv_comp_channel" {
        context: *mut ibv_context,
        fd: c_int,
        refcnt: c_int,
    }

    struct ibv_cq = "struct ibv_cq" {
        context: *mut ibv_context,
        channel: *mut ibv_comp_channel,
        cq_context: *mut c_void,
        handle: u32,
        cqe: c_int,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        comp_events_completed: u32,
        async_events_completed: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_qp_cap = "struct ibv_qp_cap" {
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_qp_init_attr = "struct ibv_qp_init_attr" {
        qp_context: *mut c_void,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        cap: ibv_qp_cap,
        qp_type: u32,
        sq_sig_all: c_int,
    }

    #[derive(Clone, Copy)]
    struct ibv_qp_attr = "struct ibv_qp_attr" {
        qp_state: u32,
        cur_qp_state: u32,
        path_mtu: u32,
        path_mig_state: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: c_uint,
        cap: ibv_qp_cap,
        ah_attr: ibv_ah_attr,
        alt_ah_attr: ibv_ah_attr,
        pkey_index: u16,
        alt_pkey_index: u16,
        en_sqd_async_notify: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        rate_limit: u32,
    }

    struct ibv_qp = "struct ibv_qp" {
        context: *mut ibv_context,
        qp_context: *mut c_void,
        pd: *mut ibv_pd,
        send_cq: *mut ibv_cq,
        recv_cq: *mut ibv_cq,
        srq: *mut ibv_srq,
        handle: u32,
        qp_num: u32,
        state: u32,
        qp_type: u32,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        events_completed: u32,
    }
}

/// The operations of the context that an object belongs to, as the header's inline functions
/// reach them.
///
/// # Safety
/// `context` is the context of a live object of libibverbs.
#[inline]
pub unsafe fn ops<'a>(context: *const ibv_context) -> &'a ibv_context_ops {
    // SAFETY: the caller's; the table is part of the context and is not changed after opening.
    unsafe { &(*context).ops }
}
