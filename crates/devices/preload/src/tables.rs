//! The operation tables of a context, which the header's inline functions call through.

use adverb_abi::verbs_context;

use crate::qp::{post, xrc};
use crate::unsupported as no;
use crate::{cq, cq_ex, device_ex, dm, domains, mr, mw, port, qp_ex, srq_ex, xrcd};

/// Fills the tables of a context. Each operation is present.
pub(crate) fn fill(c: &mut verbs_context) {
    fill_context(c);
    c.query_port = Some(port::query_port);
    c.advise_mr = Some(mr::advise_mr);
    c.alloc_null_mr = Some(mr::alloc_null_mr);
    c.read_counters = no::read_counters();
    c.attach_counters_point_flow = no::attach_counters_point_flow();
    c.create_counters = no::create_counters();
    c.destroy_counters = no::destroy_counters();
    c.reg_dm_mr = Some(dm::reg_dm_mr);
    c.alloc_dm = Some(dm::alloc_dm);
    c.free_dm = Some(dm::free_dm);
    c.modify_flow_action_esp = no::modify_flow_action_esp();
    c.destroy_flow_action = no::destroy_flow_action();
    c.create_flow_action_esp = no::create_flow_action_esp();
    c.modify_qp_rate_limit = no::modify_qp_rate_limit();
    c.alloc_parent_domain = Some(domains::alloc_parent_domain);
    c.dealloc_td = Some(domains::dealloc_td);
    c.alloc_td = Some(domains::alloc_td);
    c.modify_cq = no::modify_cq();
    c.post_srq_ops = no::post_srq_ops();
    c.destroy_rwq_ind_table = no::destroy_rwq_ind_table();
    c.create_rwq_ind_table = no::create_rwq_ind_table();
    c.destroy_wq = no::destroy_wq();
    c.modify_wq = no::modify_wq();
    c.create_wq = no::create_wq();
    c.create_cq_ex = Some(cq_ex::create_cq_ex);
    c.query_rt_values = Some(device_ex::query_rt_values);
    c.query_device_ex = Some(device_ex::query_device_ex);
    c.ibv_destroy_flow = no::destroy_flow();
    c.ibv_create_flow = no::create_flow();
    c.open_qp = Some(xrc::open_qp);
    c.create_qp_ex = Some(qp_ex::create_qp_ex);
    c.get_srq_num = Some(srq_ex::get_srq_num);
    c.create_srq_ex = Some(srq_ex::create_srq_ex);
    c.open_xrcd = Some(xrcd::open_xrcd);
    c.close_xrcd = Some(xrcd::close_xrcd);
}

/// The operations that have been there since the first version.
fn fill_context(c: &mut verbs_context) {
    let ops = &mut c.context.ops;
    ops.poll_cq = Some(cq::poll_cq);
    ops.req_notify_cq = Some(cq::req_notify_cq);
    ops.post_send = Some(post::post_send);
    ops.post_recv = Some(post::post_recv);
    ops.post_srq_recv = Some(post::post_srq_recv);
    ops.alloc_mw = Some(mw::alloc_mw);
    ops.bind_mw = Some(mw::bind_mw);
    ops.dealloc_mw = Some(mw::dealloc_mw);
}
