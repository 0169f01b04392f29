//! Completion queues.
//!
//! A completion queue has no ring. Polling takes completions from the rings of its queue pairs.
//! Completions of send requests are in a ring per queue pair in private memory (`send_ring`), because the
//! requester's CPU carries the requests out. Completions of receives are in the receive rings, whose producer
//! is the connected peer (`ring`) or any sender (`datagram_ring`). So any number of processes produce
//! completions for a queue without a lock, and one that dies blocks no other. If there are many queue pairs,
//! producers mark those that have completions (`ready`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use adverb_verbs::{
    AsyncEvent, CompletionQueue, CqId, CreateError, NotifyOn, PollError, Qpn, WcOpcode, WcStatus,
    WorkCompletion, WrId,
};
use spin::mutex::SpinMutex;

use crate::channel::SoftChannel;
use crate::idle;
use crate::port::{Port, TableEntry};
use crate::recv_queue::{RecvQueue, is_message_to};
use crate::shm::datagram_ring::Holder;
use crate::shm::layout::{CqEntry, Duties, qp_index};
use crate::shm::notify::Urgency;
use crate::shm::quiesce;
use crate::shm::send_ring::SendRing;
use crate::shm::sync::compiler_fence;
use crate::shm::sync::lock;
use crate::srq::SrqInner;
use crate::udp::{Progress, Udp};

mod state;

use state::{CqState, Member, Receiver};

/// Maximum number of entries of a completion queue (`max_cqe`).
pub(crate) const MAX_CQE: u32 = 1 << 22;

#[derive(Debug)]
pub(crate) struct CqInner {
    pub(crate) port: Arc<Port>,
    pub(crate) index: u32,
    entries: AtomicU32,
    channel: Option<SoftChannel>,
    /// A copy of the duties in the table entry.
    duties: AtomicU32,
    state: SpinMutex<State>,
    reported_overrun: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    rings: CqState,
    is_overrun: bool,
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
        check_entries(entries, 1)?;
        if channel.is_some_and(|channel| !channel.inner.belongs_to(port)) {
            return Err(CreateError::Foreign {
                what: "the completion channel",
            });
        }
        let limit = crate::shm::layout::MAX_CQ.into();
        let exhausted = CreateError::Exhausted {
            what: "completion queues",
            limit,
        };
        let index = lock(&port.cq_indices).take().ok_or(exhausted)?;
        port.reserve_entry(TableEntry::Cq(index)).map_err(|e| {
            lock(&port.cq_indices).give(index);
            port.no_room("make a completion queue", e)
        })?;
        let duties = Duties::new(channel.map(|channel| channel.inner.number));
        let inner = CqInner {
            port: port.clone(),
            index,
            entries: AtomicU32::new(entries),
            channel: channel.cloned(),
            duties: AtomicU32::new(duties.0),
            state: SpinMutex::default(),
            reported_overrun: AtomicBool::new(false),
        };
        let entry = inner.entry();
        entry.arming.armed.disarm();
        entry.ready.clear();
        entry.duties.store(duties.0, Ordering::Release);
        Ok(SoftCq {
            inner: Arc::new(inner),
        })
    }
}

/// Checks that `entries` is at least `min` and at most the maximum.
fn check_entries(entries: u32, min: u64) -> Result<(), CreateError> {
    if (min..=MAX_CQE.into()).contains(&entries.into()) {
        return Ok(());
    }
    Err(CreateError::OutOfRange {
        what: "completion queue entries",
        value: entries.into(),
        min,
        max: MAX_CQE.into(),
    })
}

impl SoftCq {
    /// Raises the event of the armed queue if it has completions that were not polled, as the NICs of mlx4 and mlx5 do. The
    /// specification asks for none (IBTA vol. 1, 11.4.2.2), but programs for these NICs do not poll once more (UCX).
    pub fn raise_for_unpolled(&self) {
        let cq = &*self.inner;
        let Some(channel) = &cq.channel else { return };
        let mut oldest = [WorkCompletion::default()];
        let mut state = cq.state.lock();
        let State { rings, is_overrun } = &mut *state;
        cq.note_marks(rings);
        if *is_overrun || cq.take_noted(rings, &mut oldest) == 0 {
            return;
        }
        // It is the first to be polled, still.
        rings.flushed.push_front(oldest[0]);
        drop(state);
        if cq
            .entry()
            .arming
            .armed
            .must_raise(Urgency::of(oldest[0].status))
        {
            channel.inner.raise(CqId(cq.index));
        }
    }

    /// Changes the number of entries (`ibv_resize_cq`).
    ///
    /// # Errors
    /// `entries` is out of range, or more completions than that wait to be polled.
    pub fn resize(&self, entries: u32) -> Result<(), CreateError> {
        let cq = &*self.inner;
        let state = cq.state.lock();
        check_entries(entries, state.rings.waiting().max(1))?;
        cq.entries.store(entries, Ordering::Relaxed);
        Ok(())
    }
}

impl CqInner {
    fn entry(&self) -> &CqEntry {
        self.port.cq_entry(self.index)
    }

    /// Adds a queue pair whose send requests complete here.
    pub(crate) fn attach_sender(&self, ring: Arc<SendRing>) {
        self.attach(ring.qpn(), |member| member.sent = Some(ring));
    }

    /// Adds a queue pair's receive queue, from position `next` on.
    pub(crate) fn attach_receiver(&self, queue: Arc<RecvQueue>, next: u64) {
        self.attach(queue.qpn, |member| {
            member.receiver = Some(Receiver { queue, next });
        });
    }

    fn attach(&self, qpn: Qpn, add: impl FnOnce(&mut Member)) {
        let rings = &mut self.state.lock().rings;
        add(rings.member(qpn));
        if rings.is_crowded() {
            self.duties.fetch_or(Duties::MARK, Ordering::Relaxed);
            self.entry()
                .duties
                .fetch_or(Duties::MARK, Ordering::Relaxed);
            // A producer that has not seen the duty published its completion before the barrier, so
            // `begin_marks` finds it.
            quiesce::barrier();
            rings.begin_marks();
        }
    }

    /// Adds a queue pair that takes receives from `srq`.
    pub(crate) fn attach_shared(&self, srq: &Arc<SrqInner>) {
        let state = &mut self.state.lock().rings;
        match state.shared.iter_mut().find(|(s, _)| Arc::ptr_eq(s, srq)) {
            Some((_, users)) => *users += 1,
            None => state.shared.push((srq.clone(), 1)),
        }
    }

    /// Removes a queue pair that takes receives from `srq`.
    pub(crate) fn detach_shared(&self, srq: &Arc<SrqInner>) {
        let state = &mut self.state.lock().rings;
        if let Some(at) = state.shared.iter().position(|(s, _)| Arc::ptr_eq(s, srq)) {
            state.shared[at].1 -= 1;
            if state.shared[at].1 == 0 {
                state.shared.swap_remove(at);
            }
        }
    }

    /// Removes a queue pair whose send requests complete here.
    pub(crate) fn detach_sender(&self, qpn: Qpn) {
        let rings = &mut self.state.lock().rings;
        rings.member(qpn).sent = None;
        rings.remove_if_empty(qpn);
    }

    /// Discards a queue pair's completions and removes its receive queue, when it is destroyed or reset. The
    /// queue pair must not produce completions during the call.
    pub(crate) fn purge(&self, qpn: Qpn) {
        let rings = &mut self.state.lock().rings;
        if let Some(member) = rings.known(qpn) {
            member.receiver = None;
            member.sent.iter().for_each(|ring| ring.clear());
        }
        rings.recount(qpn);
        rings.remove_if_empty(qpn);
        rings.flushed.retain(|completion| completion.qp_num != qpn);
    }

    /// Whether messages to a queue pair have arrived whose completions were not polled.
    pub(crate) fn has_unpolled_receives(&self, queue: &RecvQueue) -> bool {
        let rings = &mut self.state.lock().rings;
        let receiver = (rings.known(queue.qpn)).and_then(|member| member.receiver.as_ref());
        receiver.is_some_and(|receiver| queue.has_arrived(receiver.next))
            || rings.flushed.iter().any(|c| is_message_to(queue.qpn, c))
    }

    /// Whether completions of a queue pair's send requests were not polled.
    pub(crate) fn has_unpolled_sends(&self, qpn: Qpn) -> bool {
        let rings = &mut self.state.lock().rings;
        rings.known(qpn).is_some_and(|member| member.waiting() > 0)
    }

    /// Does a producer's duties after this process has added a completion to the ring of a queue pair (given by
    /// its index if that ring is polled here).
    #[inline]
    pub(crate) fn added(&self, index: Option<u32>, urgency: Urgency) {
        // Keeps the load behind the store of the completion, as in `Duties::of`.
        compiler_fence(Ordering::SeqCst);
        let duties = Duties(self.duties.load(Ordering::Relaxed));
        if duties.any() {
            self.fulfil(duties, index, urgency);
        }
    }

    #[cold]
    fn fulfil(&self, duties: Duties, index: Option<u32>, urgency: Urgency) {
        duties.mark(self.entry(), index);
        if let Some(channel) = &self.channel
            && self.entry().arming.armed.must_raise(urgency)
        {
            channel.inner.raise(CqId(self.index));
        }
    }

    /// Raises the event that a producer could not raise.
    pub(crate) fn raise_owed(&self) {
        if let Some(channel) = &self.channel
            && self.entry().arming.armed.take_owed()
        {
            channel.inner.raise(CqId(self.index));
        }
    }

    fn push_flushed(&self, completion: WorkCompletion) {
        self.state.lock().rings.flushed.push_back(completion);
        self.added(None, Urgency::of(completion.status));
    }

    /// After a producer of queue pair `index` has died: marks the queue pair and raises the event, because the
    /// producer may have died between publishing a completion and marking, or between disarming and raising the
    /// event.
    pub(crate) fn raise_anyway(&self, index: u32) {
        self.state.lock().rings.note_ready(index);
        if let Some(channel) = &self.channel {
            self.entry().arming.armed.disarm();
            channel.inner.raise(CqId(self.index));
        }
    }

    /// Flushes the receives of `queue` up to position `end`, which no requester can complete any more. Messages
    /// that have arrived stay successes. Send requests that completed before are polled before: programs look for
    /// the request that failed in the first completion with an error.
    pub(crate) fn flush_receives(&self, queue: &Arc<RecvQueue>, end: u64) {
        let mut state = self.state.lock();
        let receiver = state.rings.known(queue.qpn);
        let receiver = receiver.and_then(|member| member.receiver.take());
        let Some(Receiver { next, .. }) = receiver else {
            return;
        };
        state.rings.set_sent_aside(queue.qpn);
        state.rings.remove_if_empty(queue.qpn);
        drop(state);
        for position in next..end {
            self.push_flushed(queue.flush(position));
        }
    }

    /// After a process that sent datagrams has died: reclaims the cells of `queue` that it held, and raises the
    /// event that it may have failed to raise, if there are messages.
    pub(crate) fn reclaim(&self, queue: &Arc<RecvQueue>, is_dead: impl Fn(Holder) -> bool) {
        let mut state = self.state.lock();
        let member = state.rings.known(queue.qpn);
        let receiver = member.and_then(|member| member.receiver.as_ref());
        let (Some(receiver), Some(datagrams)) = (receiver, &queue.datagrams) else {
            return;
        };
        let has_arrivals = datagrams.mailbox.reclaim(receiver.next, is_dead);
        drop(state);
        if has_arrivals {
            self.raise_anyway(qp_index(queue.qpn));
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

impl Drop for CqInner {
    fn drop(&mut self) {
        if self.port.is_inherited() {
            return;
        }
        self.entry().duties.store(0, Ordering::Release);
        self.port
            .forget(|event| event == AsyncEvent::CqError(CqId(self.index)));
        lock(&self.port.cq_indices).give(self.index);
    }
}

impl CompletionQueue for SoftCq {
    fn id(&self) -> CqId {
        CqId(self.inner.index)
    }

    fn entries(&self) -> u32 {
        self.inner.entries.load(Ordering::Relaxed)
    }

    #[inline]
    fn poll(&self, into: &mut [WorkCompletion]) -> Result<usize, PollError> {
        let cq = &*self.inner;
        if cq.port.has_pending() {
            cq.port.drive();
        }
        let mut taken = cq.take(into)?;
        let mut cost = 1;
        if taken == 0 && cq.port.uses_udp() {
            taken = cq.take_over_udp(into)?;
            cost = idle::POLLS_PER_UDP_POLL;
        }
        if taken == 0 {
            idle::note_misses(cost);
        } else {
            idle::note_progress();
            let udp = cq.port.udp.iter().filter(|udp| udp.is_used());
            udp.for_each(Udp::found);
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
    /// Raises the event that the queue is in error, once.
    #[cold]
    fn report_overrun(&self, entries: u32) -> PollError {
        if !self.reported_overrun.swap(true, Ordering::Relaxed) {
            self.port.report(AsyncEvent::CqError(CqId(self.index)));
        }
        PollError::Overrun { entries }
    }

    /// Drives the UDP port and takes the resulting completions.
    #[cold]
    fn take_over_udp(&self, into: &mut [WorkCompletion]) -> Result<usize, PollError> {
        match self.port.drive_udp() {
            Some(Progress::None) => Ok(0),
            Some(Progress::Made) | None => self.take(into),
        }
    }

    #[inline(always)]
    fn take(&self, into: &mut [WorkCompletion]) -> Result<usize, PollError> {
        let mut state = self.state.lock();
        let State { rings, is_overrun } = &mut *state;
        self.note_marks(rings);
        // The completion queue is in error then, and its completions are lost.
        let entries = self.entries.load(Ordering::Relaxed);
        *is_overrun |= rings.waiting() > entries.into();
        if *is_overrun {
            drop(state);
            return Err(self.report_overrun(entries));
        }
        Ok(self.take_noted(rings, into))
    }

    /// Notes the queue pairs that producers have marked.
    #[inline(always)]
    fn note_marks(&self, rings: &mut CqState) {
        if rings.are_marked() {
            self.entry().ready.take(|index| rings.note_ready(index));
        }
    }

    /// Takes completions of the queue pairs whose marks were noted.
    #[inline(always)]
    fn take_noted(&self, rings: &mut CqState, into: &mut [WorkCompletion]) -> usize {
        let mut taken = 0;
        if !rings.flushed.is_empty() {
            taken += rings.take_flushed(into);
        }
        taken += rings.take(&mut into[taken..]);
        if !rings.shared.is_empty() {
            taken += rings.take_shared(self.index, &mut into[taken..]);
        }
        taken
    }
}
