//! Messages in flight between two NICs: requests and their answers.

use adverb_units::Time;
use adverb_verbs::{Gid, Imm, Operation, Psn, Qpn, WcStatus};

use crate::host::memory::Range;
use crate::ids::{Index as _, MachineId, QpRef};
use crate::nic::receive_queue::Received;

/// The kind of a message, and so its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Request,
    Answer(Answer),
    /// A DC initiator asks a target for a context.
    Connect,
    /// The target grants the context.
    Connected,
    /// The initiator no longer needs this context.
    Disconnect(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The request is executed; the answer has its data, if any.
    Ack,
    /// No receive is posted (RNR NAK).
    ReceiverNotReady,
    /// A request before this one is missing (NAK, PSN sequence error).
    OutOfSequence,
    Nak(WcStatus),
}

/// The packets of a message that do not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Index of the first one.
    pub(crate) first: u64,
    /// Number of the message's packets.
    pub(crate) packets: u64,
}

/// Memory from which the data of a message were read, and which has not changed since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lent {
    pub(crate) machine: MachineId,
    pub(crate) range: Range,
}

/// What a message does when it is delivered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delivery {
    /// Where the payload of a WRITE is stored.
    pub(crate) place: Option<Range>,
    /// The receive that completes. It stores the payload unless there is a place.
    pub(crate) receive: Option<Received>,
}

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) from: QpRef,
    pub(crate) to: QpRef,
    /// Number of its WQE.
    pub(crate) seq: u64,
    pub(crate) psn: Psn,
    pub(crate) operation: Operation,
    pub(crate) direction: Direction,
    /// Payload bytes of the request, or of the answer.
    pub(crate) length: u64,
    pub(crate) payload: Vec<u8>,
    /// Where its data are, if not in `payload`.
    pub(crate) lent: Option<Lent>,
    /// Bytes of the data that have arrived before, and are not sent again.
    pub(crate) skip: u64,
    /// Set on the way over a bad path.
    pub(crate) lost: Option<Lost>,
    pub(crate) solicited: bool,
    /// When the last byte of the data reaches the sending NIC.
    pub(crate) gathered: Time,
    /// When the first packet arrives at the destination's port.
    pub(crate) first: Time,
    pub(crate) delivery: Delivery,
    /// Number of the queue pair that sent it, and its Q_Key (UD).
    pub(crate) source: Qpn,
    pub(crate) qkey: u32,
    /// The multicast group that it is sent to.
    pub(crate) group: Option<Gid>,
}

impl Message {
    pub(crate) fn imm(&self) -> Option<Imm> {
        match self.operation {
            Operation::SendWithImm(imm) | Operation::RdmaWriteWithImm(_, imm) => Some(imm),
            _ => None,
        }
    }
}

/// All messages in flight. Slots and buffers of ended messages are reused.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    slots: Vec<Option<Message>>,
    free: Vec<u32>,
    buffers: Vec<Vec<u8>>,
    /// Number of messages that refer to memory, by machine.
    lent: Vec<u32>,
}

impl Messages {
    #[inline]
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn keep(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    #[inline]
    pub(crate) fn put(&mut self, message: Message) -> u32 {
        if let Some(lent) = &message.lent {
            self.count(lent);
        }
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

    #[inline]
    pub(crate) fn end(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let Some(message) = slot {
            let payload = std::mem::take(&mut message.payload);
            if let Some(lent) = message.lent {
                self.lent[lent.machine.place()] -= 1;
            }
            *slot = None;
            self.keep(payload);
            self.free.push(index);
        }
    }

    fn count(&mut self, lent: &Lent) {
        let place = lent.machine.place();
        if place >= self.lent.len() {
            self.lent.resize(place + 1, 0);
        }
        self.lent[place] += 1;
    }

    /// Makes a message refer to its data.
    pub(crate) fn lend(&mut self, index: u32, lent: Lent) {
        self.count(&lent);
        self.get(index).lent = Some(lent);
    }

    /// Removes the data of a message.
    pub(crate) fn clear(&mut self, index: u32) {
        let message = self.get(index);
        message.payload.clear();
        if let Some(lent) = message.lent.take() {
            self.lent[lent.machine.place()] -= 1;
        }
    }

    /// Whether messages refer to memory of a machine.
    #[inline]
    pub(crate) fn refers_to(&self, machine: MachineId) -> bool {
        self.lent.get(machine.place()).is_some_and(|lent| *lent > 0)
    }

    /// Gives copies to the messages for whose data `bytes` returns them.
    pub(crate) fn own<'b>(&mut self, mut bytes: impl FnMut(&Lent) -> Option<&'b [u8]>) {
        for message in self.slots.iter_mut().flatten() {
            if let Some(lent) = &message.lent
                && let Some(bytes) = bytes(lent)
            {
                message.payload.clear();
                message.payload.extend_from_slice(bytes);
                self.lent[lent.machine.place()] -= 1;
                message.lent = None;
            }
        }
    }
}
