//! Asynchronous events: what the device reports beside completions.
//!
//! A completion queue that overran, or a device that failed, stays silent when polled. Queues that
//! have been found empty many times in a row look here. What is for the program waits until it asks.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use adverb_abi as abi;
use adverb_verbs::{AsyncEvent, Qpn, SrqId};
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
    /// Makes the context's events readable without waiting.
    pub(crate) fn watch(raw: &RawContext) -> io::Result<Self> {
        set_nonblocking(raw.async_fd())?;
        Ok(Faults::default())
    }

    /// Whether the device has failed.
    pub(crate) fn device_failed(&self) -> bool {
        self.device.load(Ordering::Relaxed)
    }

    /// The mark of the completion queue named `id`, set when it fails.
    pub(crate) fn register(&self, id: u32) -> Arc<AtomicBool> {
        let mark = Arc::new(AtomicBool::new(false));
        self.queues().insert(id, mark.clone());
        mark
    }

    pub(crate) fn forget(&self, id: u32) {
        self.queues().remove(&id);
    }

    /// The oldest event for the program that was collected.
    pub(crate) fn take_event(&self) -> Option<AsyncEvent> {
        self.events().pop_front()
    }

    pub(crate) fn forget_srq(&self, id: SrqId) {
        let of = AsyncEvent::SrqLimitReached(id);
        self.events().retain(|event| *event != of);
    }

    pub(crate) fn forget_qp(&self, qpn: Qpn) {
        let of = AsyncEvent::LastWqeReached(qpn);
        self.events().retain(|event| *event != of);
    }

    fn events(&self) -> std::sync::MutexGuard<'_, VecDeque<AsyncEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queues(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<AtomicBool>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what has been reported, without waiting.
    pub(crate) fn collect(&self, raw: &RawContext) {
        loop {
            let mut event = abi::ibv_async_event::zeroed();
            // SAFETY: the context is open, its descriptor does not block.
            if unsafe { (raw.library.ibv_get_async_event)(raw.as_ptr(), &raw mut event) } != 0 {
                return;
            }
            match event.event_type {
                abi::IBV_EVENT_CQ_ERR => {
                    // SAFETY: the event is of a queue, which is not destroyed before the event is
                    // acknowledged.
                    let id = unsafe { (*event.element.cq).cq_context } as usize as u32;
                    if let Some(mark) = self.queues().get(&id) {
                        mark.store(true, Ordering::Relaxed);
                    }
                }
                abi::IBV_EVENT_SRQ_LIMIT_REACHED => {
                    // SAFETY: the same of a shared receive queue.
                    let id = unsafe { (*event.element.srq).srq_context } as usize as u32;
                    let event = AsyncEvent::SrqLimitReached(SrqId(id));
                    self.events().push_back(event);
                }
                abi::IBV_EVENT_QP_LAST_WQE_REACHED => {
                    // SAFETY: the same of a queue pair.
                    let number = unsafe { (*event.element.qp).qp_num };
                    let event = Qpn::new(number).map(AsyncEvent::LastWqeReached);
                    self.events().extend(event);
                }
                abi::IBV_EVENT_DEVICE_FATAL => self.device.store(true, Ordering::Relaxed),
                _ => {}
            }
            // SAFETY: each event is acknowledged once; nothing of it is used after.
            unsafe { (raw.library.ibv_ack_async_event)(&raw mut event) };
        }
    }
}

/// Lets reads of `fd` return at once where there is nothing.
pub(crate) fn set_nonblocking(fd: i32) -> io::Result<()> {
    // SAFETY: the descriptor is the library's, open as long as its object, which the caller has.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
    Ok(())
}
