//! Chooses and builds the next packet: window, fences, READs in flight; segmentation.

use adverb_units::Time;
use adverb_verbs::{Psn, Qpn, RemoteAddress, SendFlags, WcStatus};
use adverb_wire::bth::BthFlags;
use adverb_wire::opcode::Ends;
use adverb_wire::{AtomicEth, Bth, Extension, Opcode, PacketHeaders, Reth, Service, XrcEth};

use super::super::send_queue::Entry;
use super::Requester;
use super::reads::Reads;
use crate::PacketBuffer;
use crate::memory::{AtomicOperation, Memory};
use crate::request::Work;
use crate::segment::{Segment, mtu_bytes, rc_request};
use crate::sequence::Seq;
use crate::shared::Shared;

/// The next packet to send.
struct Next {
    headers: PacketHeaders,
    /// Offset of its payload in the request's memory.
    offset: u64,
    bytes: usize,
    /// Number of sequence numbers that it takes.
    numbers: u64,
}

impl Requester {
    /// Builds the next packet, if one may be sent.
    ///
    /// # Errors
    /// The oldest request fails with this status.
    pub(in crate::rc) fn transmit(
        &mut self,
        now: Time,
        memory: &impl Memory,
        out: &mut PacketBuffer,
        shared: &mut Shared,
    ) -> Result<Option<usize>, WcStatus> {
        if self.errors.has_probe() && !self.timers.waits_for_receiver(now) {
            return self.transmit_probe(memory, out, shared);
        }
        let seq = self.window.next();
        let reads = self.reads.in_flight();
        if !self.may_send(self.cursor, seq, reads) || self.timers.waits_for_receiver(now) {
            return self.failed_front();
        }
        let entry = self.queue.get(self.cursor).expect("it may be sent");
        let mut next = self.build(entry, seq);
        let after = seq + next.numbers;
        if self.wants_ack(entry, after) {
            next.headers.bth = next.headers.bth.with(BthFlags::ACK_REQ);
        }
        let Some(length) = lay_out(entry, &next, memory, out) else {
            self.queue.fail(self.cursor, WcStatus::LocProtErr);
            return self.failed_front();
        };
        self.sent(now, next.headers.bth.flags, after, shared);
        Ok(Some(length))
    }

    /// Builds the oldest packet again, with a request for an ACK.
    #[cold]
    fn transmit_probe(
        &mut self,
        memory: &impl Memory,
        out: &mut PacketBuffer,
        shared: &mut Shared,
    ) -> Result<Option<usize>, WcStatus> {
        self.errors.sent_probe();
        let entry = self.queue.front().expect("sent and not acknowledged");
        let mut probe = self.build(entry, self.window.unacked());
        probe.headers.bth = probe.headers.bth.with(BthFlags::ACK_REQ);
        let length = lay_out(entry, &probe, memory, out).ok_or(WcStatus::LocProtErr)?;
        shared.counters.resent += 1;
        Ok(Some(length))
    }

    /// Records that the next packet was built.
    #[inline]
    fn sent(&mut self, now: Time, flags: BthFlags, after: Seq, shared: &mut Shared) {
        let entry = self.queue.get(self.cursor).expect("one was sent of it");
        let ends = ends(entry, after);
        if entry.is_answered() {
            self.reads.begin();
        }
        if ends == Ends::Message {
            self.cursor += 1;
        }
        let asks = flags.contains(BthFlags::ACK_REQ);
        if asks || entry.is_answered() {
            self.errors.requested_ack(self.window.next());
            self.window.requested_ack(now);
        }
        match asks {
            true => self.ack_requests.reset(),
            false => self.ack_requests.note(ends),
        }
        if self.window.next() < self.window.sent() {
            shared.counters.resent += 1;
        }
        self.window.advance_next(after);
        self.timers.sent(now);
    }

    /// Whether a packet of a request may be sent, given the number of READs and atomics in flight.
    #[inline]
    fn may_send(&self, index: usize, seq: Seq, reads: u8) -> bool {
        let Some(entry) = self.queue.get(index) else {
            return false;
        };
        let begins = seq == entry.first;
        if begins && self.drain_from.is_some_and(|from| seq >= from) {
            return false;
        }
        let fenced = begins && entry.is_fenced() && reads != 0;
        let (end, waits) = match entry.is_answered() {
            true => (Reads::part_end(entry, seq), !self.reads.may_follow(reads)),
            false => (seq + 1, false),
        };
        self.window.has_room_for(seq, end) && entry.failure.is_none() && !fenced && !waits
    }

    /// Whether [`Requester::transmit`] has something to do, except while the RNR timer runs.
    pub(in crate::rc) fn has_packet(&self) -> bool {
        self.errors.has_probe()
            || self.may_send(self.cursor, self.window.next(), self.reads.in_flight())
            || self.failed_front().is_err()
    }

    /// Returns the local error of the oldest request, if it has one.
    fn failed_front(&self) -> Result<Option<usize>, WcStatus> {
        match self.queue.front() {
            Some(Entry {
                failure: Some(status),
                ..
            }) => Err(*status),
            _ => Ok(None),
        }
    }

    /// Whether the packet before `after` requests an ACK: if no other packet can follow it now, and at intervals of
    /// [`super::AckRequests`].
    #[inline]
    fn wants_ack(&self, entry: &Entry, after: Seq) -> bool {
        let ends = ends(entry, after);
        if self.ack_requests.is_due(ends) {
            return true;
        }
        let index = self.cursor + usize::from(ends == Ends::Message);
        let reads = self.reads.in_flight() + u8::from(entry.is_answered());
        !self.may_send(index, after, reads)
    }

    /// Returns the packet with sequence number `seq` of a request.
    #[inline]
    fn build(&self, entry: &Entry, seq: Seq) -> Next {
        let mut next = self.build_rc(entry, seq);
        if self.service == Service::Xrc {
            let headers = &mut next.headers;
            headers.bth.opcode = headers.bth.opcode.as_xrc();
            let srqn = entry.request.remote_srqn;
            headers.xrc = Some(XrcEth { srqn });
        }
        next
    }

    /// The same, with the headers of RC.
    #[inline]
    fn build_rc(&self, entry: &Entry, seq: Seq) -> Next {
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
                    headers: PacketHeaders::new(bth, extension),
                    offset: segment.offset,
                    bytes: segment.bytes,
                    numbers: 1,
                }
            }
        }
    }

    /// Returns the request for the rest, from `seq` on, of the part of a READ that contains `seq`.
    fn build_read(&self, entry: &Entry, seq: Seq, remote: RemoteAddress) -> Next {
        let numbers = Reads::part_end(entry, seq).since(seq);
        let offset = seq.since(entry.first) * mtu_bytes(self.mtu);
        let length = (entry.length - offset).min(numbers * mtu_bytes(self.mtu));
        let reth = Reth {
            remote: remote.at(offset),
            length: length as u32,
        };
        Next {
            headers: PacketHeaders::new(
                Bth::new(Opcode::RcReadRequest, self.peer, self.numbering.psn(seq)),
                Extension::Rdma(reth),
            ),
            offset,
            bytes: 0,
            numbers,
        }
    }
}

/// Writes a packet of a request to the beginning of `out`; returns its length. `None` if its memory is not accessible.
#[inline]
fn lay_out(
    entry: &Entry,
    next: &Next,
    memory: &impl Memory,
    out: &mut PacketBuffer,
) -> Option<usize> {
    let (length, place) = next
        .headers
        .lay_out(next.bytes, out)
        .expect("headers fit the opcode, and any packet the buffer");
    let gathered = entry.request.payload.gather(memory, next.offset, place);
    gathered.is_ok().then_some(length)
}

/// Returns which boundary the packet before `after` is: of a part, of a message, or none.
#[inline]
fn ends(entry: &Entry, after: Seq) -> Ends {
    match after == entry.end {
        true => Ends::Message,
        false => Ends::Packet,
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
        headers: PacketHeaders::new(Bth::new(opcode, peer, psn), Extension::Atomic(atomic)),
        offset: 0,
        bytes: 0,
        numbers: 1,
    }
}
