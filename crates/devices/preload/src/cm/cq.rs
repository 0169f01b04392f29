//! Completion queues that are created for an id.

use std::ffi::c_int;

use adverb_abi::rdma_cm_id;

use super::verbs;
use crate::call::Refusal;

/// Returns the error of a function of libibverbs that returned NULL.
pub(super) fn failed(what: &str) -> Refusal {
    let errno = std::io::Error::last_os_error().raw_os_error();
    Refusal::new(
        errno.unwrap_or(libc::EINVAL),
        format!("cannot create {what}"),
    )
}

/// Creates completion queues, each with a channel, for those that the program does not give.
///
/// # Safety
/// `id` is alive, and bound to a device.
pub(super) unsafe fn create_cqs(
    id: *mut rdma_cm_id,
    (send, recv): (Option<u32>, Option<u32>),
) -> Result<(), Refusal> {
    // SAFETY: the caller's.
    unsafe {
        let context = (*id).verbs;
        let make = move |depth: u32| {
            let channel = verbs::ibv_create_comp_channel(context);
            if channel.is_null() {
                return Err(failed("a completion channel"));
            }
            let depth = depth.max(1) as c_int;
            let cq = verbs::ibv_create_cq(context, depth, id.cast(), channel, 0);
            if cq.is_null() {
                let refusal = failed("a completion queue");
                verbs::ibv_destroy_comp_channel(channel);
                return Err(refusal);
            }
            Ok((channel, cq))
        };
        if let Some(depth) = send {
            ((*id).send_cq_channel, (*id).send_cq) = make(depth)?;
        }
        if let Some(depth) = recv {
            ((*id).recv_cq_channel, (*id).recv_cq) = make(depth)?;
        }
    }
    Ok(())
}

/// Destroys the completion queues that were created for an id.
///
/// # Safety
/// `id` is alive, and nothing uses its completion queues.
pub(super) unsafe fn destroy_cqs(id: *mut rdma_cm_id) {
    // SAFETY: the caller's.
    unsafe {
        let both = [
            (&raw mut (*id).send_cq, &raw mut (*id).send_cq_channel),
            (&raw mut (*id).recv_cq, &raw mut (*id).recv_cq_channel),
        ];
        for (cq, channel) in both {
            // Without a channel the queue is the program's.
            if !(*channel).is_null() {
                verbs::ibv_destroy_cq(*cq);
                verbs::ibv_destroy_comp_channel(*channel);
            }
            *cq = std::ptr::null_mut();
            *channel = std::ptr::null_mut();
        }
    }
}
