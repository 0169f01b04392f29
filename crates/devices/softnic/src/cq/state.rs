//! The rings that a completion queue polls.
//!
//! With few queue pairs, a poll looks at the rings of all. With more, producers mark the queue pairs that have
//! completions ([`crate::shm::ready`]), and a poll looks only at these, round-robin; it starts with those that
//! were found marked before and not emptied.

use std::collections::VecDeque;
use std::sync::Arc;

use adverb_verbs::{Qpn, WorkCompletion};

use crate::recv_queue::RecvQueue;
use crate::shm::layout::{MAX_QP, qp_index};
use crate::shm::send_ring::SendRing;
use crate::srq::SrqInner;

/// Maximum number of queue pairs whose rings are all polled. Up to this number that costs less than marks.
pub(super) const MOST_UNMARKED: usize = 4;

/// In [`Marked::places`]: no such queue pair.
const NOWHERE: u16 = u16::MAX;

/// A queue pair's receive queue, and the position of the next receive to complete.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) queue: Arc<RecvQueue>,
    pub(super) next: u64,
}

/// A queue pair whose sends, receives or both complete here.
#[derive(Debug)]
pub(super) struct Member {
    qpn: Qpn,
    pub(super) sent: Option<Arc<SendRing>>,
    pub(super) receiver: Option<Receiver>,
    /// It is in [`Marked::ready`].
    is_ready: bool,
    /// Its share of [`Marked::waiting`].
    waiting: u64,
}

impl Member {
    pub(super) fn waiting(&self) -> u64 {
        self.sent.as_ref().map_or(0, |ring| ring.waiting())
    }

    /// Takes completions of send requests; returns how many.
    #[inline]
    fn take_sent(&self, into: &mut [WorkCompletion]) -> usize {
        let Some(ring) = &self.sent else { return 0 };
        let taken = into.len().min(ring.waiting() as usize);
        into[..taken].fill_with(|| ring.take());
        taken
    }

    #[inline]
    fn take_received(&mut self, into: &mut [WorkCompletion]) -> usize {
        let Some(receiver) = &mut self.receiver else {
            return 0;
        };
        let mut taken = 0;
        while taken < into.len() {
            let Some(completion) = receiver.queue.take(receiver.next) else {
                break;
            };
            receiver.next += 1;
            into[taken] = completion;
            taken += 1;
        }
        taken
    }
}

/// The state of a completion queue whose queue pairs are marked.
#[derive(Debug)]
struct Marked {
    /// Position of a queue pair in [`CqState::members`], by its index in the port's table.
    places: Box<[u16]>,
    /// Indices of queue pairs that may have completions.
    ready: VecDeque<u32>,
    /// Number of send completions that were waiting when the queue pairs were marked last.
    waiting: u64,
}

#[derive(Debug, Default)]
pub(super) struct CqState {
    members: Vec<Member>,
    /// `None` while all queue pairs are polled.
    marked: Option<Marked>,
    /// Shared receive queues, and how many of their queue pairs complete here.
    pub(super) shared: Vec<(Arc<SrqInner>, u32)>,
    /// Flushed receives of queue pairs in the error state, which are no longer in their ring.
    pub(super) flushed: VecDeque<WorkCompletion>,
    /// The queue pair to poll first.
    turn: usize,
}

impl CqState {
    /// Returns the entry of a queue pair, which is added if it does not exist.
    pub(super) fn member(&mut self, qpn: Qpn) -> &mut Member {
        let at = self.place(qpn).unwrap_or_else(|| {
            self.members.push(Member {
                qpn,
                sent: None,
                receiver: None,
                is_ready: false,
                waiting: 0,
            });
            let last = self.members.len() - 1;
            self.note_place(last);
            last
        });
        &mut self.members[at]
    }

    pub(super) fn known(&mut self, qpn: Qpn) -> Option<&mut Member> {
        let at = self.place(qpn)?;
        Some(&mut self.members[at])
    }

    fn place(&self, qpn: Qpn) -> Option<usize> {
        match &self.marked {
            None => self.members.iter().position(|m| m.qpn == qpn),
            Some(marked) => marked.place(qp_index(qpn)),
        }
    }

    fn note_place(&mut self, at: usize) {
        if let (Some(marked), Some(member)) = (&mut self.marked, self.members.get(at)) {
            marked.places[qp_index(member.qpn) as usize] = at as u16;
        }
    }

    /// Removes a queue pair that has neither a send nor a receive queue here any more.
    pub(super) fn remove_if_empty(&mut self, qpn: Qpn) {
        let is_empty = |m: &&mut Member| m.sent.is_none() && m.receiver.is_none();
        if self.known(qpn).filter(is_empty).is_none() {
            return;
        }
        self.recount(qpn);
        if let Some(at) = self.place(qpn) {
            self.members.swap_remove(at);
            if let Some(marked) = &mut self.marked {
                marked.places[qp_index(qpn) as usize] = NOWHERE;
            }
            self.note_place(at);
        }
    }

    /// Moves the send completions of a queue pair to the flushed ones, which are polled first.
    pub(super) fn set_sent_aside(&mut self, qpn: Qpn) {
        let Some(ring) = self.known(qpn).and_then(|member| member.sent.clone()) else {
            return;
        };
        while ring.waiting() > 0 {
            self.flushed.push_back(ring.take());
        }
        self.recount(qpn);
    }

    /// Updates the counts after the send completions of a queue pair were discarded.
    pub(super) fn recount(&mut self, qpn: Qpn) {
        let at = self.place(qpn);
        if let (Some(marked), Some(at)) = (&mut self.marked, at) {
            marked.recount(&mut self.members[at]);
        }
    }

    /// Whether there are enough queue pairs for marks.
    pub(super) fn is_crowded(&self) -> bool {
        self.marked.is_none() && self.members.len() > MOST_UNMARKED
    }

    /// Polls only marked queue pairs from now on. Each existing queue pair is polled once, because it was not
    /// marked so far.
    pub(super) fn begin_marks(&mut self) {
        self.marked = Some(Marked {
            places: vec![NOWHERE; MAX_QP as usize].into(),
            ready: VecDeque::new(),
            waiting: 0,
        });
        (0..self.members.len()).for_each(|at| self.note_place(at));
        for at in 0..self.members.len() {
            let index = qp_index(self.members[at].qpn);
            self.note_ready(index);
        }
    }

    /// Adds a queue pair that was found marked to the list for the next polls.
    #[inline]
    pub(super) fn note_ready(&mut self, index: u32) {
        let Some(marked) = &mut self.marked else {
            return;
        };
        // A late mark of a removed queue pair is ignored.
        let Some(at) = marked.place(index) else {
            return;
        };
        let member = &mut self.members[at];
        marked.recount(member);
        if !std::mem::replace(&mut member.is_ready, true) {
            marked.ready.push_back(index);
        }
    }

    /// Returns the number of waiting send completions and flushed receives.
    #[inline]
    pub(super) fn waiting(&self) -> u64 {
        let waiting = match &self.marked {
            None => self.members.iter().map(Member::waiting).sum(),
            Some(marked) => marked.waiting,
        };
        waiting + self.flushed.len() as u64
    }

    pub(super) fn are_marked(&self) -> bool {
        self.marked.is_some()
    }

    /// Takes completions from the rings; returns how many.
    #[inline]
    pub(super) fn take(&mut self, into: &mut [WorkCompletion]) -> usize {
        let Some(marked) = &mut self.marked else {
            return self.take_of_all(into);
        };
        let mut taken = 0;
        for _ in 0..marked.ready.len() {
            if taken == into.len() {
                break;
            }
            let Some(index) = marked.ready.pop_front() else {
                break;
            };
            let Some(at) = marked.place(index) else {
                continue;
            };
            let member = &mut self.members[at];
            taken += member.take_sent(&mut into[taken..]);
            marked.recount(member);
            taken += member.take_received(&mut into[taken..]);
            member.is_ready = taken == into.len();
            if member.is_ready {
                // It may have more completions. The other queue pairs are polled first.
                marked.ready.push_back(index);
            }
        }
        taken
    }

    #[inline]
    fn take_of_all(&mut self, into: &mut [WorkCompletion]) -> usize {
        let count = self.members.len();
        let mut taken = 0;
        for i in 0..count {
            let member = &mut self.members[in_turn(self.turn, i, count)];
            taken += member.take_sent(&mut into[taken..]);
            taken += member.take_received(&mut into[taken..]);
        }
        self.turn = self.turn.wrapping_add(1);
        taken
    }

    pub(super) fn take_flushed(&mut self, into: &mut [WorkCompletion]) -> usize {
        let taken = into.len().min(self.flushed.len());
        for (place, completion) in into.iter_mut().zip(self.flushed.drain(..taken)) {
            *place = completion;
        }
        taken
    }

    /// Takes the receive completions of queue pairs with shared receive queues, for completion queue `index`.
    pub(super) fn take_shared(&mut self, index: u32, into: &mut [WorkCompletion]) -> usize {
        let mut taken = 0;
        for (srq, _) in &self.shared {
            taken += srq.take(index, &mut into[taken..]);
        }
        taken
    }
}

impl Marked {
    #[inline]
    fn place(&self, index: u32) -> Option<usize> {
        let place = self.places[index as usize];
        (place != NOWHERE).then_some(place.into())
    }

    #[inline]
    fn recount(&mut self, member: &mut Member) {
        let waiting = member.waiting();
        self.waiting = self.waiting + waiting - member.waiting;
        member.waiting = waiting;
    }
}

/// Returns the index of the `i`-th of `count` queue pairs, starting at `turn`.
#[inline]
fn in_turn(turn: usize, i: usize, count: usize) -> usize {
    if count == 1 { 0 } else { (turn + i) % count }
}
