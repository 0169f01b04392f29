//! The functions of libibverbs and librdmacm that rsockets use. They are this library's own.

use std::ffi::{c_int, c_void};

use adverb_abi::{
    ibv_pd, ibv_qp_init_attr, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel,
};
use libc::sockaddr;

use crate::call::Refusal;

pub(super) use crate::cm::verbs::{
    ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel, ibv_destroy_cq,
};

unsafe extern "C" {
    pub(super) fn rdma_create_event_channel() -> *mut rdma_event_channel;
    pub(super) fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
    pub(super) fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        ps: u32,
    ) -> c_int;
    pub(super) fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    pub(super) fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
    pub(super) fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
    pub(super) fn rdma_resolve_addr(
        id: *mut rdma_cm_id,
        source: *mut sockaddr,
        to: *mut sockaddr,
        timeout_ms: c_int,
    ) -> c_int;
    pub(super) fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
    pub(super) fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    pub(super) fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    pub(super) fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int;
    pub(super) fn rdma_set_option(
        id: *mut rdma_cm_id,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        length: usize,
    ) -> c_int;
    pub(super) fn rdma_create_qp(
        id: *mut rdma_cm_id,
        pd: *mut ibv_pd,
        attr: *mut ibv_qp_init_attr,
    ) -> c_int;
    pub(super) fn rdma_destroy_qp(id: *mut rdma_cm_id);
}

unsafe extern "C-unwind" {
    pub(super) fn rdma_get_cm_event(
        channel: *mut rdma_event_channel,
        event: *mut *mut rdma_cm_event,
    ) -> c_int;
}

/// Returns the errno of a function that has failed, which has explained why.
pub(super) fn errno() -> c_int {
    let errno = std::io::Error::last_os_error().raw_os_error();
    errno.unwrap_or(libc::EIO)
}

/// Returns the refusal of a call because an object could not be created.
pub(super) fn failed(what: &str) -> Refusal {
    Refusal::new(errno(), format!("cannot create {what}"))
}
