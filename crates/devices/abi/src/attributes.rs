//! Attributes of the extended verbs, and objects that programs reach only through the extended
//! operation table.
//!
//! Flow rules (`ibv_flow`) are not mirrored: they are opaque in the operation table.

use std::ffi::{c_int, c_void};

use crate::mirror::mirror;
use crate::{ibv_context, ibv_cq, ibv_device_attr, ibv_pd, ibv_recv_wr, ibv_srq_attr};

type PostWqRecv =
    unsafe extern "C" fn(*mut ibv_wq, *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int;
type Alloc =
    unsafe extern "C" fn(*mut ibv_pd, *mut c_void, size: usize, align: usize, u64) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, memory: *mut c_void, u64);
type ToDm = unsafe extern "C" fn(*mut ibv_dm, offset: u64, *const c_void, usize) -> c_int;
type FromDm = unsafe extern "C" fn(*mut c_void, *mut ibv_dm, offset: u64, usize) -> c_int;

mirror! {
    #[derive(Clone, Copy)]
    struct ibv_query_device_ex_input = "struct ibv_query_device_ex_input" {
        comp_mask: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_odp_transport_caps =
        "__typeof__(((struct ibv_odp_caps *)0)->per_transport_caps)" {
        rc_odp_caps: u32,
        uc_odp_caps: u32,
        ud_odp_caps: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_odp_caps = "struct ibv_odp_caps" {
        general_caps: u64,
        per_transport_caps: ibv_odp_transport_caps,
    }

    #[derive(Clone, Copy)]
    struct ibv_tso_caps = "struct ibv_tso_caps" {
        max_tso: u32,
        supported_qpts: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_rss_caps = "struct ibv_rss_caps" {
        supported_qpts: u32,
        max_rwq_indirection_tables: u32,
        max_rwq_indirection_table_size: u32,
        rx_hash_fields_mask: u64,
        rx_hash_function: u8,
    }

    #[derive(Clone, Copy)]
    struct ibv_packet_pacing_caps = "struct ibv_packet_pacing_caps" {
        qp_rate_limit_min: u32,
        qp_rate_limit_max: u32,
        supported_qpts: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_tm_caps = "struct ibv_tm_caps" {
        max_rndv_hdr_size: u32,
        max_num_tags: u32,
        flags: u32,
        max_ops: u32,
        max_sge: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_cq_moderation_caps = "struct ibv_cq_moderation_caps" {
        max_cq_count: u16,
        max_cq_period: u16,
    }

    #[derive(Clone, Copy)]
    struct ibv_pci_atomic_caps = "struct ibv_pci_atomic_caps" {
        fetch_add: u16,
        swap: u16,
        compare_swap: u16,
    }

    #[derive(Clone, Copy)]
    struct ibv_device_attr_ex = "struct ibv_device_attr_ex" {
        orig_attr: ibv_device_attr,
        comp_mask: u32,
        odp_caps: ibv_odp_caps,
        completion_timestamp_mask: u64,
        hca_core_clock: u64,
        device_cap_flags_ex: u64,
        tso_caps: ibv_tso_caps,
        rss_caps: ibv_rss_caps,
        max_wq_type_rq: u32,
        packet_pacing_caps: ibv_packet_pacing_caps,
        raw_packet_caps: u32,
        tm_caps: ibv_tm_caps,
        cq_mod_caps: ibv_cq_moderation_caps,
        max_dm_size: u64,
        pci_atomic_caps: ibv_pci_atomic_caps,
        xrc_odp_caps: u32,
        phys_port_cnt_ex: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_values_ex = "struct ibv_values_ex" {
        comp_mask: u32,
        raw_clock: libc::timespec,
    }

    #[derive(Clone, Copy)]
    struct ibv_td_init_attr = "struct ibv_td_init_attr" {
        comp_mask: u32,
    }

    struct ibv_td = "struct ibv_td" {
        context: *mut ibv_context,
    }

    /// `td` may be null. The allocators serve the memory of queues.
    #[derive(Clone, Copy)]
    struct ibv_parent_domain_init_attr = "struct ibv_parent_domain_init_attr" {
        pd: *mut ibv_pd,
        td: *mut ibv_td,
        comp_mask: u32,
        alloc: Option<Alloc>,
        free: Option<Free>,
        pd_context: *mut c_void,
    }

    struct ibv_mw = "struct ibv_mw" {
        context: *mut ibv_context,
        pd: *mut ibv_pd,
        rkey: u32,
        handle: u32,
        type_: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_xrcd_init_attr = "struct ibv_xrcd_init_attr" {
        comp_mask: u32,
        fd: c_int,
        oflags: c_int,
    }

    struct ibv_xrcd = "struct ibv_xrcd" {
        context: *mut ibv_context,
    }

    #[derive(Clone, Copy)]
    struct ibv_tm_cap = "struct ibv_tm_cap" {
        max_num_tags: u32,
        max_ops: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_srq_init_attr_ex = "struct ibv_srq_init_attr_ex" {
        srq_context: *mut c_void,
        attr: ibv_srq_attr,
        comp_mask: u32,
        srq_type: u32,
        pd: *mut ibv_pd,
        xrcd: *mut ibv_xrcd,
        cq: *mut ibv_cq,
        tm_cap: ibv_tm_cap,
    }

    #[derive(Clone, Copy)]
    struct ibv_qp_open_attr = "struct ibv_qp_open_attr" {
        comp_mask: u32,
        qp_num: u32,
        xrcd: *mut ibv_xrcd,
        qp_context: *mut c_void,
        qp_type: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_qp_rate_limit_attr = "struct ibv_qp_rate_limit_attr" {
        rate_limit: u32,
        max_burst_sz: u32,
        typical_pkt_sz: u16,
        comp_mask: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_ece = "struct ibv_ece" {
        vendor_id: u32,
        options: u32,
        comp_mask: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_wq_init_attr = "struct ibv_wq_init_attr" {
        wq_context: *mut c_void,
        wq_type: u32,
        max_wr: u32,
        max_sge: u32,
        pd: *mut ibv_pd,
        cq: *mut ibv_cq,
        comp_mask: u32,
        create_flags: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_wq_attr = "struct ibv_wq_attr" {
        attr_mask: u32,
        wq_state: u32,
        curr_wq_state: u32,
        flags: u32,
        flags_mask: u32,
    }

    struct ibv_wq = "struct ibv_wq" {
        context: *mut ibv_context,
        wq_context: *mut c_void,
        pd: *mut ibv_pd,
        cq: *mut ibv_cq,
        wq_num: u32,
        handle: u32,
        state: u32,
        wq_type: u32,
        post_recv: Option<PostWqRecv>,
        mutex: libc::pthread_mutex_t,
        cond: libc::pthread_cond_t,
        events_completed: u32,
        comp_mask: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_rwq_ind_table_init_attr = "struct ibv_rwq_ind_table_init_attr" {
        log_ind_tbl_size: u32,
        ind_tbl: *mut *mut ibv_wq,
        comp_mask: u32,
    }

    struct ibv_counters = "struct ibv_counters" {
        context: *mut ibv_context,
    }

    #[derive(Clone, Copy)]
    struct ibv_counter_attach_attr = "struct ibv_counter_attach_attr" {
        counter_desc: u32,
        index: u32,
        comp_mask: u32,
    }

    #[derive(Clone, Copy)]
    struct ibv_alloc_dm_attr = "struct ibv_alloc_dm_attr" {
        length: usize,
        log_align_req: u32,
        comp_mask: u32,
    }

    struct ibv_dm = "struct ibv_dm" {
        context: *mut ibv_context,
        memcpy_to_dm: Option<ToDm>,
        memcpy_from_dm: Option<FromDm>,
        comp_mask: u32,
        handle: u32,
    }
}
