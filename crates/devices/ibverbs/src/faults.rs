//! Asynchronous events: what the device reports other than completions.
//!
//! Polling a completion queue that overran, or whose device failed, finds nothing. So a queue that was
//! empty many times in a row checks for such events here. Events for the program are kept until it
//! asks for them.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use adverb_abi as abi;
use adverb_verbs::{AsyncEvent, CqId, Qpn, SrqId};
use rustix::fs::OFlags;

use crate::raw::RawContext;

/// Faults reported so far.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    device: AtomicBool,
    queues: Mutex<HashMap<u32, Arc<AtomicBool>>>,
    /// Events for the program, oldest first.
    events: Mutex<VecDeque<AsyncEvent>>,
}

impl Faults {
    /// Makes reading the events of a context nonblocking.
    pub(crate) fn watch(raw: &RawContext) -> io::Result<Self> {
        set_nonblocking(raw.async_fd())?;
        Ok(Faults::default())
    }

    /// Whether the device has failed.
    pub(crate) fn device_failed(&self) -> bool {
        self.device.load(Ordering::Relaxed)
    }

    /// Registers a completion queue and returns the flag that is set when it overruns.
    pub(crate) fn register(&self, id: u32) -> Arc<AtomicBool> {
        let mark = Arc::new(AtomicBool::new(false));
        self.queues().insert(id, mark.clone());
        mark
    }

    pub(crate) fn forget(&self, id: u32) {
        self.queues().remove(&id);
        let of = AsyncEvent::CqError(CqId(id));
        self.events().retain(|event| *event != of);
    }

    /// Takes the oldest collected event for the program.
    pub(crate) fn take_event(&self) -> Option<AsyncEvent> {
        self.events().pop_front()
    }

    pub(crate) fn forget_srq(&self, id: SrqId) {
        let of = AsyncEvent::SrqLimitReached(id);
        self.events().retain(|event| *event != of);
    }

    pub(crate) fn forget_qp(&self, qpn: Qpn) {
        self.events().retain(|event| event.qpn() != Some(qpn));
    }

    fn events(&self) -> std::sync::MutexGuard<'_, VecDeque<AsyncEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queues(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<AtomicBool>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all pending events without blocking.
    pub(crate) fn collect(&self, raw: &RawContext) {
        loop {
            let mut event = abi::ibv_async_event::zeroed();
            // SAFETY: the context is open; its descriptor does not block.
            if unsafe { (raw.library.ibv_get_async_event)(raw.as_ptr(), &raw mut event) } != 0 {
                return;
            }
            match event.event_type {
                abi::IBV_EVENT_CQ_ERR => {
                    // SAFETY: for this type the event has a CQ, whose destruction waits until the event
                    // is acknowledged.
                    let id = unsafe { (*event.element.cq).cq_context } as usize as u32;
                    if let Some(mark) = self.queues().get(&id) {
                        mark.store(true, Ordering::Relaxed);
                    }
                    self.events().push_back(AsyncEvent::CqError(CqId(id)));
                }
                abi::IBV_EVENT_SRQ_LIMIT_REACHED => {
                    // SAFETY: for this type the event has an SRQ, whose destruction waits, too.
                    let id = unsafe { (*event.element.srq).srq_context } as usize as u32;
                    let event = AsyncEvent::SrqLimitReached(SrqId(id));
                    self.events().push_back(event);
                }
                abi::IBV_EVENT_DEVICE_FATAL => self.device.store(true, Ordering::Relaxed),
                of_qp => {
                    if let Some(kind) = qp_event(of_qp) {
                        // SAFETY: for these types the event has a queue pair, whose destruction waits, too.
                        let number = unsafe { (*event.element.qp).qp_num };
                        self.events().extend(Qpn::new(number).map(kind));
                    }
                }
            }
            // SAFETY: each event is acknowledged once and not used afterwards.
            unsafe { (raw.library.ibv_ack_async_event)(&raw mut event) };
        }
    }
}

/// Returns how an event of a queue pair is made from its number; `None` for events that programs do not act on.
fn qp_event(event_type: u32) -> Option<fn(Qpn) -> AsyncEvent> {
    Some(match event_type {
        abi::IBV_EVENT_QP_LAST_WQE_REACHED => AsyncEvent::LastWqeReached,
        abi::IBV_EVENT_QP_ACCESS_ERR => AsyncEvent::QpAccessError,
        abi::IBV_EVENT_QP_REQ_ERR => AsyncEvent::QpRequestError,
        abi::IBV_EVENT_COMM_EST => AsyncEvent::CommunicationEstablished,
        _ => return None,
    })
}

/// Makes reads of `fd` nonblocking.
pub(crate) fn set_nonblocking(fd: i32) -> io::Result<()> {
    // SAFETY: the descriptor belongs to an object of the library that the caller holds.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
    Ok(())
}
