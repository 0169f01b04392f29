//! Completion queues.
//!
//! Completions come from two sides. Those of this process's own requests lie in a private ring,
//! since the requester's CPU carries them out. Those of receives lie in the receive rings of the
//! queue pairs, each with one producer, the connected peer: so any number of processes complete
//! into one queue without a lock or a shared tail, and one that dies blocks nobody. Polling takes
//! from the private ring first, then from the receive rings in turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_verbs::{
    CompletionQueue, CqId, CreateError, Imm, NotifyOn, PollError, Qpn, WcFlags, WcOpcode, WcStatus,
    WorkCompletion, WrId,
};
use spin::mutex::SpinMutex;

use crate::channel::SoftChannel;
use crate::layout::CqEntry;
use crate::notify::Urgency;
use crate::port::{Port, TableEntry, lock};
use crate::ring::{Arrival, RecvRing};

/// Most entries of a completion queue.
pub(crate) const MAX_CQE: u32 = 1 << 22;

/// A receive queue as its owner sees it, shared by the queue pair (posts) and the completion
/// queue (takes).
#[derive(Debug)]
pub(crate) struct RecvQueue {
    pub(crate) ring: RecvRing<'static>,
    pub(crate) wr_ids: Box<[AtomicU64]>,
    /// Receives taken in this life.
    pub(crate) taken: AtomicU64,
    pub(crate) qpn: Qpn,
}

impl RecvQueue {
    fn wr_id(&self, position: u64) -> WrId {
        WrId(
            self.wr_ids[(position & (self.wr_ids.len() as u64 - 1)) as usize]
                .load(Ordering::Relaxed),
        )
    }

    /// Takes the completion at `position`, if it is there.
    #[inline]
    fn take(&self, position: u64) -> Option<WorkCompletion> {
        let arrival = self.ring.arrival(position)?;
        let completion = self.completion(position, arrival);
        self.count_taken();
        Some(completion)
    }

    fn count_taken(&self) {
        self.taken
            .store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    #[inline]
    fn completion(&self, position: u64, arrival: Arrival) -> WorkCompletion {
        WorkCompletion {
            wr_id: self.wr_id(position),
            status: match arrival.status {
                0 => WcStatus::Success,
                code => WcStatus::from_code(code.into()),
            },
            opcode: if arrival.is_write {
                WcOpcode::RecvRdmaWithImm
            } else {
                WcOpcode::Recv
            },
            byte_len: arrival.byte_len,
            imm: arrival.imm.map(Imm),
            qp_num: self.qpn,
            flags: if arrival.imm.is_some() {
                WcFlags::WITH_IMM
            } else {
                WcFlags::empty()
            },
        }
    }
}

/// Send queue slots that the program has got back.
#[derive(Debug, Default)]
pub(crate) struct SendRetired(pub(crate) AtomicU64);

/// A completion in the private ring.
#[derive(Clone, Copy, Debug)]
struct Cqe {
    completion: WorkCompletion,
    /// Which attached sender gets slots back when this is polled, and up to which request.
    retire: Option<(u32, u64)>,
}

#[derive(Debug)]
struct Receiver {
    queue: Arc<RecvQueue>,
    next: u64,
}

#[derive(Debug, Default)]
struct CqState {
    ring: VecDeque<Cqe>,
    overrun: bool,
    senders: Vec<Option<Arc<SendRetired>>>,
    receivers: Vec<Receiver>,
    /// The receiver to look at first.
    turn: usize,
}

#[derive(Debug)]
pub(crate) struct CqInner {
    pub(crate) port: Arc<Port>,
    pub(crate) index: u32,
    entries: u32,
    channel: Option<SoftChannel>,
    state: SpinMutex<CqState>,
}

/// A completion queue of the user-space NIC.
#[derive(Clone, Debug)]
pub struct SoftCq {
    pub(crate) inner: Arc<CqInner>,
}

impl SoftCq {
    pub(crate) fn new(
        port: &Arc<Port>,
        entries: u32,
        channel: Option<&SoftChannel>,
    ) -> Result<Self, CreateError> {
        if entries == 0 || entries > MAX_CQE {
            let (value, max) = (entries.into(), MAX_CQE.into());
            return Err(CreateError::OutOfRange {
                what: "completion queue entries",
                value,
                min: 1,
                max,
            });
        }
        if channel.is_some_and(|channel| !channel.inner.belongs_to(port)) {
            return Err(CreateError::Foreign {
                what: "the completion channel",
            });
        }
        let limit = crate::layout::MAX_CQ.into();
        let exhausted = CreateError::Exhausted {
            what: "completion queues",
            limit,
        };
        let index = lock(&port.cq_indices).take().ok_or(exhausted)?;
        port.reserve_entry(TableEntry::Cq(index)).map_err(|e| {
            lock(&port.cq_indices).give(index);
            port.no_room("make a completion queue", e)
        })?;
        let inner = CqInner {
            port: port.clone(),
            index,
            entries,
            channel: channel.cloned(),
            state: SpinMutex::default(),
        };
        let entry = inner.entry();
        entry.arming.armed.disarm();
        entry
            .channel
            .store(channel.map_or(0, |c| c.inner.number + 1), Ordering::Release);
        inner
            .state
            .lock()
            .ring
            .reserve(entries.min(1 << 14) as usize);
        Ok(SoftCq {
            inner: Arc::new(inner),
        })
    }
}

impl CqInner {
    fn entry(&self) -> &CqEntry {
        self.port.cq_entry(self.index)
    }

    /// Adds a queue pair whose sends complete here; returns its name for [`CqInner::push_send`].
    pub(crate) fn attach_sender(&self, retired: Arc<SendRetired>) -> u32 {
        let mut state = self.state.lock();
        let free = state.senders.iter().position(Option::is_none);
        let at = free.unwrap_or(state.senders.len());
        if at == state.senders.len() {
            state.senders.push(Some(retired));
        } else {
            state.senders[at] = Some(retired);
        }
        at as u32
    }

    /// Adds a queue pair's receive queue, from position `first` on.
    pub(crate) fn attach_receiver(&self, queue: Arc<RecvQueue>, first: u64) {
        self.state
            .lock()
            .receivers
            .push(Receiver { queue, next: first });
    }

    /// Removes a queue pair whose sends complete here.
    pub(crate) fn detach_sender(&self, sender: u32) {
        self.state.lock().senders[sender as usize] = None;
    }

    /// Forgets a queue pair's completions and its receive queue, as destroying and resetting do.
    pub(crate) fn purge(&self, qpn: Qpn) {
        let mut state = self.state.lock();
        state.receivers.retain(|receiver| receiver.queue.qpn != qpn);
        state.ring.retain(|cqe| cqe.completion.qp_num != qpn);
    }

    /// Adds the completion of a send request: `retire` is the attached sender and the number of
    /// its requests up to and with this one.
    #[inline]
    pub(crate) fn push_send(&self, completion: WorkCompletion, retire: (u32, u64)) {
        self.push(Cqe {
            completion,
            retire: Some(retire),
        });
    }

    #[inline]
    fn push(&self, cqe: Cqe) {
        let mut state = self.state.lock();
        if state.ring.len() < self.entries as usize {
            state.ring.push_back(cqe);
        } else {
            state.overrun = true;
        }
        drop(state);
        if self.channel.is_some() {
            let is_error = !cqe.completion.status.is_success();
            self.raise_if_armed(if is_error {
                Urgency::Solicited
            } else {
                Urgency::Usual
            });
        }
    }

    #[cold]
    fn raise_if_armed(&self, urgency: Urgency) {
        if let Some(channel) = &self.channel
            && self.entry().arming.armed.must_raise(urgency)
        {
            channel.inner.raise(CqId(self.index));
        }
    }

    /// Raises an event whether armed or not: a producer may have died between taking the arming
    /// and raising it.
    pub(crate) fn raise_anyway(&self) {
        if let Some(channel) = &self.channel {
            self.entry().arming.armed.disarm();
            channel.inner.raise(CqId(self.index));
        }
    }

    /// Flushes the receives of `queue` up to position `end`: those that arrived stay successes.
    /// Nobody completes them any more.
    pub(crate) fn flush_receives(&self, queue: &Arc<RecvQueue>, end: u64) {
        let mut state = self.state.lock();
        let Some(at) = state
            .receivers
            .iter()
            .position(|r| Arc::ptr_eq(&r.queue, queue))
        else {
            return;
        };
        let next = state.receivers.swap_remove(at).next;
        drop(state);
        for position in next..end {
            let flushed = Arrival {
                status: WcStatus::WrFlushErr.code() as u8,
                ..Arrival::default()
            };
            let arrival = queue.ring.arrival(position).unwrap_or(flushed);
            queue.count_taken();
            self.push(Cqe {
                completion: queue.completion(position, arrival),
                retire: None,
            });
        }
    }

    /// Completes a receive that was posted in the error state.
    pub(crate) fn push_flushed_receive(&self, queue: &RecvQueue, wr_id: WrId) {
        queue.count_taken();
        let completion = WorkCompletion {
            wr_id,
            status: WcStatus::WrFlushErr,
            opcode: WcOpcode::Recv,
            qp_num: queue.qpn,
            ..WorkCompletion::default()
        };
        self.push(Cqe {
            completion,
            retire: None,
        });
    }
}

impl CqState {
    #[inline]
    fn take_own(&mut self) -> Option<WorkCompletion> {
        let cqe = self.ring.pop_front()?;
        if let Some((sender, count)) = cqe.retire
            && let Some(Some(retired)) = self.senders.get(sender as usize)
        {
            retired.0.store(count, Ordering::Release);
        }
        Some(cqe.completion)
    }

    #[inline]
    fn take_received(&mut self, into: &mut [WorkCompletion]) -> usize {
        let count = self.receivers.len();
        let mut taken = 0;
        for i in 0..count {
            let at = if count == 1 {
                0
            } else {
                (self.turn + i) % count
            };
            let receiver = &mut self.receivers[at];
            while taken < into.len() {
                let Some(completion) = receiver.queue.take(receiver.next) else {
                    break;
                };
                receiver.next += 1;
                into[taken] = completion;
                taken += 1;
            }
        }
        if count > 1 {
            self.turn = (self.turn + 1) % count;
        }
        taken
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        self.entry().channel.store(0, Ordering::Release);
        lock(&self.port.cq_indices).give(self.index);
    }
}

impl CompletionQueue for SoftCq {
    fn id(&self) -> CqId {
        CqId(self.inner.index)
    }

    fn entries(&self) -> u32 {
        self.inner.entries
    }

    #[inline]
    fn poll(&self, into: &mut [WorkCompletion]) -> Result<usize, PollError> {
        let cq = &*self.inner;
        if cq.port.has_pending() {
            cq.port.drive();
        }
        let mut state = cq.state.lock();
        let mut taken = 0;
        while taken < into.len() {
            let Some(completion) = state.take_own() else {
                break;
            };
            into[taken] = completion;
            taken += 1;
        }
        taken += state.take_received(&mut into[taken..]);
        if taken == 0 && state.overrun {
            return Err(PollError::Overrun {
                entries: cq.entries,
            });
        }
        Ok(taken)
    }

    fn req_notify(&self, on: NotifyOn) -> Result<(), PollError> {
        self.inner.entry().arming.armed.arm(on);
        Ok(())
    }

    fn ack_events(&self, _events: u32) {}
}
