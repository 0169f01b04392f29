//! The responder: carries out the peer's requests in order, each once, and responds to them (IBTA vol. 1, 9.7.3 to
//! 9.7.5).

use adverb_verbs::{
    AccessFlags, Operation, PathMtu, Psn, QpAttr, Qpn, RemoteAddress, RnrTimer, Srqn, WcStatus,
};
use adverb_wire::bth::BthFlags;
use adverb_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Credits, Extension, NakCode, Opcode, Packet, PacketHeaders,
    Position, Reth, Service, Syndrome, Verb, XrcEth,
};

use super::replay::{Replay, Replayable, Resource};
use super::responses::{ReadResponse, Response, ResponseKind, Responses, Times};
use super::{RcConfig, opcode_of};
use crate::PacketBuffer;
use crate::drops::DropReason;
use crate::inbound::{Fault, Inbound, Received};
use crate::memory::{Access, AtomicOperation, Memory};
use crate::receive::ReceiveQueue;
use crate::request::ReceiveWork;
use crate::segment::{MAX_MESSAGE, Segment, packets};
use crate::sequence::{Numbering, Seq};
use crate::shared::Shared;

#[derive(Debug)]
pub(super) struct Responder {
    service: Service,
    peer: Qpn,
    mtu: PathMtu,
    numbering: Numbering,
    rnr_timer: RnrTimer,
    expected: Seq,
    /// Number of completed messages.
    msn: u32,
    inbound: Inbound,
    /// XRC: the queue that the current message names.
    srqn: Option<Srqn>,
    gap: Gap,
    replay: Replay,
    responses: Responses,
    pub(super) receives: ReceiveQueue,
}

/// A sequence error NAK has been sent; it is sent once per gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    None,
    Reported,
}

/// The outcome of a request that was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestError {
    /// The packet was dropped; the connection continues.
    Drop(DropReason),
    /// A NAK is sent, and the connection ends.
    Fatal(DropReason),
    /// The same, and a receive completes with the error.
    FatalToReceive(DropReason),
}

impl Responder {
    pub(super) fn new(config: &RcConfig, receives: ReceiveQueue) -> Self {
        let own = &config.responder;
        let numbering = Numbering::new(own.first_psn);
        Responder {
            service: super::service(config.qp_type),
            peer: config.peer,
            mtu: config.path_mtu,
            numbering,
            rnr_timer: own.rnr_timer,
            expected: numbering.first(),
            msn: 0,
            inbound: Inbound::new(own.access, config.path_mtu, config.qpn),
            srqn: None,
            gap: Gap::None,
            replay: Replay::new(own.max_reads),
            // READs and atomics, ACKs between them, and a NAK.
            responses: Responses::new(2 * usize::from(own.max_reads) + 2),
            receives,
        }
    }

    /// Applies the attributes of a Modify QP that concern the responder.
    pub(super) fn modify(&mut self, attr: &QpAttr) {
        self.rnr_timer = attr.min_rnr_timer.unwrap_or(self.rnr_timer);
        self.inbound.access = attr.access.unwrap_or(self.inbound.access);
    }

    /// Abandons a partly received message; returns its receive request.
    pub(super) fn take_started(&mut self) -> Option<ReceiveWork> {
        self.inbound.abandon()
    }

    // --- requests

    /// Handles a request.
    pub(super) fn handle(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
        shared: &mut Shared,
    ) -> Result<(), RequestError> {
        let seq = self.numbering.seq(packet.headers.bth.psn, self.expected);
        if seq < self.expected {
            return self.handle_duplicate(seq, packet, shared);
        }
        if seq > self.expected {
            return Err(self.out_of_sequence());
        }
        if self.gap == Gap::Reported {
            self.gap = Gap::None;
            self.responses.withdraw_sequence_error();
        }
        let opcode = packet.opcode();
        if !self.inbound.is_in_order(opcode) {
            return Err(self.fatal(NakCode::InvalidRequest));
        }
        if let Some(XrcEth { srqn }) = packet.headers.xrc
            && !self.selects(srqn, opcode.position())
        {
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

    /// XRC: selects the queue that a packet names. All packets of a message name the same one.
    #[inline(never)] // keeps the path of RC small
    fn selects(&mut self, srqn: Srqn, position: Position) -> bool {
        if !position.begins() {
            return self.srqn == Some(srqn);
        }
        self.srqn = Some(srqn);
        self.receives.select(srqn)
    }

    /// Handles a request with an unknown opcode or an invalid length. A NAK is sent only if it has the expected PSN (IBTA
    /// vol. 1, 9.7.4.1).
    pub(super) fn handle_invalid(&mut self, psn: Psn, reason: DropReason) -> RequestError {
        let seq = self.numbering.seq(psn, self.expected);
        if seq < self.expected {
            return RequestError::Drop(reason);
        }
        if seq > self.expected {
            return self.out_of_sequence();
        }
        self.push_nak(Syndrome::Nak(NakCode::InvalidRequest));
        RequestError::Fatal(reason)
    }

    /// Handles a packet of a SEND or WRITE.
    fn handle_message(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
        shared: &mut Shared,
    ) -> Result<(), RequestError> {
        match self.inbound.take(packet, &mut self.receives, memory) {
            Ok(Received::Part) => {}
            Ok(Received::Message) => self.msn = self.msn.wrapping_add(1),
            Ok(Received::Completion(completion)) => {
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
                self.fatal(NakCode::InvalidRequest);
                return Err(RequestError::FatalToReceive(DropReason::InvalidRequest));
            }
            Err(Fault::Local(receive)) => {
                shared.fail_receive(&receive, WcStatus::LocProtErr);
                self.fatal(NakCode::RemoteOperationalError);
                return Err(RequestError::FatalToReceive(DropReason::LocalFault));
            }
        }
        let seq = self.expected;
        self.expected += 1;
        if packet.headers.bth.flags.contains(BthFlags::ACK_REQ) {
            self.push(seq, ResponseKind::Ack);
        }
        Ok(())
    }

    fn handle_read(
        &mut self,
        packet: &Packet<'_>,
        memory: &impl Memory,
    ) -> Result<(), RequestError> {
        let Extension::Rdma(reth) = packet.headers.extension else {
            return Err(self.fatal(NakCode::InvalidRequest));
        };
        let length = u64::from(reth.length);
        if !self.supports(AccessFlags::REMOTE_READ) || !self.has_resource() || length > MAX_MESSAGE
        {
            return Err(self.fatal(NakCode::InvalidRequest));
        }
        // An empty READ accesses no memory (IBTA vol. 1, 9.7.4.1.4).
        let reads = |length| memory.check(reth.remote.into(), length, Access::Read);
        if length != 0 && reads(length).is_err() {
            return Err(self.fatal(NakCode::RemoteAccessError));
        }
        let first = self.expected;
        self.expected += packets(length, self.mtu);
        self.msn = self.msn.wrapping_add(1);
        self.keep(Resource::new(first, self.expected, Replayable::Read(reth)));
        let response = read_response(first, &reth, packet.headers.xrc);
        self.push(first, ResponseKind::Read(response));
        Ok(())
    }

    fn handle_atomic(
        &mut self,
        packet: &Packet<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), RequestError> {
        let Extension::Atomic(atomic) = packet.headers.extension else {
            return Err(self.fatal(NakCode::InvalidRequest));
        };
        let is_aligned = atomic.remote.addr.is_multiple_of(Operation::ATOMIC_SIZE);
        if !self.supports(AccessFlags::REMOTE_ATOMIC) || !self.has_resource() || !is_aligned {
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
            Replayable::Atomic(remote, operation, found),
        ));
        self.push(first, ResponseKind::Atomic(found));
        Ok(())
    }

    /// Responds to a request that was carried out before: acknowledges a SEND or WRITE again, reads the data of a READ
    /// again, and repeats the stored result of an atomic operation (IBTA vol. 1, 9.7.5.1).
    fn handle_duplicate(
        &mut self,
        seq: Seq,
        packet: &Packet<'_>,
        shared: &mut Shared,
    ) -> Result<(), RequestError> {
        let stale = RequestError::Drop(DropReason::StaleDuplicate);
        let msn = self.msn;
        match packet.headers.extension {
            Extension::Rdma(reth) if packet.opcode().verb() == Verb::ReadRequest => {
                let resource = self.replay.read(seq, &reth, self.mtu).ok_or(stale)?;
                self.responses.repeat_read(Response {
                    seq,
                    msn,
                    times: Times::Again,
                    kind: ResponseKind::Read(read_response(resource, &reth, packet.headers.xrc)),
                });
            }
            Extension::Atomic(atomic) => {
                let again = operation_of(packet.opcode(), &atomic);
                let found = self.replay.atomic(seq, again).ok_or(stale)?;
                self.responses.repeat_atomic(Response {
                    seq,
                    msn,
                    times: Times::Again,
                    kind: ResponseKind::Atomic(found),
                });
            }
            _ if packet.headers.bth.flags.contains(BthFlags::ACK_REQ) => {
                self.push(self.expected.before(), ResponseKind::Ack);
            }
            _ => {}
        }
        shared.counters.duplicates += 1;
        Ok(())
    }

    /// Whether the queue pair allows such requests. If not, they are invalid, whatever their key (IBTA vol. 1, 9.9.3.1:
    /// unsupported).
    fn supports(&self, access: AccessFlags) -> bool {
        self.inbound.access.contains(access)
    }

    /// Whether there is a resource for another READ or atomic operation. If the response of the one that it would replace
    /// is still to be sent, the peer has more requests in flight than agreed (IBTA vol. 1, 9.7.4).
    fn has_resource(&self) -> bool {
        let next = self.replay.next_replaced();
        self.replay.is_open() && next.is_none_or(|next| !self.responses.owes(next.first))
    }

    fn keep(&mut self, resource: Resource) {
        if let Some(gone) = self.replay.keep(resource) {
            self.responses.forget(gone.first);
        }
    }

    #[inline]
    fn push(&mut self, seq: Seq, kind: ResponseKind) {
        let msn = self.msn;
        self.responses.push(Response {
            seq,
            msn,
            times: Times::Once,
            kind,
        });
    }

    fn push_nak(&mut self, syndrome: Syndrome) {
        self.push(self.expected, ResponseKind::Nak(syndrome));
    }

    /// Handles a request that is ahead of the expected one.
    fn out_of_sequence(&mut self) -> RequestError {
        if self.gap == Gap::None {
            self.gap = Gap::Reported;
            self.push_nak(Syndrome::Nak(NakCode::PsnSequenceError));
        }
        RequestError::Drop(DropReason::OutOfSequence)
    }

    /// Sends an RNR NAK: no receive request is posted. Requests behind this one are dropped silently.
    fn not_ready(&mut self) -> RequestError {
        self.gap = Gap::Reported;
        self.push_nak(Syndrome::RnrNak(self.rnr_timer));
        RequestError::Drop(DropReason::ReceiverNotReady)
    }

    fn fatal(&mut self, code: NakCode) -> RequestError {
        self.push_nak(Syndrome::Nak(code));
        RequestError::Fatal(match code {
            NakCode::RemoteAccessError => DropReason::RemoteAccess,
            NakCode::RemoteOperationalError => DropReason::LocalFault,
            _ => DropReason::InvalidRequest,
        })
    }

    // --- responses

    pub(super) fn has_responses(&self) -> bool {
        !self.responses.is_empty()
    }

    /// XRC: returns the queue that the READ named to which the next response is data.
    pub(super) fn reads_for(&self) -> Option<Srqn> {
        match self.responses.front()?.kind {
            ResponseKind::Read(read) => read.srqn,
            _ => None,
        }
    }

    pub(super) fn only_acknowledges(&self) -> bool {
        self.responses.is_acknowledgement()
    }

    /// Builds the next response.
    ///
    /// # Errors
    /// The memory of a READ is not accessible any more: a NAK is sent, and the connection ends.
    pub(super) fn transmit(
        &mut self,
        memory: &impl Memory,
        out: &mut PacketBuffer,
    ) -> Result<Option<usize>, RequestError> {
        let Some(response) = self.responses.front().copied() else {
            return Ok(None);
        };
        let length = match response.kind {
            ResponseKind::Ack => {
                self.emit(out, Opcode::RcAck, response.seq, Extension::Ack, &response)
            }
            ResponseKind::Nak(syndrome) => {
                let nak = |aeth| Extension::Ack(Aeth { syndrome, ..aeth });
                self.emit(out, Opcode::RcAck, response.seq, nak, &response)
            }
            ResponseKind::Atomic(original) => {
                let result = |aeth| Extension::AtomicAck(aeth, AtomicAckEth { original });
                self.emit(out, Opcode::RcAtomicAck, response.seq, result, &response)
            }
            ResponseKind::Read(read) => match self.emit_read(out, &response, &read, memory) {
                Some(length) => length,
                None => {
                    let seq = response.seq + read.sent;
                    let syndrome = Syndrome::Nak(NakCode::RemoteAccessError);
                    self.responses.replace_by_nak(seq, syndrome);
                    return Err(RequestError::Fatal(DropReason::RemoteAccess));
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
        let opcode = opcode_of(self.service, opcode);
        let bth = Bth::new(opcode, self.peer, self.numbering.psn(seq));
        let extension = extension(aeth(response));
        let headers = PacketHeaders::new(bth, extension);
        let (length, _) = headers.lay_out(0, out).expect("a response fits");
        length
    }

    /// Builds the next packet of a READ response. `None` if its memory is not accessible any more.
    fn emit_read(
        &self,
        out: &mut PacketBuffer,
        response: &Response,
        read: &ReadResponse,
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
        let bth = Bth::new(opcode_of(self.service, opcode), self.peer, psn);
        let headers = PacketHeaders::new(bth, extension);
        let (length, place) = headers.lay_out(segment.bytes, out).expect("a packet fits");
        if segment.bytes != 0 {
            let from = read.remote.at(segment.offset);
            memory.read(from.into(), place).ok()?;
        }
        Some(length)
    }
}

/// Returns the AETH of a positive response.
#[inline]
const fn aeth(response: &Response) -> Aeth {
    Aeth {
        syndrome: Syndrome::Ack(Credits::NONE),
        msn: response.msn & 0xff_ffff,
    }
}

fn read_response(resource: Seq, reth: &Reth, xrc: Option<XrcEth>) -> ReadResponse {
    ReadResponse {
        resource,
        remote: reth.remote,
        length: reth.length.into(),
        sent: 0,
        srqn: xrc.map(|header| header.srqn),
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
