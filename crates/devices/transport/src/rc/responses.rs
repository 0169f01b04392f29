//! The responder's pending responses, in PSN order. A response acknowledges all requests before it, so if one overtook
//! another, the other would be missing (IBTA vol. 1, 9.7.5.1.2).

use std::collections::VecDeque;

use adverb_verbs::{PathMtu, RemoteAddress, Srqn};
use adverb_wire::{NakCode, Syndrome};

use crate::segment::mtu_bytes;
use crate::sequence::Seq;

/// The response to a READ. A part of it may have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadResponse {
    /// The READ that it responds to, also if the request was repeated.
    pub(super) resource: Seq,
    /// The memory to read.
    pub(super) remote: RemoteAddress,
    /// Length of the whole response in bytes.
    pub(super) length: u64,
    /// Number of packets sent.
    pub(super) sent: u64,
    /// XRC: the queue that the request named.
    pub(super) srqn: Option<Srqn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseKind {
    /// An ACK.
    Ack,
    /// A NAK.
    Nak(Syndrome),
    /// Data of a READ.
    Read(ReadResponse),
    /// The old value of an atomic operation.
    Atomic(u64),
}

/// The NAK for a missing request.
const SEQUENCE_ERROR: ResponseKind = ResponseKind::Nak(Syndrome::Nak(NakCode::PsnSequenceError));

/// How often a response was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    /// Once, so the requester cannot have received it.
    Once,
    /// Again, after it was sent.
    Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// Sequence number of its first packet.
    pub(super) seq: Seq,
    /// Number of messages completed before it, modulo 2^24.
    pub(super) msn: u32,
    pub(super) times: Times,
    pub(super) kind: ResponseKind,
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

    /// Adds a response in PSN order. It replaces an ACK or NAK directly before it, because it acknowledges the same
    /// requests. But a NAK does not replace an ACK: if a forged packet has caused it, the requester may not have sent
    /// its PSN, and may ignore it.
    pub(super) fn push(&mut self, response: Response) {
        let waits_before = |r: &Response| r.seq <= response.seq;
        let mut at = self.waiting.len();
        while at > 0 && !waits_before(&self.waiting[at - 1]) {
            at -= 1;
        }
        let before = at.checked_sub(1).map(|before| self.waiting[before].kind);
        match before {
            Some(ResponseKind::Ack) if matches!(response.kind, ResponseKind::Nak(_)) => {
                self.waiting.insert(at, response);
            }
            Some(ResponseKind::Ack | ResponseKind::Nak(_)) => self.waiting[at - 1] = response,
            _ => self.waiting.insert(at, response),
        }
    }

    /// Removes a sequence error that was not sent yet: the missing request has arrived.
    pub(super) fn withdraw_sequence_error(&mut self) {
        if self
            .waiting
            .back()
            .is_some_and(|last| last.kind == SEQUENCE_ERROR)
        {
            self.waiting.pop_back();
        }
    }

    /// Adds the response to a repeated READ, which replaces the pending response of the READ. A requester repeats a READ
    /// from the first missing packet on, so the latest response contains everything that is missing.
    pub(super) fn repeat_read(&mut self, mut response: Response) {
        if let ResponseKind::Read(ReadResponse { resource, .. }) = response.kind {
            if self.owes(resource) {
                response.times = Times::Once;
            }
            self.waiting.retain(|r| !r.is_read_of(resource));
        }
        self.push(response);
    }

    /// Adds the response to a repeated atomic operation, unless it is pending.
    pub(super) fn repeat_atomic(&mut self, response: Response) {
        let same =
            |r: &Response| r.seq == response.seq && matches!(r.kind, ResponseKind::Atomic(_));
        if !self.waiting.iter().any(same) {
            self.push(response);
        }
    }

    /// Whether part of a request's response is still to be sent.
    pub(super) fn owes(&self, resource: Seq) -> bool {
        let owed = |r: &Response| r.times == Times::Once && r.is_of(resource);
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
        matches!((all.next(), all.next()), (Some(r), None) if r.kind == ResponseKind::Ack)
    }

    /// Records that a packet of the first response was sent.
    #[inline]
    pub(super) fn advance(&mut self, mtu: PathMtu) {
        let Some(first) = self.waiting.front_mut() else {
            return;
        };
        if let ResponseKind::Read(read) = &mut first.kind {
            read.sent += 1;
            if read.sent * mtu_bytes(mtu) < read.length {
                return;
            }
        }
        self.waiting.pop_front();
    }

    /// Replaces all responses by a NAK.
    pub(super) fn replace_by_nak(&mut self, seq: Seq, syndrome: Syndrome) {
        if let Some(first) = self.waiting.front_mut() {
            first.seq = seq;
            first.kind = ResponseKind::Nak(syndrome);
            self.waiting.truncate(1);
        }
    }
}

impl Response {
    fn is_read_of(&self, resource: Seq) -> bool {
        matches!(&self.kind, ResponseKind::Read(read) if read.resource == resource)
    }

    fn is_of(&self, resource: Seq) -> bool {
        self.is_read_of(resource)
            || (matches!(self.kind, ResponseKind::Atomic(_)) && self.seq == resource)
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

    fn response(n: u64, kind: ResponseKind) -> Response {
        Response {
            seq: seq(n),
            msn: 0,
            times: Times::Once,
            kind,
        }
    }

    fn read(resource: u64, packets: u64) -> ResponseKind {
        ResponseKind::Read(ReadResponse {
            resource: seq(resource),
            remote: RemoteAddress {
                addr: 0,
                rkey: Rkey(0),
            },
            length: packets * 256,
            sent: 0,
            srqn: None,
        })
    }

    /// Takes all responses packet by packet; returns the number of each packet.
    fn drain(responses: &mut Responses) -> Vec<u64> {
        let mut numbers = vec![];
        while let Some(first) = responses.front() {
            let sent = match first.kind {
                ResponseKind::Read(read) => read.sent,
                _ => 0,
            };
            numbers.push((first.seq + sent).since(seq(0)));
            responses.advance(PathMtu::B256);
        }
        numbers
    }

    #[test]
    fn a_repeated_response_is_sent_in_psn_order() {
        let mut responses = Responses::new(8);
        responses.push(response(4, ResponseKind::Atomic(1)));
        responses.push(response(9, ResponseKind::Ack));
        responses.repeat_read(response(2, read(0, 2)));
        assert_eq!(drain(&mut responses), [2, 3, 4, 9]);
    }

    #[test]
    fn a_repeated_read_replaces_its_pending_response() {
        let mut responses = Responses::new(8);
        responses.push(response(0, read(0, 4)));
        responses.push(response(4, ResponseKind::Atomic(1)));
        responses.advance(PathMtu::B256);
        responses.repeat_read(response(2, read(0, 2)));
        responses.repeat_atomic(response(4, ResponseKind::Atomic(1)));
        assert_eq!(drain(&mut responses), [2, 3, 4]);
    }

    #[test]
    fn an_ack_replaces_the_ack_before_it() {
        let mut responses = Responses::new(8);
        for n in 0..5 {
            responses.push(response(n, ResponseKind::Ack));
        }
        responses.push(response(5, ResponseKind::Atomic(1)));
        responses.push(response(6, ResponseKind::Ack));
        assert_eq!(drain(&mut responses), [5, 6]);
    }

    #[test]
    fn forgotten_responses_are_not_sent() {
        let mut responses = Responses::new(8);
        responses.push(response(0, read(0, 4)));
        responses.push(response(4, ResponseKind::Atomic(1)));
        responses.forget(seq(0));
        assert_eq!(drain(&mut responses), [4]);
    }
}
