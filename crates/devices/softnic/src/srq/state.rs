//! The owner's record of the requests of a shared receive queue.

use std::collections::VecDeque;

use adverb_verbs::{Qpn, WorkCompletion, WrId};

use crate::recv_queue::received;
use crate::shm::datagram_ring::Addressee;
use crate::shm::layout::qpn_of;
use crate::shm::ring::Arrival;
use crate::shm::shared_ring::Ticket;

/// Which queue pairs have taken which requests, and which are complete.
#[derive(Debug)]
pub(super) struct State {
    /// Position of the next request.
    pub(super) next: u64,
    /// All requests before this position were taken, and their holders are recorded.
    pub(super) collected: u64,
    /// Slots of the requests at the last positions.
    pub(super) slot_at: Box<[u16]>,
    /// `wr_id` of the requests, by slot.
    pub(super) wr_ids: Box<[u64]>,
    pub(super) free: Vec<u16>,
    pub(super) held: Vec<TakenRequest>,
    /// Queue pairs, by index.
    pub(super) users: Vec<Option<User>>,
    /// XRC: the slot of the port, whose receive queue pairs all may use it, and the index of its completion queue.
    xrc: Option<(u32, u32)>,
    /// Completions that were not polled yet, by index of the completion queue.
    pub(super) ready: Vec<(u32, VecDeque<WorkCompletion>)>,
    /// Slots that a stopped requester may still write to.
    pub(super) kept: Vec<TakenRequest>,
}

/// A request that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenRequest {
    pub(super) ticket: Ticket,
    pub(super) holder: u16,
}

/// A queue pair that takes from the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    pub(super) addressee: Addressee,
    pub(super) qpn: Qpn,
    pub(super) recv_cq: u32,
    /// UD: it has failed, and receives nothing more.
    pub(super) is_over: bool,
}

/// Whether a requester may still write to the requests that its queue pair has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerActivity {
    /// No requester may.
    Idle,
    /// A requester is stopped in the middle of a message, and may continue.
    Stopped,
}

impl PeerActivity {
    pub(crate) fn from_idle(is_idle: bool) -> Self {
        if is_idle {
            PeerActivity::Idle
        } else {
            PeerActivity::Stopped
        }
    }
}

impl State {
    pub(super) fn new(first: u64, (words, slots): (usize, usize), xrc: Option<(u32, u32)>) -> Self {
        State {
            next: first,
            collected: first,
            slot_at: vec![0; words].into(),
            wr_ids: vec![0; slots].into(),
            free: (0..slots).rev().map(|slot| slot as u16).collect(),
            held: Vec::new(),
            users: Vec::new(),
            xrc,
            ready: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Returns the number of requests that are posted, or taken and not known to be complete.
    pub(super) fn outstanding(&self) -> u64 {
        self.next - self.collected + self.held.len() as u64
    }

    pub(super) fn take_held(&mut self, holder: u16) -> Vec<TakenRequest> {
        self.held
            .extract_if(.., |held| held.holder == holder)
            .collect()
    }

    /// Frees the slot of a completed request.
    pub(super) fn end(&mut self, held: TakenRequest, arrival: Arrival) {
        self.complete(held, arrival);
        self.free.push(held.ticket.slot);
    }

    pub(super) fn let_go(&mut self, held: TakenRequest, peer: PeerActivity) {
        match peer {
            PeerActivity::Idle => self.free.push(held.ticket.slot),
            PeerActivity::Stopped => self.kept.push(held),
        }
    }

    pub(super) fn complete(&mut self, held: TakenRequest, arrival: Arrival) {
        // Completions of a removed queue pair are discarded.
        if let Some((qpn, recv_cq)) = self.user(held.holder) {
            let wr_id = WrId(self.wr_ids[usize::from(held.ticket.slot)]);
            let completion = received(wr_id, qpn, arrival);
            self.ready_for(recv_cq).push_back(completion);
        }
    }

    /// Returns the number of the queue pair at an index, and the index of the completion queue of its receives.
    fn user(&self, index: u16) -> Option<(Qpn, u32)> {
        if let Some((slot, recv_cq)) = self.xrc {
            return Some((qpn_of(slot, index.into()), recv_cq));
        }
        let user = self.users.get(usize::from(index)).copied().flatten()?;
        Some((user.qpn, user.recv_cq))
    }

    pub(super) fn ready_for(&mut self, recv_cq: u32) -> &mut VecDeque<WorkCompletion> {
        let known = self.ready.iter().position(|(cq, _)| *cq == recv_cq);
        let at = known.unwrap_or_else(|| {
            self.ready.push((recv_cq, VecDeque::new()));
            self.ready.len() - 1
        });
        &mut self.ready[at].1
    }
}
