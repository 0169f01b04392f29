//! Shared receive queues, as their owner sees them.
//!
//! Requesters take requests from the [`SharedRing`] and complete them in their slots. The owner follows: it
//! records which queue pair has taken which request, and passes completions on to the completion queue of that
//! queue pair. So a completion queue polls the shared queue once, not each of its queue pairs. The owner
//! matches datagrams with requests ([`datagrams`]). A requester that is stopped in the middle of a message
//! withholds one request and nothing else.
//!
//! Sources: IBTA vol. 1, 10.2.9; ibv_create_srq(3).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use adverb_transport::{LocalPiece, ReceiveWork, SharedReceives};
use adverb_verbs::{
    AsyncEvent, CreateError, ModifySrqError, PostError, PostErrorCause, Qpn, QuerySrqError,
    RecvRequest, SharedReceiveQueue, SrqAttr, SrqCaps, SrqId, Srqn, WcStatus, WorkCompletion, WrId,
};
use spin::mutex::SpinMutex;

mod datagrams;
mod state;
mod xrc;

use crate::domain::{Handle, SoftPd};
use crate::port::{Port, PortSrq, TableEntry};
use crate::recv_queue::is_message_to;
use crate::shm::datagram_ring::Addressee;
use crate::shm::layout::{MAX_SRQ, XrcQueue, srqn_of};
use crate::shm::null_space::receives_of;
use crate::shm::quiesce;
use crate::shm::ring::{Arrival, Line, Piece, RecvRing};
use crate::shm::shared_ring::{SharedRing, Ticket};
use crate::shm::sync::lock;

use datagrams::SharedMailbox;
pub(crate) use state::PeerActivity;
use state::{State, TakenRequest, User};
pub(crate) use xrc::{ReceiveCompletions, XrcDomain, XrcTarget};

/// Slots in addition to one per request: the number that may be withheld by requesters that were stopped in the
/// middle of a message when their queue pair was destroyed or reset.
const SPARE_SLOTS: u32 = 32;

/// A shared receive queue of the user-space NIC.
#[derive(Debug)]
pub struct SoftSrq {
    pub(crate) inner: Arc<SrqInner>,
    _handle: Arc<Handle>,
}

#[derive(Debug)]
pub(crate) struct SrqInner {
    pub(crate) port: Arc<Port>,
    pub(crate) index: u32,
    pd: u32,
    caps: SrqCaps,
    pub(crate) ring: SharedRing<'static>,
    pub(crate) requests: Requests,
    memory: Range<u64>,
    /// For messages to its UD queue pairs; empty if it has none.
    mailbox: OnceLock<SharedMailbox>,
    xrc: Option<Xrc>,
    /// Lock order: after the port's regions.
    state: SpinMutex<State>,
    /// Number of taken requests and of completions that were not polled yet; read by each poll.
    busy: AtomicUsize,
    /// [`State::collected`], read by each poll.
    collected: AtomicU64,
}

/// What an XRC queue has in addition.
#[derive(Debug)]
struct Xrc {
    domain: Arc<XrcDomain>,
    /// The queue's completions are taken from this one.
    cq: Arc<dyn ReceiveCompletions>,
}

/// The slots of the requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    pub(crate) ring: RecvRing<'static>,
    pub(crate) slots: usize,
}

impl SoftSrq {
    pub(crate) fn new(pd: &SoftPd, caps: &SrqCaps) -> Result<Self, CreateError> {
        Self::make(pd, caps, None)
    }

    /// Creates an XRC queue.
    pub(crate) fn of_xrcd(
        pd: &SoftPd,
        caps: &SrqCaps,
        (domain, cq): (Arc<XrcDomain>, Arc<dyn ReceiveCompletions>),
    ) -> Result<Self, CreateError> {
        Self::make(pd, caps, Some(Xrc { domain, cq }))
    }

    /// Returns the number by which peers name an XRC queue; `None` if it is another queue.
    pub fn srqn(&self) -> Option<Srqn> {
        self.inner.xrc.is_some().then(|| self.inner.srqn())
    }

    fn make(pd: &SoftPd, caps: &SrqCaps, xrc: Option<Xrc>) -> Result<Self, CreateError> {
        let port = &pd.handle.port;
        let exhausted = CreateError::Exhausted {
            what: "shared receive queues",
            limit: MAX_SRQ.into(),
        };
        let index = lock(&port.srq_indices).take().ok_or(exhausted)?;
        let made = SrqInner::build(pd, caps, (index, xrc));
        if made.is_err() {
            lock(&port.srq_indices).give(index);
        }
        let inner = Arc::new(made?);
        let listed: Weak<dyn PortSrq> = Arc::<SrqInner>::downgrade(&inner);
        lock(&port.srqs).insert(index, listed);
        inner.open_to_peers();
        Ok(SoftSrq {
            inner,
            _handle: pd.handle.clone(),
        })
    }
}

impl SrqInner {
    fn build(
        pd: &SoftPd,
        caps: &SrqCaps,
        (index, xrc): (u32, Option<Xrc>),
    ) -> Result<Self, CreateError> {
        let port = &pd.handle.port;
        port.reserve_entry(TableEntry::Srq(index))
            .map_err(|e| port.no_room("make a shared receive queue", e))?;
        let words = caps.max_wr.next_power_of_two() as usize;
        let slots = (caps.max_wr + SPARE_SLOTS).next_power_of_two() as usize;
        let stride = RecvRing::lines_per_slot(caps.max_sge as usize);
        let lines = SharedRing::lines(words);
        let length = (lines + slots * stride) * size_of::<Line>();
        let memory = port.take_ring(length as u64)?;
        let first = port.address(memory.start).cast::<Line>();
        // SAFETY: the range was just allocated in the port's own mapping, which `port` keeps as long as the
        // queue lives. The slots follow the words.
        let (ring, requests) = unsafe {
            (
                SharedRing::from_raw(first, words),
                RecvRing::from_raw(first.add(lines), slots, stride),
            )
        };
        requests.clear();
        let next = ring.clear();
        let entry = port.srq_entry(index);
        entry.offset.store(memory.start, Ordering::Relaxed);
        entry.words.store(words as u32, Ordering::Relaxed);
        entry.slots.store(slots as u32, Ordering::Relaxed);
        entry.stride.store(stride as u32, Ordering::Relaxed);
        entry.mailbox_slots.store(0, Ordering::Relaxed);
        entry.pd.store(pd.number, Ordering::Release);
        let completions = xrc.as_ref().map(|xrc| (port.slot, xrc.cq.index()));
        Ok(SrqInner {
            port: port.clone(),
            index,
            pd: pd.number,
            caps: *caps,
            ring,
            requests: Requests {
                ring: requests,
                slots,
            },
            memory,
            mailbox: OnceLock::new(),
            xrc,
            state: SpinMutex::new(State::new(next, (words, slots), completions)),
            busy: AtomicUsize::new(0),
            collected: AtomicU64::new(next),
        })
    }

    fn srqn(&self) -> Srqn {
        srqn_of(self.port.slot, self.index)
    }

    /// XRC: lets peers name the queue, and its completion queue poll it.
    fn open_to_peers(self: &Arc<Self>) {
        let Some(xrc) = &self.xrc else { return };
        xrc.cq.attach(self);
        xrc.domain.add(self.srqn(), self);
        let entry = self.port.srq_entry(self.index);
        entry.recv_cq.store(xrc.cq.index(), Ordering::Relaxed);
        let identity = XrcQueue::new(self.port.next_serial(), xrc.domain.number);
        entry.xrc.store(identity.0, Ordering::Release);
    }

    /// XRC: undoes [`SrqInner::open_to_peers`], and waits for peers that are in the middle of a message.
    fn close_to_peers(self: &Arc<Self>) {
        let Some(xrc) = &self.xrc else { return };
        let entry = self.port.srq_entry(self.index);
        entry.xrc.store(0, Ordering::Release);
        xrc.domain.remove(self.srqn());
        if !self.port.quiesce_peers(quiesce::TIMEOUT) {
            self.keep_held();
        }
        xrc.cq.detach(self);
    }

    /// Keeps the requests that were taken from being reused, because a stopped requester may still write to them.
    fn keep_held(&self) {
        let mut state = self.up_to_date();
        self.collect(&mut state);
        let held = std::mem::take(&mut state.held);
        state.kept.extend(held);
    }

    /// XRC: returns the completion queue.
    pub(crate) fn xrc_cq(&self) -> Option<&dyn ReceiveCompletions> {
        self.xrc.as_ref().map(|xrc| &*xrc.cq)
    }

    fn accept(&self, state: &mut State, request: &RecvRequest<'_>) -> Result<(), PostErrorCause> {
        request.check(self.caps.max_sge)?;
        if state.outstanding() >= self.caps.max_wr.into() || state.free.is_empty() {
            self.collect(state);
        }
        let full = PostErrorCause::QueueFull {
            queue: "shared receive",
            depth: self.caps.max_wr,
        };
        if state.outstanding() >= self.caps.max_wr.into() {
            return Err(full);
        }
        let slot = state.free.pop().ok_or(full)?;
        state.wr_ids[usize::from(slot)] = request.wr_id.0;
        self.post(state, slot, request.sges.iter().map(Piece::from));
        Ok(())
    }

    /// Posts the request in a slot after all others.
    fn post(&self, state: &mut State, slot: u16, pieces: impl ExactSizeIterator<Item = Piece>) {
        if state.next - state.collected == state.slot_at.len() as u64 {
            self.collect(state);
        }
        let position = state.next;
        let ticket = Ticket { position, slot };
        let request = ticket.request(self.requests.slots);
        self.requests.ring.post(request, pieces);
        let at = position as usize & (state.slot_at.len() - 1);
        state.slot_at[at] = slot;
        state.next += 1;
        self.ring.post(ticket);
    }

    /// Records which queue pairs have taken which requests, and collects completions.
    fn collect(&self, state: &mut State) {
        while state.collected < state.next
            && let Some(holder) = self.ring.taken_by(state.collected)
        {
            let position = state.collected;
            let slot = state.slot_at[position as usize & (state.slot_at.len() - 1)];
            let ticket = Ticket { position, slot };
            state.held.push(TakenRequest { ticket, holder });
            state.collected += 1;
        }
        let mut held = std::mem::take(&mut state.held);
        held.retain(|held| {
            let arrival = self.arrival(held.ticket);
            if let Some(arrival) = arrival {
                state.end(*held, arrival);
            }
            arrival.is_none()
        });
        state.held = held;
    }

    fn arrival(&self, ticket: Ticket) -> Option<Arrival> {
        let request = ticket.request(self.requests.slots);
        self.requests.ring.arrival(request)
    }

    fn note_busy(&self, state: &State) {
        let ready: usize = state.ready.iter().map(|(_, ready)| ready.len()).sum();
        self.busy.store(state.held.len() + ready, Ordering::Release);
        self.collected.store(state.collected, Ordering::Release);
    }

    /// Whether there is no completion for any completion queue.
    #[inline]
    fn is_quiet(&self) -> bool {
        self.busy.load(Ordering::Acquire) == 0
            && !self.has_datagrams()
            && (self.ring.taken_by(self.collected.load(Ordering::Acquire))).is_none()
    }

    /// Returns the protection domain of the requests' memory.
    pub(crate) fn domain(&self) -> u32 {
        self.pd
    }

    pub(crate) fn id(&self) -> SrqId {
        SrqId(self.index)
    }

    /// Wakes the engines of peers that wait for a receive.
    #[cold]
    fn wake_waiting_peers(&self) {
        let qps = self.port.queue_pairs();
        qps.iter().for_each(|qp| qp.receive_posted(self.id()));
    }

    // --- for completion queues

    /// Takes completions for the completion queue with this index; returns how many.
    #[inline]
    pub(crate) fn take(&self, recv_cq: u32, into: &mut [WorkCompletion]) -> usize {
        if into.is_empty() || self.is_quiet() {
            return 0;
        }
        self.take_some(recv_cq, into)
    }

    #[inline(never)] // keeps the poll of connections small
    fn take_some(&self, recv_cq: u32, into: &mut [WorkCompletion]) -> usize {
        let mut state = self.up_to_date();
        self.collect(&mut state);
        let ready = state.ready_for(recv_cq);
        let count = into.len().min(ready.len());
        for (place, completion) in into.iter_mut().zip(ready.drain(..count)) {
            *place = completion;
        }
        self.note_busy(&state);
        count
    }

    // --- for queue pairs

    /// Whether messages to a queue pair have arrived whose completions were not polled.
    pub(crate) fn has_unpolled_receives(&self, qpn: Qpn, recv_cq: u32) -> bool {
        let mut state = self.up_to_date();
        self.collect(&mut state);
        self.note_busy(&state);
        let mut ready = state.ready_for(recv_cq).iter();
        ready.any(|completion| is_message_to(qpn, completion))
    }

    /// Adds one generation of a queue pair.
    pub(crate) fn join(&self, addressee: Addressee, qpn: Qpn, recv_cq: u32) {
        let mut state = self.state.lock();
        let index = addressee.index() as usize;
        if state.users.len() <= index {
            state.users.resize(index + 1, None);
        }
        state.users[index] = Some(User {
            addressee,
            qpn,
            recv_cq,
            is_over: false,
        });
    }

    /// Removes a queue pair that is destroyed or reset, and discards its completions.
    pub(crate) fn leave(&self, index: u32, peer: PeerActivity) {
        let index = index as u16;
        let mut state = self.up_to_date();
        self.collect(&mut state);
        for held in state.take_held(index) {
            state.let_go(held, peer);
        }
        if peer == PeerActivity::Idle {
            let State { kept, free, .. } = &mut *state;
            free.extend(
                kept.extract_if(.., |held| held.holder == index)
                    .map(|held| held.ticket.slot),
            );
        }
        let user = state.users.get_mut(usize::from(index));
        if let Some(user) = user.and_then(Option::take) {
            let ready = state.ready_for(user.recv_cq);
            ready.retain(|completion| completion.qp_num != user.qpn);
        }
        self.note_busy(&state);
    }

    /// Flushes the requests that a queue pair has taken and not completed; no requester takes more for it.
    /// Messages that have arrived stay successes. Returns whether a request was flushed.
    pub(crate) fn flush(&self, index: u32, peer: PeerActivity) -> bool {
        let mut state = self.up_to_date();
        self.collect(&mut state);
        if let Some(Some(user)) = state.users.get_mut(index as usize) {
            user.is_over = true;
        }
        let held = state.take_held(index as u16);
        let was_held = !held.is_empty();
        for held in held {
            state.complete(held, Arrival::failed(WcStatus::WrFlushErr));
            state.let_go(held, peer);
        }
        self.note_busy(&state);
        was_held
    }

    /// After a requester of a queue pair died: posts the request that it may have taken again. The queue pair
    /// stays usable.
    pub(crate) fn repost(&self, index: u32) {
        let mut state = self.state.lock();
        self.collect(&mut state);
        for held in state.take_held(index as u16) {
            self.post_again(&mut state, held.ticket);
        }
        self.note_busy(&state);
    }

    /// Posts a request again that a queue pair has taken and will not complete.
    fn give_back(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        self.collect(&mut state);
        let held = state.held.iter().position(|held| held.ticket == ticket);
        if let Some(at) = held {
            state.held.remove(at);
            self.post_again(&mut state, ticket);
        }
        self.note_busy(&state);
    }

    fn post_again(&self, state: &mut State, ticket: Ticket) {
        let request = ticket.request(self.requests.slots);
        let pieces: Vec<Piece> = self.requests.ring.pieces(request).collect();
        self.post(state, ticket.slot, pieces.into_iter());
    }
}

/// The queue as the UDP port takes from it, for one queue pair.
#[derive(Debug)]
pub(crate) struct OwnReceives {
    srq: Arc<SrqInner>,
    holder: u16,
}

impl OwnReceives {
    pub(crate) fn new(srq: Arc<SrqInner>, index: u32) -> Self {
        let holder = index as u16;
        OwnReceives { srq, holder }
    }
}

impl SharedReceives for OwnReceives {
    fn take(&mut self) -> Option<ReceiveWork> {
        self.srq.take_for(self.holder)
    }

    fn give_back(&mut self, work: ReceiveWork) {
        self.srq.take_back(&work);
    }
}

impl SrqInner {
    /// Takes a request for the UDP port, which names it by its position in the ring of slots.
    pub(crate) fn take_for(&self, holder: u16) -> Option<ReceiveWork> {
        let ticket = self.ring.take(holder)?;
        let position = ticket.request(self.requests.slots);
        let pieces = self.requests.ring.pieces(position).map(LocalPiece::from);
        Some(ReceiveWork {
            wr_id: WrId(position),
            pieces: pieces.collect(),
        })
    }

    /// Takes back such a request.
    pub(crate) fn take_back(&self, work: &ReceiveWork) {
        self.give_back(Ticket::of_request(work.wr_id.0, self.requests.slots));
    }
}

impl Drop for SoftSrq {
    fn drop(&mut self) {
        if !self.inner.port.is_inherited() {
            self.inner.close_to_peers();
        }
    }
}

impl PortSrq for SrqInner {
    fn take_datagrams(&self) {
        self.take_arrived();
    }

    fn take_limit_event(&self) -> Option<AsyncEvent> {
        let is_reached = self.ring.take_reached();
        is_reached.then(|| AsyncEvent::SrqLimitReached(self.id()))
    }

    fn has_limit(&self) -> bool {
        self.ring.limit() != 0
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        if self.port.is_inherited() {
            return;
        }
        lock(&self.port.srqs).remove(&self.index);
        self.port
            .forget(|event| event == AsyncEvent::SrqLimitReached(self.id()));
        // Memory that a stopped requester may still write to is not reused.
        let state = self.state.get_mut();
        if state.held.is_empty() && state.kept.is_empty() {
            self.port.give_ring(self.memory.clone());
            lock(&self.port.srq_indices).give(self.index);
        }
    }
}

impl SrqInner {
    #[inline]
    fn post_receives(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
        let srq = self;
        let mut state = srq.up_to_date();
        let mut posted = Ok(());
        for (index, request) in requests.iter().enumerate() {
            if let Err(cause) = srq.accept(&mut state, request) {
                posted = Err(PostError { index, cause });
                break;
            }
        }
        srq.note_busy(&state);
        drop(state);
        if srq.ring.take_sleepers() {
            srq.wake_waiting_peers();
        }
        posted
    }
}

impl SharedReceiveQueue for SoftSrq {
    fn id(&self) -> SrqId {
        self.inner.id()
    }

    #[inline]
    fn post_recv(&self, requests: &[RecvRequest<'_>]) -> Result<(), PostError> {
        let null = &self.inner.port.null_regions;
        if null.exist() {
            let replaced = null.replace_in_receives(requests);
            return self.inner.post_receives(&receives_of(requests, &replaced));
        }
        self.inner.post_receives(requests)
    }

    fn arm(&self, srq_limit: u32) -> Result<(), ModifySrqError> {
        let (srq, max_wr) = (&*self.inner, self.inner.caps.max_wr);
        if srq_limit > max_wr {
            return Err(ModifySrqError::Limit {
                given: srq_limit,
                max_wr,
            });
        }
        // Datagrams that have arrived before do not count.
        srq.take_arrived();
        if srq.ring.take_reached() {
            srq.port.report(AsyncEvent::SrqLimitReached(srq.id()));
        }
        srq.ring.arm(srq_limit);
        srq.port.wake.wake(); // the engine has to watch the limit
        Ok(())
    }

    fn query(&self) -> Result<SrqAttr, QuerySrqError> {
        self.inner.take_arrived();
        Ok(SrqAttr {
            caps: self.inner.caps,
            srq_limit: self.inner.ring.limit(),
        })
    }
}
