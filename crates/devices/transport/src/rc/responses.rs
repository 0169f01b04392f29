//! What the responder still has to send, in the order of packet numbers: a response acknowledges all
//! requests before it, so one that overtook another would hide it (IBTA vol. 1, 9.7.5.1.2).

use std::collections::VecDeque;

use adverb_verbs::{PathMtu, RemoteAddress};
use adverb_wire::{NakCode, Syndrome};

use crate::segment::mtu_bytes;
use crate::sequence::Seq;

/// The part of a READ's answer that is still to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadAnswer {
    /// The request that it answers; a repeated request answers for the first one.
    pub(super) resource: Seq,
    /// The memory still to be sent.
    pub(super) remote: RemoteAddress,
    /// Bytes of the whole of it.
    pub(super) length: u64,
    /// Packets of it that are sent.
    pub(super) sent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// An ACK.
    Ack,
    /// A refusal.
    Refuse(Syndrome),
    /// Data of a READ.
    Read(ReadAnswer),
    /// The old value of an atomic operation.
    Atomic(u64),
}

/// A request is missing.
const SEQUENCE_ERROR: Answer = Answer::Refuse(Syndrome::Nak(NakCode::PsnSequenceError));

/// Number of times that a response was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Once: the requester cannot have it.
    Once,
    /// Again, after it had been sent.
    Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// The packet number of the response, or of its first packet.
    pub(super) seq: Seq,
    /// Messages completed when it came about, modulo 2^24.
    pub(super) msn: u32,
    pub(super) asked: Asked,
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
    /// one says as much. A sequence error replaces no acknowledgement, because it may be due to a forged
    /// packet, and then its number is one that the requester has not sent.
    pub(super) fn push(&mut self, response: Response) {
        let waits_before = |r: &Response| r.seq <= response.seq;
        let mut at = self.waiting.len();
        while at > 0 && !waits_before(&self.waiting[at - 1]) {
            at -= 1;
        }
        let before = at.checked_sub(1).map(|before| self.waiting[before].answer);
        match before {
            Some(Answer::Ack) if response.answer == SEQUENCE_ERROR => {
                self.waiting.insert(at, response);
            }
            Some(Answer::Ack | Answer::Refuse(_)) => self.waiting[at - 1] = response,
            _ => self.waiting.insert(at, response),
        }
    }

    /// The missing request has arrived before its sequence error was sent.
    pub(super) fn withdraw_sequence_error(&mut self) {
        if self
            .waiting
            .back()
            .is_some_and(|last| last.answer == SEQUENCE_ERROR)
        {
            self.waiting.pop_back();
        }
    }

    /// The answer to a repeated READ request: takes the place of what waits of it. Requests are
    /// repeated from where answers are missing, so the last one leaves nothing out.
    pub(super) fn repeat_read(&mut self, mut response: Response, resource: Seq) {
        if self.owes(resource) {
            response.asked = Asked::Once;
        }
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

    /// Whether part of a request's response is still to be sent.
    pub(super) fn owes(&self, resource: Seq) -> bool {
        let owed = |r: &Response| r.asked == Asked::Once && r.is_of(resource);
        self.waiting.iter().any(owed)
    }

    /// Removes the pending responses of a request that the requester has acknowledged implicitly.
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

    /// Whether the only pending response is an ACK.
    pub(super) fn is_acknowledgement(&self) -> bool {
        let mut all = self.waiting.iter();
        matches!((all.next(), all.next()), (Some(r), None) if r.answer == Answer::Ack)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::Numbering;
    use adverb_verbs::{Psn, Rkey};

    fn seq(n: u64) -> Seq {
        Numbering::new(Psn::new(0)).first() + n
    }

    fn response(n: u64, answer: Answer) -> Response {
        Response {
            seq: seq(n),
            msn: 0,
            asked: Asked::Once,
            answer,
        }
    }

    fn read(resource: u64, packets: u64) -> Answer {
        Answer::Read(ReadAnswer {
            resource: seq(resource),
            remote: RemoteAddress {
                addr: 0,
                rkey: Rkey(0),
            },
            length: packets * 256,
            sent: 0,
        })
    }

    /// Takes them packet by packet: the number of each.
    fn drain(responses: &mut Responses) -> Vec<u64> {
        let mut numbers = vec![];
        while let Some(first) = responses.front() {
            let sent = match first.answer {
                Answer::Read(read) => read.sent,
                _ => 0,
            };
            numbers.push((first.seq + sent).since(seq(0)));
            responses.advance(PathMtu::B256);
        }
        numbers
    }

    #[test]
    fn an_answer_that_is_repeated_goes_before_later_ones() {
        let mut responses = Responses::new(8);
        responses.push(response(4, Answer::Atomic(1)));
        responses.push(response(9, Answer::Ack));
        responses.repeat_read(response(2, read(0, 2)), seq(0));
        assert_eq!(drain(&mut responses), [2, 3, 4, 9]);
    }

    #[test]
    fn a_repeated_read_takes_the_place_of_what_waits_of_it() {
        let mut responses = Responses::new(8);
        responses.push(response(0, read(0, 4)));
        responses.push(response(4, Answer::Atomic(1)));
        responses.advance(PathMtu::B256);
        responses.repeat_read(response(2, read(0, 2)), seq(0));
        responses.repeat_atomic(response(4, Answer::Atomic(1)));
        assert_eq!(drain(&mut responses), [2, 3, 4]);
    }

    #[test]
    fn the_last_acknowledgement_says_it_all() {
        let mut responses = Responses::new(8);
        for n in 0..5 {
            responses.push(response(n, Answer::Ack));
        }
        responses.push(response(5, Answer::Atomic(1)));
        responses.push(response(6, Answer::Ack));
        assert_eq!(drain(&mut responses), [5, 6]);
    }

    #[test]
    fn what_is_no_longer_kept_is_not_sent() {
        let mut responses = Responses::new(8);
        responses.push(response(0, read(0, 4)));
        responses.push(response(4, Answer::Atomic(1)));
        responses.forget(seq(0));
        assert_eq!(drain(&mut responses), [4]);
    }
}
