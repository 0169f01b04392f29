//! The responder: carries the peer's requests out in order, each once, and answers them (IBTA vol. 1,
//! 9.7.3 to 9.7.5).

use adverb_verbs::{
    AccessFlags, Operation, PathMtu, Psn, QpAttr, Qpn, RemoteAddress, RnrTimer, WcStatus,
};
use adverb_wire::bth::BthFlags;
use adverb_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Credits, Extension, NakCode, Opcode, Packet, PacketHeaders,
    Position, Reth, Syndrome, Verb,
};

use super::RcConfig;
use super::replay::{Kept, Replay, Resource};
use super::responses::{Answer, Asked, ReadAnswer, Response, Responses};
use crate::PacketBuffer;
use crate::drops::DropReason;
use crate::inbound::{Fault, Inbound, Taken};
use crate::memory::{Access, AtomicOperation, Memory};
use crate::receive::ReceiveQueue;
use crate::request::ReceiveWork;
use crate::segment::{MAX_MESSAGE, Segment, packets};
use crate::sequence::{Numbering, Seq};
use crate::shared::Shared;

#[derive(Debug)]
pub(super) struct Responder {
    peer: Qpn,
    mtu: PathMtu,
    numbering: Numbering,
    rnr_timer: RnrTimer,
    expected: Seq,
    /// Messages completed.
    msn: u32,
    inbound: Inbound,
    gap: Gap,
    replay: Replay,
    responses: Responses,
    pub(super) receives: ReceiveQueue,
}

/// A sequence error NAK has been sent; it is sent once per gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    None,
    Told,
}

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The packet was dropped; the connection continues.
    Drop(DropReason),
    /// The peer is told so, and the connection ends.
    Fatal(DropReason),
}

impl Responder {
    pub(super) fn new(config: &RcConfig, receives: ReceiveQueue) -> Self {
        let own = &config.responder;
        let numbering = Numbering::new(own.first_psn);
        Responder {
            peer: config.peer,
            mtu: config.path_mtu,
            numbering,
            rnr_timer: own.rnr_timer,
            expected: numbering.first(),
            msn: 0,
            inbound: Inbound::new(own.access, config.path_mtu, config.qpn),
            gap: Gap::None,
            replay: Replay::new(own.max_reads),
            // READs and atomics, acknowledgements between them, a refusal.
            responses: Responses::new(2 * usize::from(own.max_reads) + 2),
            receives,
        }
    }

    /// Applies what a Modify QP sets of the responder.
    pub(super) fn modify(&mut self, attr: &QpAttr) {
        self.rnr_timer = attr.min_rnr_timer.unwrap_or(self.rnr_timer);
        self.inbound.access = attr.access.unwrap_or(self.inbound.access);
    }

    /// Takes back the receive request of a message that will not be finished.
    pub(super) fn take_started(&mut self) -> Option<ReceiveWork> {
        self.inbound.abandon()
    }

    // --- requests

    /// Takes a request.
    pub(super) fn handle(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
        shared: &mut Shared,
    ) -> Result<(), Refused> {
        let seq = self.numbering.seq(packet.headers.bth.psn, self.expected);
        if seq < self.expected {
            return self.handle_duplicate(seq, packet, shared);
        }
        if seq > self.expected {
            return Err(self.out_of_sequence());
        }
        if self.gap == Gap::Told {
            self.gap = Gap::None;
            self.responses.withdraw_sequence_error();
        }
        let opcode = packet.opcode();
        if !self.inbound.is_in_order(opcode) {
            return Err(self.fatal(NakCode::InvalidRequest));
        }
        match opcode.verb() {
            Verb::Send | Verb::Write => self.handle_message(packet, memory, shared),
            Verb::ReadRequest => self.handle_read(packet, memory),
            Verb::CompareSwap | Verb::FetchAdd => self.handle_atomic(packet, memory),
            Verb::ReadResponse | Verb::Ack | Verb::AtomicAck | Verb::Cnp => {
                unreachable!("responses are the requester's")
            }
        }
    }

    /// Takes a request that is invalid in its turn (IBTA vol. 1, 9.7.4.1), for this reason: its opcode is
    /// unknown, or its length is not that of its opcode.
    pub(super) fn handle_invalid(&mut self, psn: Psn, reason: DropReason) -> Refused {
        let seq = self.numbering.seq(psn, self.expected);
        if seq < self.expected {
            return Refused::Drop(reason);
        }
        if seq > self.expected {
            return self.out_of_sequence();
        }
        self.refuse(Syndrome::Nak(NakCode::InvalidRequest));
        Refused::Fatal(reason)
    }

    /// Takes a packet of a SEND or WRITE.
    fn handle_message(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
        shared: &mut Shared,
    ) -> Result<(), Refused> {
        match self.inbound.take(packet, &mut self.receives, memory) {
            Ok(Taken::Part) => {}
            Ok(Taken::Message) => self.msn = self.msn.wrapping_add(1),
            Ok(Taken::Received(completion)) => {
                shared.complete(completion);
                self.msn = self.msn.wrapping_add(1);
            }
            Err(Fault::NotReady) => return Err(self.not_ready()),
            Err(Fault::Order | Fault::Length | Fault::Unsupported) => {
                return Err(self.fatal(NakCode::InvalidRequest));
            }
            Err(Fault::Access) => return Err(self.fatal(NakCode::RemoteAccessError)),
            Err(Fault::TooLong(receive)) => {
                shared.fail_receive(&receive, WcStatus::LocLenErr);
                return Err(self.fatal(NakCode::InvalidRequest));
            }
            Err(Fault::Local(receive)) => {
                shared.fail_receive(&receive, WcStatus::LocProtErr);
                return Err(self.fatal(NakCode::RemoteOperationalError));
            }
        }
        let seq = self.expected;
        self.expected += 1;
        if packet.headers.bth.flags.contains(BthFlags::ACK_REQ) {
            self.push(seq, Answer::Ack);
        }
        Ok(())
    }

    fn handle_read(&mut self, packet: &Packet<'_>, memory: &impl Memory) -> Result<(), Refused> {
        let Extension::Rdma(reth) = packet.headers.extension else {
            return Err(self.fatal(NakCode::InvalidRequest));
        };
        let length = u64::from(reth.length);
        if !self.supports(AccessFlags::REMOTE_READ) || !self.may_keep() || length > MAX_MESSAGE {
            return Err(self.fatal(NakCode::InvalidRequest));
        }
        // An empty one needs no memory (IBTA vol. 1, 9.7.4.1.4).
        let reads = |length| memory.check(reth.remote.into(), length, Access::Read);
        if length != 0 && reads(length).is_err() {
            return Err(self.fatal(NakCode::RemoteAccessError));
        }
        let first = self.expected;
        self.expected += packets(length, self.mtu);
        self.msn = self.msn.wrapping_add(1);
        self.keep(Resource::new(first, self.expected, Kept::Read(reth)));
        self.push(first, Answer::Read(answer(first, &reth)));
        Ok(())
    }

    fn handle_atomic(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Refused> {
        let Extension::Atomic(atomic) = packet.headers.extension else {
            return Err(self.fatal(NakCode::InvalidRequest));
        };
        let is_aligned = atomic.remote.addr.is_multiple_of(Operation::ATOMIC_SIZE);
        if !self.supports(AccessFlags::REMOTE_ATOMIC) || !self.may_keep() || !is_aligned {
            return Err(self.fatal(NakCode::InvalidRequest));
        }
        let (remote, operation) = operation_of(packet.opcode(), &atomic);
        let Ok(found) = memory.atomic(remote, operation) else {
            return Err(self.fatal(NakCode::RemoteAccessError));
        };
        let first = self.expected;
        self.expected += 1;
        self.msn = self.msn.wrapping_add(1);
        self.keep(Resource::new(
            first,
            self.expected,
            Kept::Atomic(remote, operation, found),
        ));
        self.push(first, Answer::Atomic(found));
        Ok(())
    }

    /// Answers a request that was carried out before. SENDs and WRITEs are acknowledged again, READs
    /// read again, atomics answered from memory of the first time (IBTA vol. 1, 9.7.5.1).
    fn handle_duplicate(
        &mut self,
        seq: Seq,
        packet: &Packet<'_>,
        shared: &mut Shared,
    ) -> Result<(), Refused> {
        let stale = Refused::Drop(DropReason::StaleDuplicate);
        let (msn, asked) = (self.msn, Asked::Again);
        match packet.headers.extension {
            Extension::Rdma(reth) if packet.opcode() == Opcode::RcReadRequest => {
                let resource = self.replay.read(seq, &reth, self.mtu).ok_or(stale)?;
                let answer = Answer::Read(answer(resource, &reth));
                let response = Response {
                    seq,
                    msn,
                    asked,
                    answer,
                };
                self.responses.repeat_read(response, resource);
            }
            Extension::Atomic(atomic) => {
                let again = operation_of(packet.opcode(), &atomic);
                let found = self.replay.atomic(seq, again).ok_or(stale)?;
                let answer = Answer::Atomic(found);
                let response = Response {
                    seq,
                    msn,
                    asked,
                    answer,
                };
                self.responses.repeat_atomic(response);
            }
            _ if packet.headers.bth.flags.contains(BthFlags::ACK_REQ) => {
                self.push(self.expected.before(), Answer::Ack);
            }
            _ => {}
        }
        shared.counters.duplicates += 1;
        Ok(())
    }

    /// Whether the queue pair is set up for such requests. One that it is not set up for is an invalid
    /// request, whatever its key (IBTA vol. 1, 9.9.3.1: unsupported).
    fn supports(&self, access: AccessFlags) -> bool {
        self.inbound.access.contains(access)
    }

    /// Whether one more READ or atomic operation may come: not while the answer to the one that it
    /// displaces is still to be sent, because then the peer has more in flight than was agreed (IBTA
    /// vol. 1, 9.7.4).
    fn may_keep(&self) -> bool {
        let next = self.replay.next_to_go();
        self.replay.is_open() && next.is_none_or(|next| !self.responses.owes(next.first))
    }

    fn keep(&mut self, resource: Resource) {
        if let Some(gone) = self.replay.keep(resource) {
            self.responses.forget(gone.first);
        }
    }

    #[inline]
    fn push(&mut self, seq: Seq, answer: Answer) {
        let msn = self.msn;
        self.responses.push(Response {
            seq,
            msn,
            asked: Asked::Once,
            answer,
        });
    }

    fn refuse(&mut self, syndrome: Syndrome) {
        self.push(self.expected, Answer::Refuse(syndrome));
    }

    /// A request before this one is missing.
    fn out_of_sequence(&mut self) -> Refused {
        if self.gap == Gap::None {
            self.gap = Gap::Told;
            self.refuse(Syndrome::Nak(NakCode::PsnSequenceError));
        }
        Refused::Drop(DropReason::OutOfSequence)
    }

    /// No receive request is posted: the peer shall wait. What follows is dropped in silence.
    fn not_ready(&mut self) -> Refused {
        self.gap = Gap::Told;
        self.refuse(Syndrome::RnrNak(self.rnr_timer));
        Refused::Drop(DropReason::ReceiverNotReady)
    }

    fn fatal(&mut self, code: NakCode) -> Refused {
        self.refuse(Syndrome::Nak(code));
        Refused::Fatal(match code {
            NakCode::RemoteAccessError => DropReason::RemoteAccess,
            NakCode::RemoteOperationalError => DropReason::LocalFault,
            _ => DropReason::InvalidRequest,
        })
    }

    // --- responses

    pub(super) fn has_responses(&self) -> bool {
        !self.responses.is_empty()
    }

    pub(super) fn only_acknowledges(&self) -> bool {
        self.responses.is_acknowledgement()
    }

    /// Builds the next response.
    ///
    /// # Errors
    /// A READ's memory is gone: the peer is told so, and the connection ends.
    pub(super) fn transmit(
        &mut self,
        memory: &impl Memory,
        out: &mut PacketBuffer,
    ) -> Result<Option<usize>, Refused> {
        let Some(response) = self.responses.front().copied() else {
            return Ok(None);
        };
        let length = match response.answer {
            Answer::Ack => self.emit(out, Opcode::RcAck, response.seq, Extension::Ack, &response),
            Answer::Refuse(syndrome) => {
                let refusal = |aeth| Extension::Ack(Aeth { syndrome, ..aeth });
                self.emit(out, Opcode::RcAck, response.seq, refusal, &response)
            }
            Answer::Atomic(original) => {
                let found = |aeth| Extension::AtomicAck(aeth, AtomicAckEth { original });
                self.emit(out, Opcode::RcAtomicAck, response.seq, found, &response)
            }
            Answer::Read(read) => match self.emit_read(out, &response, &read, memory) {
                Some(length) => length,
                None => {
                    let seq = response.seq + read.sent;
                    let syndrome = Syndrome::Nak(NakCode::RemoteAccessError);
                    self.responses.refuse_front(seq, syndrome);
                    return Err(Refused::Fatal(DropReason::RemoteAccess));
                }
            },
        };
        self.responses.advance(self.mtu);
        Ok(Some(length))
    }

    /// Builds a response without payload.
    #[inline]
    fn emit(
        &self,
        out: &mut PacketBuffer,
        opcode: Opcode,
        seq: Seq,
        extension: impl FnOnce(Aeth) -> Extension,
        response: &Response,
    ) -> usize {
        let bth = Bth::new(opcode, self.peer, self.numbering.psn(seq));
        let extension = extension(aeth(response));
        let headers = PacketHeaders { bth, extension };
        let (length, _) = headers.lay_out(0, out).expect("a response fits");
        length
    }

    /// Builds the next packet of a READ's answer; none if its memory is gone.
    fn emit_read(
        &self,
        out: &mut PacketBuffer,
        response: &Response,
        read: &ReadAnswer,
        memory: &impl Memory,
    ) -> Option<usize> {
        let segment = Segment::of(read.length, read.sent, self.mtu);
        let (opcode, extension) = match segment.position {
            Position::First => (Opcode::RcReadResponseFirst, Extension::Ack(aeth(response))),
            Position::Middle => (Opcode::RcReadResponseMiddle, Extension::None),
            Position::Last => (Opcode::RcReadResponseLast, Extension::Ack(aeth(response))),
            Position::Only => (Opcode::RcReadResponseOnly, Extension::Ack(aeth(response))),
        };
        let psn = self.numbering.psn(response.seq + read.sent);
        let bth = Bth::new(opcode, self.peer, psn);
        let headers = PacketHeaders { bth, extension };
        let (length, place) = headers.lay_out(segment.bytes, out).expect("a packet fits");
        if segment.bytes != 0 {
            let from = read.remote.at(segment.offset);
            memory.read(from.into(), place).ok()?;
        }
        Some(length)
    }
}

/// The AETH of a positive response.
#[inline]
const fn aeth(response: &Response) -> Aeth {
    Aeth {
        syndrome: Syndrome::Ack(Credits::NONE),
        msn: response.msn & 0xff_ffff,
    }
}

const fn answer(resource: Seq, reth: &Reth) -> ReadAnswer {
    ReadAnswer {
        resource,
        remote: reth.remote,
        length: reth.length as u64,
        sent: 0,
    }
}

const fn operation_of(opcode: Opcode, atomic: &AtomicEth) -> (RemoteAddress, AtomicOperation) {
    let operation = match opcode.verb() {
        Verb::CompareSwap => AtomicOperation::CompareSwap(adverb_verbs::Comparison {
            expected: atomic.compare,
            new: atomic.swap_or_add,
        }),
        _ => AtomicOperation::FetchAdd(atomic.swap_or_add),
    };
    (atomic.remote, operation)
}
