//! Asynchronous events.

use std::ffi::c_int;
use std::os::fd::AsRawFd as _;

use adverb_abi::{
    IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL,
    IBV_EVENT_GID_CHANGE, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL,
    IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SM_CHANGE, IBV_EVENT_SQ_DRAINED,
    IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED, ibv_async_event, ibv_async_event_element,
    ibv_context, ibv_pd,
};
use adverb_verbs::{AsyncEvent, Context as _};

use crate::call;
use crate::context::Context;
use crate::cq::Cq;
use crate::object::lock;
use crate::qp::Qp;
use crate::srq::Srq;

impl Context {
    /// Converts an event, and counts it as taken; `None` if its object was destroyed.
    fn counted(&self, event: AsyncEvent) -> Option<ibv_async_event> {
        let (element, event_type) = match event {
            AsyncEvent::SrqLimitReached(id) => {
                let srqs = lock(&self.srqs);
                let srq = srqs.get(id.0)?;
                // SAFETY: destroying the queue removes it from the table, which is locked.
                unsafe { Srq::of(srq) }.events.taken();
                (ibv_async_event_element { srq }, IBV_EVENT_SRQ_LIMIT_REACHED)
            }
            AsyncEvent::CqError(id) => {
                let cqs = lock(&self.cqs);
                let cq = cqs.get(id.0)?;
                // SAFETY: as for a shared receive queue.
                unsafe { Cq::of(cq) }.async_events.taken();
                (ibv_async_event_element { cq }, IBV_EVENT_CQ_ERR)
            }
            event => {
                let qps = lock(&self.qps);
                let qp = qps.get(event.qpn()?.get())?;
                let event_type = match event {
                    AsyncEvent::LastWqeReached(_) => IBV_EVENT_QP_LAST_WQE_REACHED,
                    AsyncEvent::QpAccessError(_) => IBV_EVENT_QP_ACCESS_ERR,
                    AsyncEvent::QpRequestError(_) => IBV_EVENT_QP_REQ_ERR,
                    AsyncEvent::CommunicationEstablished(_) => IBV_EVENT_COMM_EST,
                    _ => return None,
                };
                // SAFETY: as for a shared receive queue.
                unsafe { Qp::of(qp) }.events.taken();
                (ibv_async_event_element { qp }, event_type)
            }
        };
        Some(ibv_async_event {
            element,
            event_type,
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    forward!(context => "C-unwind" ibv_get_async_event(context, event));
    // SAFETY: the program passes an open context and the address of an event. The closure has nothing to drop.
    unsafe {
        let context = Context::of(context);
        let fd = context.async_events.as_raw_fd();
        call::reading("ibv_get_async_event", fd, |_: [u8; 8]| {
            // Events of objects that were destroyed are gone.
            let next = context.soft.async_event()?;
            let Some(taken) = next.and_then(|next| context.counted(next)) else {
                return Ok(false);
            };
            event.write(taken);
            Ok(true)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the program passes an event that it has taken.
    let ibv_async_event {
        element,
        event_type,
    } = unsafe { *event };
    let has_object = !matches!(
        event_type,
        IBV_EVENT_DEVICE_FATAL
            ..=IBV_EVENT_SM_CHANGE | IBV_EVENT_CLIENT_REREGISTER | IBV_EVENT_GID_CHANGE
    );
    if has_object {
        // SAFETY: the element is a pointer to an object, and each begins with its context.
        let object: *mut ibv_pd = unsafe { element.qp }.cast();
        forward!(object => ibv_ack_async_event(event));
    }
    // SAFETY: the object is not destroyed before; the type of the event determines its kind.
    let acknowledged = unsafe {
        match event_type {
            IBV_EVENT_CQ_ERR => &Cq::of(element.cq).async_events,
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => &Srq::of(element.srq).events,
            IBV_EVENT_QP_FATAL..=IBV_EVENT_SQ_DRAINED | IBV_EVENT_QP_LAST_WQE_REACHED => {
                &Qp::of(element.qp).events
            }
            _ => return,
        }
    };
    acknowledged.acknowledge(1);
}
