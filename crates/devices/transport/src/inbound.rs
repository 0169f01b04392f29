//! Receives SENDs and WRITEs, for RC and UC: assembles messages from packets that arrive in order. The services differ in
//! how they handle errors.

use adverb_verbs::{AccessFlags, Imm, PathMtu, Qpn, Rkey, WcOpcode};
use adverb_wire::bth::BthFlags;
use adverb_wire::{Extension, Opcode, Packet, Reth, Verb};

use crate::completion::{Completion, Solicited};
use crate::memory::{Access, Memory};
use crate::receive::ReceiveQueue;
use crate::request::ReceiveWork;
use crate::segment::{MAX_MESSAGE, length_fits};

/// The state of receiving messages: one of them may be partly received.
#[derive(Debug)]
pub(crate) struct Inbound {
    message: Message,
    pub(crate) access: AccessFlags,
    mtu: PathMtu,
    qpn: Qpn,
}

#[derive(Debug)]
enum Message {
    None,
    Send { receive: ReceiveWork, done: u64 },
    Write { reth: Reth, done: u64 },
}

/// The effect of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// It is a part of a message, and more parts follow.
    Part,
    /// It ends a message that uses no receive request.
    Message,
    /// It ends a message that completes a receive request.
    Completion(Completion),
}

/// Why a packet is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does not continue the current message.
    Order,
    /// Its length is wrong for its position in the message.
    Length,
    /// No receive request is posted; nothing has changed.
    NotReady,
    /// The queue pair does not allow it.
    Unsupported,
    /// The key, the range or the access is not allowed.
    Access,
    /// The message is longer than the receive request's memory.
    TooLong(ReceiveWork),
    /// The receive request's memory is not accessible, or a key could not be invalidated.
    Local(ReceiveWork),
}

/// The headers of the last packet of a message.
#[derive(Clone, Copy)]
enum Tail {
    None,
    Imm(Imm),
    Invalidate(Rkey),
}

impl Inbound {
    pub(crate) const fn new(access: AccessFlags, mtu: PathMtu, qpn: Qpn) -> Self {
        Inbound {
            message: Message::None,
            access,
            mtu,
            qpn,
        }
    }

    /// Whether a packet continues the current message, or begins one if there is none.
    #[inline]
    pub(crate) fn is_in_order(&self, opcode: Opcode) -> bool {
        let position = opcode.position();
        match (&self.message, opcode.verb()) {
            (Message::None, _) => position.begins(),
            (Message::Send { .. }, Verb::Send) | (Message::Write { .. }, Verb::Write) => {
                !position.begins()
            }
            _ => false,
        }
    }

    /// Abandons the partly received message; returns its receive request.
    pub(crate) fn abandon(&mut self) -> Option<ReceiveWork> {
        match std::mem::replace(&mut self.message, Message::None) {
            Message::Send { receive, .. } => Some(receive),
            Message::None | Message::Write { .. } => None,
        }
    }

    /// Handles a packet of a SEND or WRITE.
    pub(crate) fn take(
        &mut self,
        packet: &Packet<'_>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
    ) -> Result<Received, Fault> {
        if !self.is_in_order(packet.opcode()) {
            return Err(Fault::Order);
        }
        if !length_fits(packet.opcode().position(), packet.payload.len(), self.mtu) {
            return Err(Fault::Length);
        }
        match packet.opcode().verb() {
            Verb::Send => self.take_send(packet, receives, memory),
            Verb::Write => self.take_write(packet, receives, memory),
            _ => Err(Fault::Order),
        }
    }

    fn take_send(
        &mut self,
        packet: &Packet<'_>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
    ) -> Result<Received, Fault> {
        let (receive, done) = match std::mem::replace(&mut self.message, Message::None) {
            Message::Send { receive, done } => (receive, done),
            Message::None | Message::Write { .. } => (receives.take().ok_or(Fault::NotReady)?, 0),
        };
        let after = done + packet.payload.len() as u64;
        if after > receive.pieces.length() {
            return Err(Fault::TooLong(receive));
        }
        if receive
            .pieces
            .scatter(memory, done, packet.payload)
            .is_err()
        {
            return Err(Fault::Local(receive));
        }
        if !packet.opcode().position().ends() {
            let done = after;
            self.message = Message::Send { receive, done };
            return Ok(Received::Part);
        }
        let tail = tail_of(packet);
        if let Tail::Invalidate(rkey) = tail
            && memory.invalidate(rkey).is_err()
        {
            return Err(Fault::Local(receive));
        }
        let ended = Completion::of_receive(self.qpn, receive.wr_id, after as u32);
        Ok(Received::Completion(with_tail(ended, tail, packet)))
    }

    fn take_write(
        &mut self,
        packet: &Packet<'_>,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
    ) -> Result<Received, Fault> {
        let position = packet.opcode().position();
        let (reth, done) = match (&self.message, packet.headers.extension) {
            (Message::Write { reth, done }, _) => (*reth, *done),
            (_, Extension::Rdma(reth) | Extension::RdmaImm(reth, _)) => {
                self.check_write(&reth, memory)?;
                (reth, 0)
            }
            _ => return Err(Fault::Order),
        };
        let after = done + packet.payload.len() as u64;
        let whole = u64::from(reth.length);
        if position.ends() != (after >= whole) || after > whole {
            return Err(Fault::Length);
        }
        let tail = tail_of(packet);
        let receive = match tail {
            Tail::Imm(_) => Some(receives.take().ok_or(Fault::NotReady)?),
            _ => None,
        };
        if !packet.payload.is_empty() {
            let place = reth.remote.at(done).into();
            if memory.write(place, packet.payload).is_err() {
                receive.into_iter().for_each(|r| receives.give_back(r));
                return Err(Fault::Access);
            }
        }
        if !position.ends() {
            let done = after;
            self.message = Message::Write { reth, done };
            return Ok(Received::Part);
        }
        self.message = Message::None;
        let Some(receive) = receive else {
            return Ok(Received::Message);
        };
        let mut ended = Completion::of_receive(self.qpn, receive.wr_id, reth.length);
        ended.work.opcode = WcOpcode::RecvRdmaWithImm;
        Ok(Received::Completion(with_tail(ended, tail, packet)))
    }

    /// Checks a WRITE's access to memory. An empty WRITE accesses none (IBTA vol. 1, 9.7.4.1.4).
    fn check_write(&self, reth: &Reth, memory: &impl Memory) -> Result<(), Fault> {
        let length = u64::from(reth.length);
        if length > MAX_MESSAGE {
            return Err(Fault::Length);
        }
        if !self.access.contains(AccessFlags::REMOTE_WRITE) {
            return Err(Fault::Unsupported);
        }
        if length == 0 {
            return Ok(());
        }
        let checked = memory.check(reth.remote.into(), length, Access::Write);
        checked.map_err(|_| Fault::Access)
    }
}

fn tail_of(packet: &Packet<'_>) -> Tail {
    match packet.headers.extension {
        Extension::Imm(imm) | Extension::RdmaImm(_, imm) => Tail::Imm(imm.imm),
        Extension::Invalidate(ieth) => Tail::Invalidate(ieth.rkey),
        _ => Tail::None,
    }
}

fn with_tail(mut ended: Completion, tail: Tail, packet: &Packet<'_>) -> Completion {
    if packet.headers.bth.flags.contains(BthFlags::SOLICITED) {
        ended.solicited = Solicited::Yes;
    }
    match tail {
        Tail::None => ended,
        Tail::Imm(imm) => ended.with_imm(Some(imm)),
        Tail::Invalidate(rkey) => ended.with_invalidated(rkey),
    }
}
