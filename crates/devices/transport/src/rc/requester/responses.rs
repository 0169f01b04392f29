//! Handles responses: ACKs, NAKs, and the data of READs and atomics. Each acknowledges all requests before it. If one of
//! these is a READ or an atomic operation whose data has not arrived, the data was lost.

use adverb_units::Time;
use adverb_verbs::WcStatus;
use adverb_wire::{Aeth, Extension, NakCode, Packet, Syndrome, Verb};

use super::super::ResponseError;
use super::super::retry::GapRetry;
use super::super::sequence_errors::Reaction;
use super::Requester;
use super::reads::Reads;
use crate::drops::DropReason;
use crate::memory::Memory;
use crate::request::{Payload, Work};
use crate::segment::Segment;
use crate::sequence::Seq;
use crate::shared::Shared;

/// "Bad response" of `ibv_wc_status`.
pub(in crate::rc) const BAD_RESPONSE: WcStatus = WcStatus::Other(7);

/// The outcome of an ACK.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// Everything that it covers is acknowledged.
    All,
    /// The response of a READ or an atomic operation before it is missing.
    Gap,
}

impl Requester {
    /// Handles a response.
    pub(in crate::rc) fn handle(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
        shared: &mut Shared,
    ) -> Result<(), ResponseError> {
        let (unacked, next) = (self.window.unacked(), self.window.next());
        let seq = self.numbering.seq(packet.headers.bth.psn, unacked);
        // A NAK for the packet after the last one is due to a packet that this side did not send. It acknowledges all
        // others, like an ACK.
        let sent = self.window.sent();
        if seq > sent || (seq == sent && !is_nak(packet)) {
            return Err(ResponseError::Drop(DropReason::UnsentResponse));
        }
        let done = match packet.headers.extension {
            Extension::Ack(aeth) if packet.opcode().verb() == Verb::Ack => {
                self.handle_ack(now, seq, aeth, shared)
            }
            _ if seq < unacked => Err(ResponseError::Drop(DropReason::StaleResponse)),
            _ => self.handle_data(seq, packet, memory, shared),
        };
        let acknowledged = self.window.unacked();
        if acknowledged != unacked {
            self.window.adapt(now);
            let reaction = self.errors.acknowledged(unacked, acknowledged, next);
            if reaction == Reaction::GoBackIfLast && !self.has_packet() {
                self.errors.confirm(acknowledged);
                self.restart(shared);
            }
            match self.window.is_busy() {
                true => self.timers.restart(now),
                false => self.timers.stop(),
            }
        }
        done
    }

    fn handle_ack(
        &mut self,
        now: Time,
        seq: Seq,
        aeth: Aeth,
        shared: &mut Shared,
    ) -> Result<(), ResponseError> {
        let unacked = self.window.unacked();
        match aeth.syndrome {
            Syndrome::Ack(_) if seq + 1 >= unacked => match self.acknowledge(seq + 1, shared) {
                Reached::All => Ok(()),
                Reached::Gap => Err(self.response_gap(None, shared)),
            },
            _ if seq < unacked => Err(ResponseError::Drop(DropReason::StaleResponse)),
            _ if self.acknowledge(seq, shared) == Reached::Gap => {
                Err(self.response_gap(Some(seq), shared))
            }
            _ if seq == self.window.sent() => Err(ResponseError::Drop(DropReason::UnsentResponse)),
            Syndrome::Nak(code) if code != NakCode::PsnSequenceError => {
                Err(ResponseError::Fail(status_of(code)))
            }
            // The packet that it names is about to be sent again.
            _ if !self.window.is_busy() => Err(ResponseError::Drop(DropReason::StaleResponse)),
            Syndrome::RnrNak(timer) => {
                shared.counters.rnr_naks += 1;
                self.retries.take_rnr().map_err(ResponseError::Fail)?;
                self.go_back(shared);
                self.timers.wait_for_receiver(now, timer.span());
                Ok(())
            }
            Syndrome::Nak(_) if self.errors.is_repeated(seq) => {
                Err(ResponseError::Drop(DropReason::StaleResponse))
            }
            Syndrome::Nak(_) => {
                self.retries.take().map_err(ResponseError::Fail)?;
                let front = self.queue.front().expect("sent and not acknowledged");
                let (next, is_answered) = (self.window.next(), front.is_answered());
                if self.errors.report(seq, next, is_answered) == Reaction::GoBack {
                    self.restart(shared);
                }
                Ok(())
            }
            Syndrome::Ack(_) => Ok(()),
        }
    }

    /// Handles a packet with data of a READ or an atomic operation.
    fn handle_data(
        &mut self,
        seq: Seq,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
        shared: &mut Shared,
    ) -> Result<(), ResponseError> {
        // It acknowledges all requests before it.
        if self.acknowledge(seq, shared) == Reached::Gap {
            return Err(self.response_gap(Some(seq), shared));
        }
        let entry = self.queue.front().expect("sent and not acknowledged");
        let (offset, bytes) = match (entry.request.work, packet.headers.extension) {
            (Work::Read(_), Extension::Ack(_) | Extension::None) => {
                let segment = Segment::of(entry.length, seq.since(entry.first), self.mtu);
                let ends = segment.position.ends();
                // A READ response that was resumed after a loss has another first packet. The last one is the same.
                let fits = packet.opcode().position().ends() || !ends;
                if packet.payload.len() != segment.bytes || !fits {
                    return Err(ResponseError::Fail(BAD_RESPONSE));
                }
                (segment.offset, packet.payload)
            }
            (Work::FetchAdd(..) | Work::CompareSwap(..), Extension::AtomicAck(_, found)) => {
                return self.finish_atomic(found.original, memory, shared);
            }
            _ => return Err(ResponseError::Fail(BAD_RESPONSE)),
        };
        self.scatter(offset, bytes, memory)?;
        self.acknowledge_answer(seq, shared);
        Ok(())
    }

    fn finish_atomic(
        &mut self,
        original: u64,
        memory: &mut impl Memory,
        shared: &mut Shared,
    ) -> Result<(), ResponseError> {
        self.scatter(0, &original.to_ne_bytes(), memory)?;
        self.acknowledge_answer(self.window.unacked(), shared);
        Ok(())
    }

    /// Stores data of a response in the oldest request's memory.
    #[inline]
    fn scatter(
        &self,
        offset: u64,
        bytes: &[u8],
        memory: &mut impl Memory,
    ) -> Result<(), ResponseError> {
        let entry = self.queue.front().expect("its response has arrived");
        let placed = match &entry.request.payload {
            Payload::Memory(pieces) => pieces.scatter(memory, offset, bytes),
            Payload::Inline(_) => Ok(()),
        };
        placed.map_err(|_| ResponseError::Fail(WcStatus::LocProtErr))
    }

    /// Acknowledges everything before `to`, up to the first request whose data is missing.
    fn acknowledge(&mut self, to: Seq, shared: &mut Shared) -> Reached {
        while self.window.unacked() < to {
            let entry = self.queue.front().expect("sent and not acknowledged");
            if entry.is_answered() {
                return Reached::Gap;
            }
            let end = entry.end;
            self.retries.reset();
            if to < end {
                self.window.acknowledge(to);
            } else {
                self.window.acknowledge(end);
                self.complete_front(shared);
            }
        }
        Reached::All
    }

    /// Acknowledges packet `seq` of the oldest request's response.
    #[inline]
    fn acknowledge_answer(&mut self, seq: Seq, shared: &mut Shared) {
        let entry = self.queue.front().expect("its response has arrived");
        let (after, end) = (seq + 1, entry.end);
        // Packets that were to be sent again but have been acknowledged are no longer in flight.
        if after == Reads::part_end(entry, seq) && after <= self.window.next() {
            self.reads.finish();
        }
        self.retries.reset();
        self.window.acknowledge(after);
        if after == end {
            self.complete_front(shared);
        }
    }

    fn complete_front(&mut self, shared: &mut Shared) {
        let entry = self.queue.pop().expect("it is acknowledged");
        self.cursor = self.cursor.saturating_sub(1);
        shared.complete_send(&entry.request);
    }

    /// Handles a gap in the responses: goes back, unless the missing response was requested again. `shown_by` is the
    /// response after the gap; `None` if that is an ACK.
    fn response_gap(&mut self, shown_by: Option<Seq>, shared: &mut Shared) -> ResponseError {
        // If nothing is in flight, the missing response is about to be requested again.
        if self.window.is_busy()
            && self.retries.retry_gap(self.window.unacked(), shown_by) == GapRetry::Due
        {
            self.go_back(shared);
        }
        ResponseError::Drop(DropReason::ResponseGap)
    }
}

fn is_nak(packet: &Packet<'_>) -> bool {
    let Extension::Ack(aeth) = packet.headers.extension else {
        return false;
    };
    packet.opcode().verb() == Verb::Ack && !matches!(aeth.syndrome, Syndrome::Ack(_))
}

const fn status_of(code: NakCode) -> WcStatus {
    match code {
        NakCode::InvalidRequest => WcStatus::RemInvReqErr,
        NakCode::RemoteAccessError => WcStatus::RemAccessErr,
        NakCode::RemoteOperationalError => WcStatus::RemOpErr,
        NakCode::PsnSequenceError | NakCode::InvalidRdRequest | NakCode::Reserved(_) => {
            BAD_RESPONSE
        }
    }
}
