//! Explains errors that the device reports by completions: the cause in a local SGE when it is posted, and the
//! meaning of a status when it is polled. All lines need `ADVERB_EXPLAIN=1`.

use adverb_softnic::{SoftPd, SoftQp};
use adverb_verbs::{
    AccessFlags, QueuePair as _, RecvRequest, SendFlags, SendRequest, Sge, WcStatus, WorkCompletion,
};

use crate::call::{explains, note};

/// Explains SGEs of send requests that the device will not access. A request with more SGEs than the queue pair takes is
/// refused, and may not have them.
#[inline]
pub(crate) fn sends(call: &str, pd: &SoftPd, qp: &SoftQp, requests: &[SendRequest<'_>]) {
    if !explains() {
        return;
    }
    for request in requests {
        let need = match request.operation.writes_local_memory() {
            true => AccessFlags::LOCAL_WRITE,
            false => AccessFlags::empty(),
        };
        let is_refused = request.sges.len() > qp.caps().max_send_sge as usize;
        if !is_refused && !request.flags.contains(SendFlags::INLINE) {
            sges(call, pd, request.sges, need);
        }
    }
}

/// Explains SGEs of receive requests that the device will not access, as for [`sends`].
#[inline]
pub(crate) fn receives(
    call: &str,
    pd: &SoftPd,
    max_sge: impl FnOnce() -> u32,
    requests: &[RecvRequest<'_>],
) {
    if !explains() {
        return;
    }
    let max_sge = max_sge() as usize;
    for request in requests.iter().filter(|r| r.sges.len() <= max_sge) {
        sges(call, pd, request.sges, AccessFlags::LOCAL_WRITE);
    }
}

#[cold]
fn sges(call: &str, pd: &SoftPd, sges: &[Sge<'_>], need: AccessFlags) {
    for (index, sge) in sges.iter().enumerate().filter(|(_, sge)| sge.length() > 0) {
        if let Err(error) = pd.check_sge(sge, need) {
            note(
                call,
                &format!("SGE {index}: {error} [the request will fail]"),
            );
        }
    }
}

/// Explains a completion with an error. Flushed requests are not explained: the request that failed before is.
#[cold]
pub(crate) fn completion(completion: &WorkCompletion) {
    if !explains() {
        return;
    }
    let Some(cause) = cause(completion.status) else {
        return;
    };
    let (qpn, status) = (completion.qp_num.get(), completion.status);
    note(
        "ibv_poll_cq",
        &format!("queue pair {qpn:#x}: {cause} [{status}]"),
    );
}

const fn cause(status: WcStatus) -> Option<&'static str> {
    Some(match status {
        WcStatus::LocLenErr => "a message is longer than the receive's buffer, or than the maximum",
        WcStatus::LocProtErr => {
            "an SGE has an unknown lkey, is outside its region, or its region belongs to another protection domain or \
             lacks IBV_ACCESS_LOCAL_WRITE"
        }
        WcStatus::LocQpOpErr => {
            "READ or an atomic operation with max_rd_atomic 0, or the key of a local invalidate is not that of a bound \
             type 2 memory window"
        }
        WcStatus::MwBindErr => {
            "the memory window was not bound: the queue pair, the window and the region need the same protection domain, \
             the region IBV_ACCESS_MW_BIND (and IBV_ACCESS_LOCAL_WRITE if peers may write) and the whole range; the new \
             key differs from the window's in the low 8 bits only; a type 2 window is bound once until it is invalidated, \
             and not empty; a type 1 window is not zero-based"
        }
        WcStatus::RemInvReqErr => {
            "the peer's receive is shorter than the message, or the peer's max_dest_rd_atomic is 0, or (XRC) the peer's \
             domain has no shared receive queue with this number, or the address of an atomic operation is not a multiple \
             of 8"
        }
        WcStatus::RemAccessErr => {
            "the peer has no region with this rkey that contains the range, or its access flags or those of its queue \
             pair (qp_access_flags) do not allow the operation, or they have different protection domains"
        }
        WcStatus::RemOpErr => {
            "the peer could not place the message: an SGE of its receive has a wrong lkey, range or access flags"
        }
        WcStatus::RetryExcErr => {
            "the peer did not answer within timeout and retry_cnt: see that it exists, that its queue pair is in RTR \
             or RTS, and that both sides have each other's queue pair number and GID"
        }
        WcStatus::RnrRetryExcErr => {
            "the peer posted no receive within its min_rnr_timer and rnr_retry"
        }
        _ => return None,
    })
}
