//! Completion queues.

use std::ffi::c_void;
use std::io;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use adverb_abi as abi;
use adverb_sysfs::{Driver, Sysfs};
use adverb_verbs::{CompletionQueue, CqId, CreateError, NotifyOn, PollError, WorkCompletion};

use crate::channel::{ChannelInner, VerbsChannel};
use crate::choice::Interface;
use crate::explain::object_error;
use crate::handle::Handle;
use crate::poll::{ExtendedPoll, Reach, poll_classic};

/// Empty polls in a row after which asynchronous events are read: about every millisecond.
const EMPTY_POLLS: u32 = 1 << 15;

#[derive(Debug)]
pub(crate) struct CqInner {
    pub(crate) raw: NonNull<abi::ibv_cq>,
    extended: Option<ExtendedPoll>,
    id: u32,
    entries: u32,
    failed: Arc<AtomicBool>,
    /// Empty polls since the last completion. Threads that poll at the same time may lose an
    /// increment, which only delays the look at events.
    empty_polls: AtomicU32,
    /// Whether a UD queue pair completes here: its receive completions have `src_qp`.
    pub(crate) datagrams: AtomicBool,
    events: Option<Events>,
    pub(crate) handle: Arc<Handle>,
}

/// The completion channel of the queue, and its events that are not acknowledged yet.
#[derive(Debug)]
struct Events {
    unacknowledged: Arc<AtomicU32>,
    channel: Arc<ChannelInner>,
}

// SAFETY: libibverbs locks its objects, so any thread may call it; the pointer is only passed to it.
unsafe impl Send for CqInner {}
// SAFETY: as for `Send`.
unsafe impl Sync for CqInner {}

impl Drop for CqInner {
    fn drop(&mut self) {
        let library = self.handle.library();
        let due = self.events.as_ref().map(|e| e.channel.forget(self.id));
        // SAFETY: its queue pairs hold an `Arc` of it, so none is left. `due` events were taken from
        // the channel and not acknowledged yet.
        unsafe {
            if let Some(due) = due.filter(|due| *due > 0) {
                (library.ibv_ack_cq_events)(self.raw.as_ptr(), due);
            }
            // `ibv_destroy_cq` waits until asynchronous events of the queue are acknowledged.
            self.handle.faults.collect(&self.handle.raw);
            (library.ibv_destroy_cq)(self.raw.as_ptr());
        }
        self.handle.faults.forget(self.id);
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct VerbsCq {
    pub(crate) inner: Arc<CqInner>,
}

impl VerbsCq {
    pub(crate) fn new(
        handle: &Arc<Handle>,
        entries: u32,
        channel: Option<&VerbsChannel>,
    ) -> Result<Self, CreateError> {
        let max = handle.caps.max_cqe;
        if !(1..=max).contains(&entries) {
            return Err(CreateError::OutOfRange {
                what: "completion queue entries",
                value: entries.into(),
                min: 1,
                max: max.into(),
            });
        }
        if channel.is_some_and(|channel| !Arc::ptr_eq(&channel.inner.handle, handle)) {
            return Err(CreateError::Foreign {
                what: "the completion channel",
            });
        }
        let id = handle.next_cq.fetch_add(1, Ordering::Relaxed);
        let channel = channel.map(|channel| channel.inner.clone());
        let made = match handle.polling {
            Interface::Classic => create(handle, (entries, id), channel.as_deref()),
            Interface::Extended => create_extended(handle, (entries, id), channel.as_deref()),
        };
        let (raw, extended) = made?;
        let events = channel.map(|channel| Events {
            unacknowledged: channel.register(id),
            channel,
        });
        // SAFETY: the queue was just created.
        let entries = unsafe { (*raw.as_ptr()).cqe } as u32;
        let inner = Arc::new(CqInner {
            raw,
            extended,
            id,
            entries,
            failed: handle.faults.register(id),
            empty_polls: AtomicU32::new(0),
            datagrams: AtomicBool::new(false),
            events,
            handle: handle.clone(),
        });
        Ok(VerbsCq { inner })
    }

    /// Reads asynchronous events: after an overrun or a device failure no completion arrives any more.
    #[cold]
    fn look_for_faults(&self) -> Result<usize, PollError> {
        let inner = &*self.inner;
        inner.empty_polls.store(0, Ordering::Relaxed);
        inner.handle.faults.collect(&inner.handle.raw);
        if inner.failed.load(Ordering::Relaxed) {
            return Err(PollError::Overrun {
                entries: inner.entries,
            });
        }
        if inner.handle.faults.device_failed() {
            let name = &inner.handle.name;
            return Err(PollError::Device(format!("{name} reports a fatal error")));
        }
        Ok(0)
    }
}

type Created = Result<(NonNull<abi::ibv_cq>, Option<ExtendedPoll>), CreateError>;

fn raw_channel(channel: Option<&ChannelInner>) -> *mut abi::ibv_comp_channel {
    channel.map_or(ptr::null_mut(), |channel| channel.raw.as_ptr())
}

fn name_of(id: u32) -> *mut c_void {
    ptr::without_provenance_mut(id as usize)
}

fn create(handle: &Handle, (entries, id): (u32, u32), channel: Option<&ChannelInner>) -> Created {
    let (context, channel) = (handle.raw.as_ptr(), raw_channel(channel));
    // SAFETY: the caller holds the context and the channel.
    let cq = unsafe {
        (handle.library().ibv_create_cq)(context, entries as i32, name_of(id), channel, 0)
    };
    let cq = NonNull::new(cq).ok_or_else(|| refused(entries))?;
    Ok((cq, None))
}

fn refused(entries: u32) -> CreateError {
    let action = format!("create a completion queue of {entries} entries");
    object_error(&action, io::Error::last_os_error())
}

/// Returns how many completions one poll of an extended queue of this device may take.
fn reach(handle: &Handle) -> Reach {
    match Sysfs::default().driver(&handle.raw.name()) {
        Ok(Some(Driver::Rxe)) => Reach::One,
        _ => Reach::All,
    }
}

fn create_extended(
    handle: &Handle,
    (entries, id): (u32, u32),
    channel: Option<&ChannelInner>,
) -> Created {
    type Create = unsafe extern "C" fn(
        *mut abi::ibv_context,
        *mut abi::ibv_cq_init_attr_ex,
    ) -> *mut abi::ibv_cq_ex;
    let unsupported = || handle.unsupported("extended completion queues (ibv_create_cq_ex)");
    let context = handle.raw.as_ptr();
    // SAFETY: the context is open; rdma-core declares this member with the type `Create`.
    let create = unsafe {
        abi::verbs_context::op::<Create>(context, offset_of!(abi::verbs_context, create_cq_ex))
    }
    .ok_or_else(unsupported)?;
    let mut attr = abi::ibv_cq_init_attr_ex {
        cqe: entries,
        cq_context: name_of(id),
        channel: raw_channel(channel),
        wc_flags: abi::IBV_WC_EX_WITH_BYTE_LEN
            | abi::IBV_WC_EX_WITH_IMM
            | abi::IBV_WC_EX_WITH_QP_NUM
            | abi::IBV_WC_EX_WITH_SRC_QP,
        ..abi::ibv_cq_init_attr_ex::zeroed()
    };
    // SAFETY: the caller holds the context and the channel; the structure is exclusive.
    let cq = unsafe { create(context, &raw mut attr) };
    let Some(cq) = NonNull::new(cq) else {
        return match io::Error::last_os_error().raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => Err(unsupported().into()),
            _ => Err(refused(entries)),
        };
    };
    // An `ibv_cq_ex` begins with the fields of an `ibv_cq` (ibv_cq_ex_to_cq).
    let raw = cq.cast();
    let Some(extended) = ExtendedPoll::of(cq, reach(handle)) else {
        // SAFETY: the queue was just created and nothing refers to it.
        unsafe { (handle.library().ibv_destroy_cq)(cq.as_ptr().cast()) };
        return Err(unsupported().into());
    };
    Ok((raw, Some(extended)))
}

impl CompletionQueue for VerbsCq {
    fn id(&self) -> CqId {
        CqId(self.inner.id)
    }

    fn entries(&self) -> u32 {
        self.inner.entries
    }

    #[inline]
    fn poll(&self, into: &mut [WorkCompletion]) -> Result<usize, PollError> {
        let inner = &*self.inner;
        let found = match &inner.extended {
            None => poll_classic(inner.raw, &inner.datagrams, into),
            Some(extended) => extended.poll(&inner.datagrams, into),
        };
        let found = match found {
            Ok(found) => found,
            // An event may report why it failed.
            Err(error) => return self.look_for_faults().and(Err(error)),
        };
        if found == 0 {
            let empty = inner.empty_polls.load(Ordering::Relaxed);
            inner.empty_polls.store(empty + 1, Ordering::Relaxed);
            if empty >= EMPTY_POLLS {
                return self.look_for_faults();
            }
        } else if inner.empty_polls.load(Ordering::Relaxed) != 0 {
            inner.empty_polls.store(0, Ordering::Relaxed);
        }
        Ok(found)
    }

    fn req_notify(&self, on: NotifyOn) -> Result<(), PollError> {
        let cq = self.inner.raw.as_ptr();
        // SAFETY: the queue, and so its context, is not destroyed yet.
        let op = unsafe { abi::ops((*cq).context) }.req_notify_cq;
        let op = op.ok_or_else(|| PollError::Device("the driver raises no events".into()))?;
        // SAFETY: the queue is not destroyed yet.
        let result = unsafe { op(cq, (on == NotifyOn::Solicited).into()) };
        crate::raw::check(result)
            .map_err(|error| PollError::Device(format!("arm the completion queue: {error}")))
    }

    fn ack_events(&self, events: u32) {
        let Some(of) = &self.inner.events else {
            return;
        };
        // Not more than were taken: the library would count the excess towards future events.
        let taken = of
            .unacknowledged
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |due| {
                Some(due.saturating_sub(events))
            })
            .unwrap_or(0);
        let count = taken.min(events);
        if count > 0 {
            // SAFETY: the queue is not destroyed yet; these events were taken and not acknowledged.
            unsafe {
                (self.inner.handle.library().ibv_ack_cq_events)(self.inner.raw.as_ptr(), count);
            }
        }
    }
}
