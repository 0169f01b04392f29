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

use crate::call::{self, Refusal};
use crate::context::Context;
use crate::cq::Cq;
use crate::object::lock;
use crate::qp::Qp;
use crate::srq::Srq;

impl Context {
    /// Takes the next event as a read of `async_fd` would. Its object has one more event to acknowledge.
    fn take_async_event(&self) -> Result<ibv_async_event, Refusal> {
        loop {
            let mut byte = [0_u8];
            // SAFETY: reads one byte to `byte`.
            let read =
                unsafe { libc::read(self.async_events.as_raw_fd(), byte.as_mut_ptr().cast(), 1) };
            if read < 0 {
                let error = std::io::Error::last_os_error();
                return Err(Refusal::expected(error.raw_os_error().unwrap_or(libc::EIO)));
            }
            // Events of objects that were destroyed are gone.
            if let Some(event) = self
                .soft
                .async_event()?
                .and_then(|event| self.counted(event))
            {
                return Ok(event);
            }
        }
    }

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
unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    forward!(context => ibv_get_async_event(context, event));
    call::number("ibv_get_async_event", || {
        // SAFETY: the program passes an open context.
        let taken = unsafe { Context::of(context) }.take_async_event()?;
        // SAFETY: the program passes the address of an event.
        unsafe { event.write(taken) };
        Ok(0)
    })
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
