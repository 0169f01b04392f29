//! What the responder still has to send, in the order of packet numbers: a response acknowledges all
//! requests before it, so one that overtook another would hide it (IBTA vol. 1, 9.7.5.1.2).

use std::collections::VecDeque;

use adverb_verbs::{PathMtu, RemoteAddress};
use adverb_wire::Syndrome;

use crate::segment::mtu_bytes;
use crate::sequence::Seq;

/// The part of a READ's answer that is still to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadAnswer {
    /// The request that it answers; a repeated request answers for the first one.
    pub(super) resource: Seq,
    /// Where the rest is.
    pub(super) remote: RemoteAddress,
    /// Bytes of the whole of it.
    pub(super) length: u64,
    /// Packets of it that are sent.
    pub(super) sent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// An acknowledgement; its credits are those of the moment it is sent.
    Ack,
    /// A refusal.
    Refuse(Syndrome),
    /// Data of a READ.
    Read(ReadAnswer),
    /// What an atomic operation found.
    Atomic(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// The packet number of the response, or of its first packet.
    pub(super) seq: Seq,
    /// Messages completed when it came about, modulo 2^24.
    pub(super) msn: u32,
    pub(super) answer: Answer,
}

#[derive(Debug, Default)]
pub(super) struct Responses {
    waiting: VecDeque<Response>,
}

impl Responses {
    pub(super) fn new(most: usize) -> Self {
        Responses {
            waiting: VecDeque::with_capacity(most),
        }
    }

    /// Adds a response at its place. An acknowledgement or refusal right before it is left out: this
    /// one says as much.
    pub(super) fn push(&mut self, response: Response) {
        let waits_before = |r: &Response| r.seq <= response.seq;
        let mut at = self.waiting.len();
        while at > 0 && !waits_before(&self.waiting[at - 1]) {
            at -= 1;
        }
        if at > 0 && matches!(self.waiting[at - 1].answer, Answer::Ack | Answer::Refuse(_)) {
            self.waiting[at - 1] = response;
        } else {
            self.waiting.insert(at, response);
        }
    }

    /// The answer to a repeated READ request: takes the place of what waits of it. Requests are
    /// repeated from where answers are missing, so the last one leaves nothing out.
    pub(super) fn repeat_read(&mut self, response: Response, resource: Seq) {
        self.waiting.retain(|r| !r.is_read_of(resource));
        self.push(response);
    }

    /// The answer to a repeated atomic operation, unless it waits already.
    pub(super) fn repeat_atomic(&mut self, response: Response) {
        let same = |r: &Response| r.seq == response.seq && matches!(r.answer, Answer::Atomic(_));
        if !self.waiting.iter().any(same) {
            self.push(response);
        }
    }

    /// Leaves out what waits of a request whose answer is no longer kept: its requester has it.
    pub(super) fn forget(&mut self, resource: Seq) {
        self.waiting.retain(|r| !r.is_of(resource));
    }

    #[inline]
    pub(super) fn front(&self) -> Option<&Response> {
        self.waiting.front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// One packet of the first response is sent.
    #[inline]
    pub(super) fn advance(&mut self, mtu: PathMtu) {
        let Some(first) = self.waiting.front_mut() else {
            return;
        };
        if let Answer::Read(read) = &mut first.answer {
            read.sent += 1;
            if read.sent * mtu_bytes(mtu) < read.length {
                return;
            }
        }
        self.waiting.pop_front();
    }

    /// Replaces everything by a refusal: the rest cannot be answered.
    pub(super) fn refuse_front(&mut self, seq: Seq, syndrome: Syndrome) {
        if let Some(first) = self.waiting.front_mut() {
            first.seq = seq;
            first.answer = Answer::Refuse(syndrome);
            self.waiting.truncate(1);
        }
    }
}

impl Response {
    fn is_read_of(&self, resource: Seq) -> bool {
        matches!(&self.answer, Answer::Read(read) if read.resource == resource)
    }

    fn is_of(&self, resource: Seq) -> bool {
        self.is_read_of(resource)
            || (matches!(self.answer, Answer::Atomic(_)) && self.seq == resource)
    }
}
