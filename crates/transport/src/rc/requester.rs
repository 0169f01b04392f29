//! The requester: sends this side's requests and takes their responses (IBTA vol. 1, 9.7.2 to 9.7.7).
//!
//! It goes back to the first packet that is not acknowledged when one of its packets is missing at the
//! responder (NAK), when responses are missing here, or when nothing comes for too long.

use adverb_units::Time;
use adverb_verbs::{PathMtu, Psn, Qpn, SendFlags, WcStatus};
use adverb_wire::bth::BthFlags;
use adverb_wire::{
    Aeth, AtomicEth, Bth, Extension, NakCode, Opcode, Packet, PacketHeaders, Reth, Syndrome,
};

use super::credits::CreditLimit;
use super::retry::Retries;
use super::send_queue::{Entry, SendQueue};
use super::timers::Timers;
use super::window::Window;
use super::{RcConfig, Refusal};
use crate::PacketBuffer;
use crate::drops::DropReason;
use crate::memory::{AtomicOperation, Memory};
use crate::request::{Payload, PostError, SendWork, Work};
use crate::segment::{Segment, mtu_bytes, packets, rc_request};
use crate::sequence::{Numbering, Seq};
use crate::shared::Shared;

/// "Bad response" of `ibv_wc_status`.
pub(super) const BAD_RESPONSE: WcStatus = WcStatus::Other(7);

#[derive(Debug)]
pub(super) struct Requester {
    peer: Qpn,
    mtu: PathMtu,
    numbering: Numbering,
    queue: SendQueue,
    /// The request of the next packet to send.
    cursor: usize,
    window: Window,
    reads: ReadSlots,
    credits: CreditLimit,
    timers: Timers,
    retries: Retries,
    asking: AckRequests,
}

/// READs and atomics under way: wholly sent, not yet answered.
#[derive(Debug)]
struct ReadSlots {
    busy: u8,
    most: u8,
}

/// When to ask for an acknowledgement: at least every so many packets.
#[derive(Debug)]
struct AckRequests {
    since: u32,
    every: u32,
}

/// What the next packet is.
struct Next {
    headers: PacketHeaders,
    /// Where its payload is in the request's memory.
    offset: u64,
    bytes: usize,
    /// Packet numbers that it takes.
    numbers: u64,
}

/// What an acknowledgement leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// All that it says is acknowledged.
    All,
    /// The response of a READ or an atomic operation before it is missing.
    Gap,
}

impl Requester {
    pub(super) fn new(config: &RcConfig) -> Self {
        let own = &config.requester;
        let numbering = Numbering::new(own.first_psn);
        Requester {
            peer: config.peer,
            mtu: config.path_mtu,
            numbering,
            queue: SendQueue::new(own.max_work),
            cursor: 0,
            window: Window::new(numbering.first(), own.window),
            reads: ReadSlots {
                busy: 0,
                most: own.max_reads,
            },
            credits: CreditLimit::default(),
            timers: Timers::new(own.timeout),
            retries: Retries::new(own.retries, own.rnr_retries),
            asking: AckRequests {
                since: 0,
                every: (own.window / 4).max(1),
            },
        }
    }

    pub(super) fn post(
        &mut self,
        request: SendWork,
        memory: &impl Memory,
    ) -> Result<(), PostError> {
        if request.work.is_answered() && self.reads.most == 0 {
            return Err(PostError::ReadsNotAllowed);
        }
        let window = &mut self.window;
        self.queue
            .post(request, memory, self.mtu, |packets| window.extend(packets))
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.timers.deadline()
    }

    /// Requests that are not completed, oldest first: for flushing.
    pub(super) fn take(&mut self) -> Option<Entry> {
        self.timers.clear();
        self.cursor = 0;
        self.queue.pop()
    }

    // --- sending

    /// Builds the next packet, if one may be sent.
    ///
    /// # Errors
    /// The oldest request fails with this status.
    pub(super) fn transmit(
        &mut self,
        now: Time,
        memory: &impl Memory,
        out: &mut PacketBuffer,
        shared: &mut Shared,
    ) -> Result<Option<usize>, WcStatus> {
        let seq = self.window.next();
        if !self.may_send(self.cursor, seq, self.reads.busy) || self.timers.waits_for_receiver(now)
        {
            return self.failed_front();
        }
        let entry = self.queue.get(self.cursor).expect("it may be sent");
        let mut next = self.build(entry, seq);
        let after = seq + next.numbers;
        if self.wants_ack(entry, after) {
            next.headers.bth = next.headers.bth.with(BthFlags::ACK_REQ);
        }
        let (length, place) = next
            .headers
            .lay_out(next.bytes, out)
            .expect("headers fit the opcode, and any packet the buffer");
        if entry
            .request
            .payload
            .gather(memory, next.offset, place)
            .is_err()
        {
            self.queue.fail(self.cursor, WcStatus::LocProtErr);
            return self.failed_front();
        }
        self.sent(now, next.headers.bth.flags, after, shared);
        Ok(Some(length))
    }

    /// Takes note of a packet that was built.
    #[inline]
    fn sent(&mut self, now: Time, flags: BthFlags, after: Seq, shared: &mut Shared) {
        let entry = self.queue.get(self.cursor).expect("one was sent of it");
        if after == entry.end {
            self.reads.busy += u8::from(entry.is_answered());
            self.cursor += 1;
        }
        self.asking.since = match flags.contains(BthFlags::ACK_REQ) {
            true => 0,
            false => self.asking.since + 1,
        };
        if self.window.next() < self.window.sent() {
            shared.counters.resent += 1;
        }
        self.window.advance_next(after);
        self.timers.sent(now);
    }

    /// Whether a packet of a request may be sent with so many READs and atomics under way.
    #[inline]
    fn may_send(&self, index: usize, seq: Seq, reads: u8) -> bool {
        let Some(entry) = self.queue.get(index) else {
            return false;
        };
        let begins = seq == entry.first;
        let fenced = begins && entry.is_fenced() && reads != 0;
        // A READ of more than a window is several requests on the wire, one after the other.
        let waits = entry.is_answered()
            && (reads >= self.reads.most || !begins && seq != self.window.unacked());
        let uncredited = entry.request.work.consumes_receive()
            && !self.credits.covers(entry.message)
            && !self.may_probe(entry, seq);
        self.window.has_room_at(seq) && entry.failure.is_none() && !fenced && !waits && !uncredited
    }

    /// Without a credit one packet may go, to learn of new ones; once it is acknowledged, its message
    /// has a receive request (IBTA vol. 1, 9.7.7.2.5).
    #[inline]
    fn may_probe(&self, entry: &Entry, seq: Seq) -> bool {
        let unacked = self.window.unacked();
        unacked > entry.first || (seq == entry.first && unacked == seq)
    }

    /// If the oldest request was found to be wrong on this side and those before it are done, it fails.
    fn failed_front(&self) -> Result<Option<usize>, WcStatus> {
        match self.queue.front() {
            Some(Entry {
                failure: Some(status),
                ..
            }) => Err(*status),
            _ => Ok(None),
        }
    }

    /// Whether the packet of a request, behind which `after` comes, asks for an acknowledgement: where
    /// no other packet can follow it now, and every so many packets.
    #[inline]
    fn wants_ack(&self, entry: &Entry, after: Seq) -> bool {
        if self.asking.since + 1 >= self.asking.every {
            return true;
        }
        let ends = after == entry.end;
        let index = self.cursor + usize::from(ends);
        let reads = self.reads.busy + u8::from(ends && entry.is_answered());
        !self.may_send(index, after, reads)
    }

    /// What the packet at `seq` of a request is.
    #[inline]
    fn build(&self, entry: &Entry, seq: Seq) -> Next {
        let psn = self.numbering.psn(seq);
        match entry.request.work {
            Work::Read(remote) => self.build_read(entry, seq, remote),
            Work::FetchAdd(..) | Work::CompareSwap(..) => build_atomic(entry, self.peer, psn),
            work => {
                let segment = Segment::of(entry.length, seq.since(entry.first), self.mtu);
                let (opcode, extension) = rc_request(&work, entry.length, segment.position);
                let mut bth = Bth::new(opcode, self.peer, psn);
                if segment.position.ends() && entry.request.flags.contains(SendFlags::SOLICITED) {
                    bth = bth.with(BthFlags::SOLICITED);
                }
                Next {
                    headers: PacketHeaders { bth, extension },
                    offset: segment.offset,
                    bytes: segment.bytes,
                    numbers: 1,
                }
            }
        }
    }

    /// The request for what is left of a READ from `seq` on, at most up to a whole window of it: asked
    /// again from its middle, it ends where it ended before, because the responder knows it so.
    fn build_read(&self, entry: &Entry, seq: Seq, remote: adverb_verbs::RemoteAddress) -> Next {
        let index = seq.since(entry.first);
        let offset = index * mtu_bytes(self.mtu);
        let most = (self.window.limit() - index % self.window.limit()) * mtu_bytes(self.mtu);
        let length = (entry.length - offset).min(most);
        let reth = Reth {
            remote: remote.at(offset),
            length: length as u32,
        };
        Next {
            headers: PacketHeaders {
                bth: Bth::new(Opcode::RcReadRequest, self.peer, self.numbering.psn(seq)),
                extension: Extension::Rdma(reth),
            },
            offset,
            bytes: 0,
            numbers: packets(length, self.mtu),
        }
    }

    // --- what comes back

    /// Takes a response.
    pub(super) fn handle(
        &mut self,
        now: Time,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
        shared: &mut Shared,
    ) -> Result<(), Refusal> {
        let unacked = self.window.unacked();
        let seq = self.numbering.seq(packet.headers.bth.psn, unacked);
        if seq >= self.window.sent() {
            return Err(Refusal::Drop(DropReason::UnsentResponse));
        }
        let done = match packet.headers.extension {
            Extension::Ack(aeth) if packet.opcode() == Opcode::RcAck => {
                self.handle_ack(now, seq, aeth, shared)
            }
            _ if seq < unacked => Err(Refusal::Drop(DropReason::StaleResponse)),
            _ => self.handle_data(seq, packet, memory, shared),
        };
        if self.window.unacked() != unacked {
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
    ) -> Result<(), Refusal> {
        let unacked = self.window.unacked();
        match aeth.syndrome {
            Syndrome::Ack(credits) if seq + 1 >= unacked => {
                self.credits
                    .update(aeth.msn, credits, self.queue.completed());
                match self.acknowledge(seq + 1, shared) {
                    Reached::All => Ok(()),
                    Reached::Gap => Err(self.gap(shared)),
                }
            }
            _ if seq < unacked => Err(Refusal::Drop(DropReason::StaleResponse)),
            _ if self.acknowledge(seq, shared) == Reached::Gap => Err(self.gap(shared)),
            Syndrome::Nak(code) if code != NakCode::PsnSequenceError => {
                Err(Refusal::Fail(status_of(code)))
            }
            // What it refuses is to be sent again already.
            _ if !self.window.is_busy() => Err(Refusal::Drop(DropReason::StaleResponse)),
            Syndrome::RnrNak(timer) => {
                shared.counters.rnr_naks += 1;
                self.retries.take_rnr().map_err(Refusal::Fail)?;
                self.go_back(shared);
                self.timers.wait_for_receiver(now, timer.span());
                Ok(())
            }
            Syndrome::Nak(_) => {
                self.retries.take().map_err(Refusal::Fail)?;
                self.go_back(shared);
                Ok(())
            }
            Syndrome::Ack(_) => Ok(()),
        }
    }

    /// Takes a packet with the answer of a READ or an atomic operation.
    fn handle_data(
        &mut self,
        seq: Seq,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
        shared: &mut Shared,
    ) -> Result<(), Refusal> {
        // It acknowledges all before it.
        if self.acknowledge(seq, shared) == Reached::Gap {
            return Err(self.gap(shared));
        }
        let entry = self.queue.front().expect("sent and not acknowledged");
        let (offset, bytes) = match (entry.request.work, packet.headers.extension) {
            (Work::Read(_), Extension::Ack(_) | Extension::None) => {
                let segment = Segment::of(entry.length, seq.since(entry.first), self.mtu);
                let ends = segment.position.ends();
                // Where a READ went on after a loss, its answer begins anew; so only its end is sure.
                let fits = packet.opcode().position().ends() || !ends;
                if packet.payload.len() != segment.bytes || !fits {
                    return Err(Refusal::Fail(BAD_RESPONSE));
                }
                (segment.offset, packet.payload)
            }
            (Work::FetchAdd(..) | Work::CompareSwap(..), Extension::AtomicAck(_, found)) => {
                return self.finish_atomic(found.original, memory, shared);
            }
            _ => return Err(Refusal::Fail(BAD_RESPONSE)),
        };
        if let Extension::Ack(aeth) = packet.headers.extension {
            self.note_credits(aeth);
        }
        self.scatter(offset, bytes, memory)?;
        self.acknowledge_answer(seq, shared);
        Ok(())
    }

    fn finish_atomic(
        &mut self,
        original: u64,
        memory: &mut impl Memory,
        shared: &mut Shared,
    ) -> Result<(), Refusal> {
        self.scatter(0, &original.to_ne_bytes(), memory)?;
        self.acknowledge_answer(self.window.unacked(), shared);
        Ok(())
    }

    /// Puts a part of an answer into the oldest request's memory.
    #[inline]
    fn scatter(&self, offset: u64, bytes: &[u8], memory: &mut impl Memory) -> Result<(), Refusal> {
        let entry = self.queue.front().expect("an answer to it came");
        let placed = match &entry.request.payload {
            Payload::Memory(pieces) => pieces.scatter(memory, offset, bytes),
            Payload::Inline(_) => Ok(()),
        };
        placed.map_err(|_| Refusal::Fail(WcStatus::LocProtErr))
    }

    #[inline]
    fn note_credits(&mut self, aeth: Aeth) {
        if let Syndrome::Ack(credits) = aeth.syndrome {
            self.credits
                .update(aeth.msn, credits, self.queue.completed());
        }
    }

    /// Everything before `to` is acknowledged, up to the first request whose answer is missing.
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

    /// The packet `seq` of the oldest request's answer is there.
    #[inline]
    fn acknowledge_answer(&mut self, seq: Seq, shared: &mut Shared) {
        self.retries.reset();
        self.window.acknowledge(seq + 1);
        if self.queue.front().is_some_and(|entry| entry.end == seq + 1) {
            self.complete_front(shared);
        }
    }

    fn complete_front(&mut self, shared: &mut Shared) {
        let entry = self.queue.pop().expect("it is acknowledged");
        if self.cursor > 0 {
            self.cursor -= 1;
            self.reads.busy -= u8::from(entry.is_answered());
        }
        shared.complete_send(&entry.request);
    }

    // --- going back

    /// Responses are missing: everything from there on is asked for again.
    fn gap(&mut self, shared: &mut Shared) -> Refusal {
        if self.window.is_busy() && self.retries.is_new_gap(self.window.unacked()) {
            self.go_back(shared);
        }
        Refusal::Drop(DropReason::ResponseGap)
    }

    fn go_back(&mut self, shared: &mut Shared) {
        shared.counters.went_back += 1;
        self.window.go_back();
        self.cursor = 0;
        self.reads.busy = 0;
        self.asking.since = 0;
        self.timers.stop();
    }

    /// The clock has come to a deadline.
    ///
    /// # Errors
    /// The oldest request fails with this status.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        shared: &mut Shared,
    ) -> Result<(), WcStatus> {
        if self.timers.is_overdue(now) {
            shared.counters.timeouts += 1;
            self.retries.take()?;
            self.go_back(shared);
        }
        self.timers.waits_for_receiver(now);
        Ok(())
    }
}

fn build_atomic(entry: &Entry, peer: Qpn, psn: Psn) -> Next {
    let (remote, operation) = entry.request.work.atomic().expect("it is an atomic one");
    let (opcode, swap_or_add, compare) = match operation {
        AtomicOperation::FetchAdd(add) => (Opcode::RcFetchAdd, add, 0),
        AtomicOperation::CompareSwap(c) => (Opcode::RcCompareSwap, c.new, c.expected),
    };
    let atomic = AtomicEth {
        remote,
        swap_or_add,
        compare,
    };
    Next {
        headers: PacketHeaders {
            bth: Bth::new(opcode, peer, psn),
            extension: Extension::Atomic(atomic),
        },
        offset: 0,
        bytes: 0,
        numbers: 1,
    }
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
