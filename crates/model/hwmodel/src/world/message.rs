//! Messages in flight between two NICs: requests and their answers.

use adverb_units::Time;
use adverb_verbs::{Imm, Operation, Psn, Qpn, WcStatus};

use crate::host::memory::Range;
use crate::ids::QpRef;
use crate::nic::receive_queue::Received;

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the responder.
    Request,
    /// Back.
    Answer(Answer),
    /// A DC initiator asks a target for a context.
    Connect,
    /// It has got one.
    Connected,
    /// It no longer needs this one.
    Disconnect(u32),
}

/// What the responder says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Done; with data, where there are any.
    Ack,
    /// No receive is posted: come again.
    ReceiverNotReady,
    /// Refused.
    Nak(WcStatus),
}

/// What a message does when it is delivered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delivery {
    /// Payload goes here (WRITE).
    pub(crate) place: Option<Range>,
    /// This receive completes; payload goes to its buffer, unless it has a place.
    pub(crate) receive: Option<Received>,
}

/// A message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) from: QpRef,
    pub(crate) to: QpRef,
    /// Place in the requester's send queue.
    pub(crate) seq: u64,
    pub(crate) psn: Psn,
    pub(crate) operation: Operation,
    pub(crate) direction: Direction,
    /// Payload bytes on the way: of the request, or of the answer.
    pub(crate) length: u64,
    pub(crate) payload: Vec<u8>,
    pub(crate) solicited: bool,
    /// When the last byte of the data comes into the NIC that sends it.
    pub(crate) gathered: Time,
    /// When the first packet is at the port that it goes to.
    pub(crate) first: Time,
    pub(crate) delivery: Delivery,
    /// Number of the queue pair that sent it, and the key it brings (UD).
    pub(crate) source: Qpn,
    pub(crate) qkey: u32,
}

impl Message {
    pub(crate) fn imm(&self) -> Option<Imm> {
        match self.operation {
            Operation::SendWithImm(imm) | Operation::RdmaWriteWithImm(_, imm) => Some(imm),
            _ => None,
        }
    }
}

/// All messages in flight. Slots of delivered messages are reused.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    slots: Vec<Option<Message>>,
    free: Vec<u32>,
    buffers: Vec<Vec<u8>>,
}

/// Buffers longer than this are not kept.
const KEPT: usize = 64 << 10;

impl Messages {
    /// An empty buffer.
    #[inline]
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn keep(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= KEPT && buffer.capacity() > 0 {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    #[inline]
    pub(crate) fn put(&mut self, message: Message) -> u32 {
        if let Some(index) = self.free.pop() {
            self.slots[index as usize] = Some(message);
            return index;
        }
        self.slots.push(Some(message));
        (self.slots.len() - 1) as u32
    }

    #[inline]
    pub(crate) fn get(&mut self, index: u32) -> &mut Message {
        self.slots[index as usize]
            .as_mut()
            .expect("a message in flight has a slot")
    }

    /// Frees the slot of a message.
    #[inline]
    pub(crate) fn end(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let Some(message) = slot {
            let payload = std::mem::take(&mut message.payload);
            *slot = None;
            self.keep(payload);
            self.free.push(index);
        }
    }
}
