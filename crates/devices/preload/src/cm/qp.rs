//! Queue pairs of ids: created, and modified as the connection needs it.

use std::ffi::c_int;
use std::sync::Arc;

use super::cq::{create_cqs, destroy_cqs, failed};
use super::id::{Peer, Phase, Shared};
use super::{address, verbs, xrc};
use crate::call::{self, Refusal};
use crate::convert::mtu_code;
use crate::object::lock;
use adverb_abi::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU,
    IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RTR,
    IBV_QPS_RTS, IBV_QPT_RC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, ibv_pd, ibv_qp,
    ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex, rdma_cm_id, verbs_context,
};

/// `RDMA_UDP_QKEY`: the queue key of all UD services.
pub(super) const QKEY: u32 = 0x0123_4567;

/// Time after which a peer may repeat a message for which no receive was posted: 0.64 ms.
const RNR_TIMER: u8 = 12;

/// Smallest `max_inline_data` of a queue pair. Other devices round it up, and rdma_xclient relies on it.
const MIN_INLINE: u32 = 64;

/// Returns the attributes for a state, with their mask.
fn attributes(shared: &Shared, state: u32) -> Result<(ibv_qp_attr, u32), Refusal> {
    // SAFETY: the id is alive.
    let qp_type = unsafe { (*shared.c()).qp_type };
    let peer = lock(&shared.state).peer;
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = state;
    let mask = match (state, qp_type) {
        (IBV_QPS_INIT, IBV_QPT_UD) => {
            attr.port_num = 1;
            attr.qkey = QKEY;
            IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
        }
        (IBV_QPS_INIT, _) => {
            attr.port_num = 1;
            attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
            if is_reliable(qp_type) {
                attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
            }
            IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS
        }
        (IBV_QPS_RTR, IBV_QPT_UD) => 0,
        (IBV_QPS_RTS, IBV_QPT_UD) => IBV_QP_SQ_PSN,
        (IBV_QPS_RTR, _) => to_rtr(&mut attr, &peer, qp_type)?,
        (IBV_QPS_RTS, _) => to_rts(&mut attr, &peer, qp_type),
        _ => 0,
    };
    Ok((attr, mask | IBV_QP_STATE))
}

/// Whether queue pairs of this type acknowledge requests: RC and XRC.
fn is_reliable(qp_type: u32) -> bool {
    matches!(qp_type, IBV_QPT_RC | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV)
}

fn to_rtr(attr: &mut ibv_qp_attr, peer: &Peer, qp_type: u32) -> Result<u32, Refusal> {
    let (Some(gid), Some(mtu)) = (peer.gid, peer.mtu) else {
        return Err(Refusal::invalid(
            "the id is not connected: there is no peer",
        ));
    };
    let ip = std::net::IpAddr::from(gid.0).to_canonical();
    attr.ah_attr = address::ah_attr(ip, peer.traffic_class);
    attr.path_mtu = mtu_code(mtu);
    attr.dest_qp_num = peer.qpn;
    attr.rq_psn = peer.own_psn;
    let mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    // An XRC send queue pair has no responder.
    if !is_reliable(qp_type) || qp_type == IBV_QPT_XRC_SEND {
        return Ok(mask);
    }
    attr.max_dest_rd_atomic = peer.responder_resources;
    attr.min_rnr_timer = RNR_TIMER;
    Ok(mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
}

fn to_rts(attr: &mut ibv_qp_attr, peer: &Peer, qp_type: u32) -> u32 {
    attr.sq_psn = peer.starting_psn;
    if !is_reliable(qp_type) {
        return IBV_QP_SQ_PSN;
    }
    attr.timeout = peer.ack_timeout;
    if qp_type == IBV_QPT_XRC_RECV {
        return IBV_QP_SQ_PSN | IBV_QP_TIMEOUT;
    }
    attr.retry_cnt = peer.retry_count;
    attr.rnr_retry = peer.rnr_retry_count;
    attr.max_rd_atomic = peer.initiator_depth;
    IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
}

/// Moves the queue pair of an id through `states`.
fn modify(shared: &Shared, qp: *mut ibv_qp, states: &[u32]) -> Result<(), Refusal> {
    for state in states {
        let (mut attr, mask) = attributes(shared, *state)?;
        // SAFETY: the queue pair is the id's.
        let status = unsafe { verbs::ibv_modify_qp(qp, &raw mut attr, mask as c_int) };
        if status != 0 {
            return Err(Refusal::new(status, "the queue pair could not be modified"));
        }
    }
    Ok(())
}

/// Moves the queue pair of an id to RTS.
pub(super) fn connect(shared: &Arc<Shared>) -> Result<(), Refusal> {
    // SAFETY: the id is alive.
    let qp = unsafe { (*shared.c()).qp };
    modify(shared, qp, &[IBV_QPS_RTR, IBV_QPS_RTS])
}

/// Moves a queue pair to the error state, which flushes its requests.
pub(super) fn to_error(qp: *mut ibv_qp) {
    if qp.is_null() {
        return;
    }
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = IBV_QPS_ERR;
    // SAFETY: the queue pair is an id's. From RESET it does not go there, and has nothing to flush.
    unsafe { verbs::ibv_modify_qp(qp, &raw mut attr, IBV_QP_STATE as c_int) };
}

/// Creates the queue pair of an id by `make`, which gets the completion queues, and moves it to INIT (UD: RTS).
///
/// # Safety
/// `id` is alive.
unsafe fn create(
    id: *mut rdma_cm_id,
    base: &mut ibv_qp_init_attr,
    (pd, make): (*mut ibv_pd, &dyn Fn(&mut ibv_qp_init_attr) -> *mut ibv_qp),
) -> Result<(), Refusal> {
    // SAFETY: the caller's.
    unsafe {
        let shared = Shared::of(id)?;
        if (*id).verbs.is_null() {
            return Err(Refusal::invalid("the id is not bound to a device"));
        }
        if !(*id).qp.is_null() {
            return Err(Refusal::invalid("the id has a queue pair"));
        }
        if !pd.is_null() && (*pd).context != (*id).verbs {
            return Err(Refusal::invalid(
                "the protection domain is another device's",
            ));
        }
        let is_target = base.qp_type == IBV_QPT_XRC_RECV;
        let is_initiator = base.qp_type == IBV_QPT_XRC_SEND;
        let missing = |cq: *mut _, depth| std::ptr::eq(cq, std::ptr::null_mut()).then_some(depth);
        let cqs = (
            missing(base.send_cq, base.cap.max_send_wr).filter(|_| !is_target),
            missing(base.recv_cq, base.cap.max_recv_wr).filter(|_| !is_target && !is_initiator),
        );
        create_cqs(id, cqs).inspect_err(|_| destroy_cqs(id))?;
        if cqs.0.is_some() {
            base.send_cq = (*id).send_cq;
        } else if !is_target {
            (*id).send_cq = base.send_cq;
        }
        if cqs.1.is_some() {
            base.recv_cq = (*id).recv_cq;
        } else if !is_target && !is_initiator {
            (*id).recv_cq = base.recv_cq;
        }
        if base.srq.is_null() && !is_target && !is_initiator {
            base.srq = (*id).srq;
        }
        base.cap.max_inline_data = base.cap.max_inline_data.max(MIN_INLINE);
        let qp = make(base);
        if qp.is_null() {
            let refusal = failed("a queue pair");
            destroy_cqs(id);
            return Err(refusal);
        }
        (*id).qp_type = base.qp_type;
        let states: &[u32] = match base.qp_type {
            IBV_QPT_UD => &[IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS],
            _ => &[IBV_QPS_INIT],
        };
        if let Err(refusal) = modify(&shared, qp, states) {
            verbs::ibv_destroy_qp(qp);
            destroy_cqs(id);
            return Err(refusal);
        }
        if !pd.is_null() {
            (*id).pd = pd;
        }
        (*id).qp = qp;
    }
    Ok(())
}

/// Creates the queue pair of an id.
///
/// # Safety
/// `id` is alive; `pd` is NULL or a protection domain.
pub(super) unsafe fn create_plain(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
) -> Result<(), Refusal> {
    // SAFETY: the caller's.
    unsafe {
        Shared::of(id)?;
        let domain = if pd.is_null() { (*id).pd } else { pd };
        let context = (*id).verbs;
        let make = |base: &mut ibv_qp_init_attr| match base.qp_type {
            IBV_QPT_XRC_RECV => xrc::create_recv_qp(context, base),
            _ => verbs::ibv_create_qp(domain, base),
        };
        create(id, attr, (pd, &make))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    call::number("rdma_create_qp", || {
        // SAFETY: the program passes an id, NULL or a protection domain, and attributes.
        unsafe {
            let attr = attr.as_mut();
            let attr = attr.ok_or_else(|| Refusal::invalid("the attributes are NULL"))?;
            create_plain(id, pd, attr)?;
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    call::number("rdma_create_qp_ex", || {
        // SAFETY: the program passes an id and attributes.
        unsafe {
            let shared = Shared::of(id)?;
            let attr = attr.as_mut();
            let attr = attr.ok_or_else(|| Refusal::invalid("the attributes are NULL"))?;
            let has_pd = attr.comp_mask & adverb_abi::IBV_QP_INIT_ATTR_PD != 0;
            let pd = if has_pd {
                attr.pd
            } else {
                std::ptr::null_mut()
            };
            if pd.is_null() {
                attr.comp_mask |= adverb_abi::IBV_QP_INIT_ATTR_PD;
                attr.pd = (*id).pd;
            }
            let agent = shared.agent()?;
            let context = agent.context();
            let has_xrcd = attr.comp_mask & adverb_abi::IBV_QP_INIT_ATTR_XRCD != 0;
            if attr.qp_type == IBV_QPT_XRC_RECV && !has_xrcd {
                attr.comp_mask |= adverb_abi::IBV_QP_INIT_ATTR_XRCD;
                attr.xrcd = xrc::domain(context)?;
            }
            let place = std::mem::offset_of!(verbs_context, create_qp_ex);
            let operation = verbs_context::op::<
                unsafe extern "C" fn(
                    *mut adverb_abi::ibv_context,
                    *mut ibv_qp_init_attr_ex,
                ) -> *mut ibv_qp,
            >(context, place);
            let operation = operation.ok_or_else(|| Refusal::unsupported("ibv_create_qp_ex"))?;
            let mut base = ibv_qp_init_attr {
                qp_context: attr.qp_context,
                send_cq: attr.send_cq,
                recv_cq: attr.recv_cq,
                srq: attr.srq,
                cap: attr.cap,
                qp_type: attr.qp_type,
                sq_sig_all: attr.sq_sig_all,
            };
            let template = *attr;
            let make = |base: &mut ibv_qp_init_attr| {
                let mut attr = ibv_qp_init_attr_ex {
                    send_cq: base.send_cq,
                    recv_cq: base.recv_cq,
                    srq: base.srq,
                    cap: base.cap,
                    ..template
                };
                let qp = operation(context, &raw mut attr);
                base.cap = attr.cap;
                qp
            };
            create(id, &mut base, (pd, &make))?;
            (attr.send_cq, attr.recv_cq) = (base.send_cq, base.recv_cq);
            attr.cap = base.cap;
        }
        Ok(0)
    })
}

/// Destroys the queue pair of an id, if it has one.
///
/// # Safety
/// `id` is alive.
pub(super) unsafe fn destroy(id: *mut rdma_cm_id) {
    // SAFETY: the caller's.
    unsafe {
        if !(*id).qp.is_null() {
            let is_target = (*(*id).qp).qp_type == IBV_QPT_XRC_RECV;
            verbs::ibv_destroy_qp((*id).qp);
            (*id).qp = std::ptr::null_mut();
            // The completion queue of an XRC shared receive queue is destroyed after it.
            if !is_target || (*id).srq.is_null() {
                destroy_cqs(id);
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: the program passes an id.
    unsafe {
        if Shared::of(id).is_ok() {
            destroy(id);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    call::number("rdma_init_qp_attr", || {
        // SAFETY: the program passes an id, and attributes that name a state.
        unsafe {
            let shared = Shared::of(id)?;
            let phase = lock(&shared.state).phase;
            if phase == Phase::New {
                return Err(Refusal::invalid("the id is not bound to a device"));
            }
            let (found, bits) = attributes(&shared, (*attr).qp_state)?;
            attr.write(found);
            mask.write(bits as c_int);
        }
        Ok(0)
    })
}
