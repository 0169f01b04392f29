//! Completion queues.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use adverb_abi::{ibv_comp_channel, ibv_context, ibv_cq, ibv_cq_ex, ibv_wc};
use adverb_softnic::SoftCq;
use adverb_verbs::{CompletionQueue as _, Context as _, NotifyOn, WorkCompletion};

use crate::activity;
use crate::activity::counts::CqCounts;
use crate::call::{self, Refusal};
use crate::channel::Channel;
use crate::context::Context;
use crate::convert::completion;
use crate::cq_ex;
use crate::explain;
use crate::object::{Object, Unacknowledged, Users, lock};

/// Number of completions that are converted at a time.
const BATCH: usize = 16;

/// A completion queue, behind its `ibv_cq_ex`, which begins as an `ibv_cq` does.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) soft: SoftCq,
    /// Queue pairs.
    pub(crate) users: Users,
    /// Completion events.
    pub(crate) events: Unacknowledged,
    /// Whether the program has taken a completion event, and not polled since.
    pub(crate) is_announced: AtomicBool,
    /// Asynchronous events.
    pub(crate) async_events: Unacknowledged,
    /// Set if it is from `ibv_create_cq_ex`.
    pub(crate) extended: OnceLock<cq_ex::Extended>,
    /// Set if the program is observed.
    pub(crate) counts: Option<Arc<CqCounts>>,
}

type CqObject = Object<ibv_cq_ex, Cq>;

/// The arguments of `ibv_create_cq`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqInit {
    pub(crate) entries: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) vector: u32,
}

impl Cq {
    /// Returns the queue behind a pointer from C.
    ///
    /// # Safety
    /// `cq` is from [`Cq::create`], and not destroyed within `'a`.
    #[inline]
    pub(crate) unsafe fn of<'a>(cq: *const ibv_cq) -> &'a Self {
        // SAFETY: the caller's.
        &unsafe { CqObject::of(cq.cast()) }.own
    }

    /// Creates a queue.
    ///
    /// # Safety
    /// `context` is open; the channel is NULL or a completion channel.
    pub(crate) unsafe fn create(
        context: *mut ibv_context,
        init: &CqInit,
    ) -> Result<*mut ibv_cq, Refusal> {
        // SAFETY: the caller's.
        let (own, vectors) = unsafe { (Context::of(context), (*context).num_comp_vectors as u32) };
        if init.vector >= vectors {
            let vector = init.vector;
            return Err(Refusal::invalid(format!(
                "invalid comp_vector {vector}: the device has {vectors}"
            )));
        }
        // SAFETY: the caller's.
        let channel = (!init.channel.is_null()).then(|| unsafe { Channel::of(init.channel) });
        let soft = own
            .soft
            .create_cq(init.entries, channel.map(|channel| &channel.soft))?;
        let id = soft.id().0;
        let c = ibv_cq_ex {
            context,
            channel: init.channel,
            cq_context: init.cq_context,
            handle: id,
            cqe: soft.entries() as c_int,
            ..ibv_cq_ex::zeroed()
        };
        let cq = Cq {
            soft,
            users: Users::default(),
            events: Unacknowledged::default(),
            is_announced: AtomicBool::new(false),
            async_events: Unacknowledged::default(),
            extended: OnceLock::new(),
            counts: activity::completion_queue(&own.counts),
        };
        let cq = Object::create(c, cq).cast();
        if let Some(channel) = channel {
            channel.users.add();
        }
        lock(&own.cqs).insert(id, cq);
        Ok(cq)
    }

    /// Destroys a queue, after its events were acknowledged.
    ///
    /// # Safety
    /// As for [`Cq::of`], and nothing uses the queue afterwards.
    unsafe fn destroy(cq: *mut ibv_cq) -> Result<(), Refusal> {
        // SAFETY: the caller's.
        let (own, channel, context) =
            unsafe { (Cq::of(cq), (*cq).channel, Context::of((*cq).context)) };
        own.users.check_none("the completion queue")?;
        let id = own.soft.id();
        lock(&context.cqs).remove(id.0);
        own.events.wait();
        own.async_events.wait();
        if !channel.is_null() {
            // SAFETY: the channel cannot be destroyed before its completion queues.
            let channel = unsafe { Channel::of(channel) };
            channel.soft.discard_events(id);
            channel.users.remove();
        }
        // SAFETY: the caller's.
        unsafe { CqObject::destroy(cq.cast()) };
        Ok(())
    }

    /// Returns its position in the record of what the program did.
    pub(crate) fn index(&self) -> usize {
        self.counts.as_ref().map_or(0, |counts| counts.index)
    }

    /// Takes up to `count` completions to `to`; returns their number.
    ///
    /// # Safety
    /// `to` has room for `count`.
    #[inline]
    pub(crate) unsafe fn poll(&self, count: usize, to: *mut ibv_wc) -> Result<usize, Refusal> {
        // SAFETY: the caller's.
        let taken = unsafe { self.take(count, to) }?;
        if let Some(counts) = &self.counts {
            let found = match taken {
                0 => &[],
                // SAFETY: `take` has written them.
                _ => unsafe { std::slice::from_raw_parts(to, taken) },
            };
            counts.polled(found);
        }
        Ok(taken)
    }

    /// As for [`Cq::poll`], without counting.
    ///
    /// # Safety
    /// As for [`Cq::poll`].
    #[inline]
    unsafe fn take(&self, count: usize, to: *mut ibv_wc) -> Result<usize, Refusal> {
        if self.is_announced.load(Ordering::Relaxed) {
            self.is_announced.store(false, Ordering::Relaxed);
        }
        // Most polls find at most one completion.
        let mut first = WorkCompletion::default();
        if count == 0 || self.soft.poll(std::slice::from_mut(&mut first))? == 0 {
            return Ok(0);
        }
        // SAFETY: the caller's.
        unsafe { to.write(explained(&first)) };
        let mut taken = 1;
        let mut batch = [WorkCompletion::default(); BATCH];
        while taken < count {
            let room = BATCH.min(count - taken);
            let found = match self.soft.poll(&mut batch[..room]) {
                Ok(0) | Err(_) => break,
                Ok(found) => found,
            };
            for found in &batch[..found] {
                // SAFETY: the caller's, and `taken` is below `count`.
                unsafe { to.add(taken).write(explained(found)) };
                taken += 1;
            }
            if found < room {
                break;
            }
        }
        Ok(taken)
    }
}

/// Converts a completion, and explains an error.
#[inline]
fn explained(found: &WorkCompletion) -> ibv_wc {
    if !found.status.is_success() {
        explain::completion(found);
    }
    completion(found)
}

/// `poll_cq` of the tables.
pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    call::quick_number("ibv_poll_cq", || {
        let count = usize::try_from(count)
            .map_err(|_| Refusal::invalid(format!("invalid num_entries {count}")))?;
        // SAFETY: the program passes a completion queue, and an array of `count` completions.
        let taken = unsafe { Cq::of(cq).poll(count, wc) }?;
        Ok(taken as c_int)
    })
}

/// `req_notify_cq` of the tables.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    call::status("ibv_req_notify_cq", || {
        let on = match solicited_only {
            0 => NotifyOn::Any,
            _ => NotifyOn::Solicited,
        };
        // SAFETY: the program passes a completion queue that it has created.
        let own = unsafe { Cq::of(cq) };
        if let Some(counts) = &own.counts {
            counts.notify_requested();
        }
        own.soft.req_notify(on)?;
        // Otherwise the event that the program has taken is about them.
        if !own.is_announced.load(Ordering::Relaxed) {
            own.soft.raise_for_unpolled();
        }
        // SAFETY: the program's queue, whose channel exists as long as the queue.
        unsafe {
            if !(*cq).channel.is_null() {
                Channel::of((*cq).channel).note_armed();
            }
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    forward!(context => ibv_create_cq(context, cqe, cq_context, channel, comp_vector));
    call::pointer("ibv_create_cq", || {
        let init = CqInit {
            entries: u32::try_from(cqe)
                .map_err(|_| Refusal::invalid(format!("invalid cqe {cqe}")))?,
            cq_context,
            channel,
            vector: comp_vector as u32,
        };
        // SAFETY: the program passes an open context, and NULL or a channel.
        unsafe { Cq::create(context, &init) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    forward!(cq => ibv_resize_cq(cq, cqe));
    call::status("ibv_resize_cq", || {
        let entries =
            u32::try_from(cqe).map_err(|_| Refusal::invalid(format!("invalid cqe {cqe}")))?;
        // SAFETY: the program passes a completion queue that it has created.
        unsafe { Cq::of(cq) }.soft.resize(entries)?;
        // SAFETY: as above.
        unsafe { (*cq).cqe = cqe };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    forward!(cq => ibv_destroy_cq(cq));
    // SAFETY: the program destroys a queue that it has created, once.
    call::status("ibv_destroy_cq", || unsafe { Cq::destroy(cq) })
}
