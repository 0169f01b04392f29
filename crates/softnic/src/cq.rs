//! Completion queues.
//!
//! A completion queue has no ring of its own: polling takes from the rings of its queue pairs.
//! Completions of this process's own requests lie in a ring of private memory a queue pair
//! (`send_ring`), since the requester's CPU carries them out. Those of receives lie in the receive
//! rings (`ring`), whose producer is the connected peer, or (`datagram_ring`) whoever sends: so any
//! number of processes complete into one queue without a lock, and one that dies blocks nobody.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_verbs::{
    CompletionQueue, CqId, CreateError, NotifyOn, PollError, Qpn, WcOpcode, WcStatus,
    WorkCompletion, WrId,
};
use spin::mutex::SpinMutex;

use crate::channel::SoftChannel;
use crate::datagram_ring::Holder;
use crate::layout::CqEntry;
use crate::notify::Urgency;
use crate::port::{Port, TableEntry, lock};
use crate::recv_queue::RecvQueue;
use crate::send_ring::SendRing;
use crate::srq::SrqInner;
use crate::udp::Turn;

/// Most entries of a completion queue.
pub(crate) const MAX_CQE: u32 = 1 << 22;

#[derive(Debug)]
struct Receiver {
    queue: Arc<RecvQueue>,
    next: u64,
}

#[derive(Debug, Default)]
struct CqState {
    senders: Vec<Arc<SendRing>>,
    receivers: Vec<Receiver>,
    /// Shared receive queues, and how many queue pairs that take from them complete here.
    shared: Vec<(Arc<SrqInner>, u32)>,
    /// Receives of queue pairs in the error state: no longer in their ring.
    flushed: VecDeque<WorkCompletion>,
    overrun: bool,
    /// The queue pair to look at first.
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
        Ok(SoftCq {
            inner: Arc::new(inner),
        })
    }
}

impl CqInner {
    fn entry(&self) -> &CqEntry {
        self.port.cq_entry(self.index)
    }

    /// Adds a queue pair whose sends complete here.
    pub(crate) fn attach_sender(&self, ring: Arc<SendRing>) {
        self.state.lock().senders.push(ring);
    }

    /// Adds a queue pair's receive queue, from position `first` on.
    pub(crate) fn attach_receiver(&self, queue: Arc<RecvQueue>, first: u64) {
        self.state
            .lock()
            .receivers
            .push(Receiver { queue, next: first });
    }

    /// Adds a queue pair that takes its receives from `srq`.
    pub(crate) fn attach_shared(&self, srq: &Arc<SrqInner>) {
        let mut state = self.state.lock();
        match state.shared.iter_mut().find(|(s, _)| Arc::ptr_eq(s, srq)) {
            Some((_, users)) => *users += 1,
            None => state.shared.push((srq.clone(), 1)),
        }
    }

    /// Takes such a queue pair away.
    pub(crate) fn detach_shared(&self, srq: &Arc<SrqInner>) {
        let mut state = self.state.lock();
        if let Some(at) = state.shared.iter().position(|(s, _)| Arc::ptr_eq(s, srq)) {
            state.shared[at].1 -= 1;
            if state.shared[at].1 == 0 {
                state.shared.swap_remove(at);
            }
        }
    }

    /// Removes a queue pair whose sends complete here.
    pub(crate) fn detach_sender(&self, qpn: Qpn) {
        self.state.lock().senders.retain(|ring| ring.qpn() != qpn);
    }

    /// Forgets a queue pair's completions and its receive queue, as destroying and resetting do.
    /// The queue pair produces none meanwhile.
    pub(crate) fn purge(&self, qpn: Qpn) {
        let mut state = self.state.lock();
        let senders = state.senders.iter();
        senders
            .filter(|ring| ring.qpn() == qpn)
            .for_each(|ring| ring.clear());
        state.receivers.retain(|receiver| receiver.queue.qpn != qpn);
        state.flushed.retain(|completion| completion.qp_num != qpn);
    }

    /// After a completion of this process was added: raises the event that it is waited for with.
    #[inline]
    pub(crate) fn added(&self, status: WcStatus) {
        if self.channel.is_some() {
            let is_error = !status.is_success();
            self.raise_if_armed(if is_error {
                Urgency::Solicited
            } else {
                Urgency::Usual
            });
        }
    }

    /// After a receive of this process was completed by its own NIC: raises the event that it is
    /// waited for with.
    #[inline]
    pub(crate) fn arrived(&self, urgency: Urgency) {
        if self.channel.is_some() {
            self.raise_if_armed(urgency);
        }
    }

    fn push_flushed(&self, completion: WorkCompletion) {
        self.state.lock().flushed.push_back(completion);
        self.added(completion.status);
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
            self.push_flushed(queue.settle(position));
        }
    }

    /// A process that sent datagrams is dead: takes back the cells that it held of `queue`, and
    /// raises the event that it may have died with, if there is something to take.
    pub(crate) fn relieve(&self, queue: &Arc<RecvQueue>, is_dead: impl Fn(Holder) -> bool) {
        let state = self.state.lock();
        let receiver = state.receivers.iter();
        let mut receiver = receiver.filter(|r| Arc::ptr_eq(&r.queue, queue));
        let (Some(receiver), Some(datagrams)) = (receiver.next(), &queue.datagrams) else {
            return;
        };
        let has_arrivals = datagrams.mailbox.reclaim(receiver.next, is_dead);
        drop(state);
        if has_arrivals {
            self.raise_anyway();
        }
    }

    /// Completes a receive that was posted in the error state.
    pub(crate) fn push_flushed_receive(&self, queue: &RecvQueue, wr_id: WrId) {
        queue.count_taken();
        self.push_flushed(WorkCompletion {
            wr_id,
            status: WcStatus::WrFlushErr,
            opcode: WcOpcode::Recv,
            qp_num: queue.qpn,
            ..WorkCompletion::default()
        });
    }
}

impl CqState {
    /// Takes completions of this process's own requests; returns how many. Notes an overrun of
    /// `entries`: the queue is broken then, and what it held is lost.
    #[inline]
    fn take_sent(&mut self, into: &mut [WorkCompletion], entries: u32) -> usize {
        let (mut taken, mut waiting) = (0, self.flushed.len() as u64);
        let count = self.senders.len();
        for i in 0..count {
            let ring = &self.senders[in_turn(self.turn, i, count)];
            let ready = ring.waiting();
            waiting += ready;
            let room = into.len() - taken;
            for place in into[taken..].iter_mut().take(room.min(ready as usize)) {
                *place = ring.take();
                taken += 1;
            }
        }
        self.overrun |= waiting > u64::from(entries);
        taken
    }

    fn take_flushed(&mut self, into: &mut [WorkCompletion]) -> usize {
        let taken = into.len().min(self.flushed.len());
        for (place, completion) in into.iter_mut().zip(self.flushed.drain(..taken)) {
            *place = completion;
        }
        taken
    }

    /// Takes what queue pairs with shared receive queues received for completion queue `index`.
    fn take_shared(&mut self, index: u32, into: &mut [WorkCompletion]) -> usize {
        let mut taken = 0;
        for (srq, _) in &self.shared {
            taken += srq.take(index, &mut into[taken..]);
        }
        taken
    }

    #[inline]
    fn take_received(&mut self, into: &mut [WorkCompletion]) -> usize {
        let count = self.receivers.len();
        let mut taken = 0;
        for i in 0..count {
            let receiver = &mut self.receivers[in_turn(self.turn, i, count)];
            while taken < into.len() {
                let Some(completion) = receiver.queue.take(receiver.next) else {
                    break;
                };
                receiver.next += 1;
                into[taken] = completion;
                taken += 1;
            }
        }
        taken
    }
}

/// The `i`-th of `count` queue pairs if `turn` says where to begin.
#[inline]
fn in_turn(turn: usize, i: usize, count: usize) -> usize {
    if count == 1 { 0 } else { (turn + i) % count }
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
        let taken = cq.take(into)?;
        if taken == 0 && cq.port.reaches_others() {
            return cq.take_from_afar(into);
        }
        Ok(taken)
    }

    fn req_notify(&self, on: NotifyOn) -> Result<(), PollError> {
        self.inner.entry().arming.armed.arm(on);
        Ok(())
    }

    fn ack_events(&self, _events: u32) {}
}

impl CqInner {
    /// Takes a turn at the UDP port, and what it brought.
    #[cold]
    fn take_from_afar(&self, into: &mut [WorkCompletion]) -> Result<usize, PollError> {
        match self.port.drive_udp() {
            Some(Turn::Idle) => Ok(0),
            Some(Turn::Busy) | None => self.take(into),
        }
    }

    #[inline(always)]
    fn take(&self, into: &mut [WorkCompletion]) -> Result<usize, PollError> {
        let cq = self;
        let mut state = cq.state.lock();
        let mut taken = state.take_sent(into, cq.entries);
        if state.overrun {
            let entries = cq.entries;
            return Err(PollError::Overrun { entries });
        }
        if !state.flushed.is_empty() {
            taken += state.take_flushed(&mut into[taken..]);
        }
        taken += state.take_received(&mut into[taken..]);
        if !state.shared.is_empty() {
            taken += state.take_shared(cq.index, &mut into[taken..]);
        }
        state.turn = state.turn.wrapping_add(1);
        Ok(taken)
    }
}
