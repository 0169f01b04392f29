//! Sending and receiving over a stream, and the ends of both.

use adverb_abi::{IBV_SEND_INLINE, ibv_sge};
use adverb_verbs::MemoryRegion as _;

use super::super::pieces::Pieces;
use super::super::sizes::{CONTROL, LOW_WATER};
use super::super::wire::{Iomap, Message, TARGETS, Target};
use super::requests::inline_piece;
use super::{Stream, TRANSFER};

impl Stream {
    /// Whether data can be sent.
    pub(in crate::rsocket) fn can_send(&self) -> bool {
        self.writes
            && self.requests > 0
            && self.free >= LOW_WATER
            && self.sent != self.limit
            && self.targets[self.current].length != 0
    }

    /// Whether a message without data can be sent, or need not be.
    pub(in crate::rsocket) fn can_control(&self) -> bool {
        self.controls > 0 || !self.is_connected
    }

    /// Whether all requests to send have ended, or never will.
    pub(in crate::rsocket) fn has_drained(&self) -> bool {
        self.is_broken || self.requests == self.sizes.send_queue && self.controls == CONTROL
    }

    /// Whether there are bytes to read.
    pub(in crate::rsocket) fn has_data(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Sends as much as there is room for.
    pub(in crate::rsocket) fn send(&mut self, from: &mut Pieces<'_>) {
        let mut longest = TRANSFER.0;
        while from.left() > 0 && self.can_send() {
            let target = self.targets[self.current];
            let length = from.left().min(longest).min(target.length as usize);
            let length = length.min(self.free as usize);
            longest = (longest * 2).min(TRANSFER.1);
            self.sent = self.sent.wrapping_add(1);
            let place = &mut self.targets[self.current];
            place.skip(length as u32);
            if place.length == 0 {
                self.current = (self.current + 1) % TARGETS;
            }
            let to = (target.addr, target.key);
            self.post_data(from, length, (to, Some(Message::Data(length as u32))));
        }
    }

    /// Writes to a buffer that the peer has mapped, as much as there is room for; `to` is the place of the first byte, and
    /// its length the room from there.
    pub(in crate::rsocket) fn write_mapped(&mut self, from: &mut Pieces<'_>, to: &mut Target) {
        while from.left() > 0 && to.length > 0 && self.can_send() {
            let length = from.left().min(TRANSFER.1).min(to.length as usize);
            let length = length.min(self.free as usize);
            self.post_data(from, length, ((to.addr, to.key), None));
            to.skip(length as u32);
        }
    }

    /// Posts the next `length` bytes, which there is room for.
    fn post_data(
        &mut self,
        from: &mut Pieces<'_>,
        length: usize,
        (to, message): ((u64, u32), Option<Message>),
    ) {
        self.requests -= 1;
        if length <= self.sizes.inline as usize
            && let Some(bytes) = from.contiguous(length)
        {
            let mut wr = Self::write(0, to, message);
            wr.send_flags = IBV_SEND_INLINE;
            self.post_send(wr, &mut [inline_piece(bytes, length)]);
            from.skip(length);
            return;
        }
        self.free -= length as u32;
        let mut pieces = [ibv_sge::zeroed(); 2];
        let mut count = 0;
        let mut rest = length;
        while rest > 0 {
            let room = (self.sizes.send_buffer - self.send_at) as usize;
            let part = room.min(rest);
            let offset = (self.sizes.recv_buffer + self.send_at) as usize;
            // SAFETY: the part is free in the send buffer, and the program has `part` more bytes.
            unsafe { from.copy_to(self.base().add(offset), part) };
            pieces[count] = ibv_sge {
                addr: self.memory.addr() + offset as u64,
                length: part as u32,
                lkey: self.memory.lkey().0,
            };
            count += 1;
            self.send_at = (self.send_at + part as u32) % self.sizes.send_buffer;
            rest -= part;
        }
        let wr = Self::write(length as u64, to, message);
        self.post_send(wr, &mut pieces[..count]);
    }

    /// Copies bytes that have arrived; returns their number.
    pub(in crate::rsocket) fn receive(&mut self, into: &mut Pieces<'_>) -> usize {
        let before = into.left();
        while into.left() > 0
            && let Some(message) = self.arrived.front().copied()
        {
            let length = into.left().min((message - self.taken) as usize);
            self.copy(into, self.receive_at, length);
            self.receive_at = (self.receive_at + length as u32) % self.sizes.recv_buffer;
            self.unannounced += length as u32;
            self.taken += length as u32;
            if self.taken == message {
                self.arrived.pop_front();
                self.taken = 0;
                self.read = self.read.wrapping_add(1);
            }
            self.give();
        }
        before - into.left()
    }

    /// As [`Stream::receive`], but the bytes can be read again.
    pub(in crate::rsocket) fn peek(&self, into: &mut Pieces<'_>) -> usize {
        let before = into.left();
        let all: u32 = self.arrived.iter().sum();
        let length = ((all - self.taken) as usize).min(before);
        self.copy(into, self.receive_at, length);
        before - into.left()
    }

    /// Copies `length` bytes of the receive buffer from `at`, which may wrap.
    fn copy(&self, into: &mut Pieces<'_>, at: u32, length: usize) {
        let first = length.min((self.sizes.recv_buffer - at) as usize);
        // SAFETY: the bytes are in the receive buffer; the peer does not write them before they are announced.
        unsafe {
            into.copy_from(self.base().add(at as usize), first);
            into.copy_from(self.base(), length - first);
        }
    }

    /// Notifies the peer that this side sends no more data, or neither sends nor receives. The caller has checked that there
    /// is room for the message.
    pub(in crate::rsocket) fn shut_down(&mut self, reads: bool, writes: bool) {
        let has_written = self.writes;
        self.has_shut_down |= writes;
        self.reads &= !reads;
        self.writes &= !writes;
        if !self.is_connected || self.writes {
            return;
        }
        if !self.reads {
            self.send_control(Message::Disconnect, None);
            self.is_connected = false;
        } else if has_written {
            self.send_control(Message::Shutdown, None);
        }
    }

    /// Sends a message that has no effect, to find out whether the peer still exists.
    pub(in crate::rsocket) fn keep_alive(&mut self) {
        if self.is_connected && self.controls > 0 {
            self.send_control(Message::Keepalive, None);
        }
    }

    /// Announces the buffers that were mapped since the last call to the peer, as many as there is room for; returns
    /// whether all were announced.
    pub(in crate::rsocket) fn announce_iomaps(&mut self) -> bool {
        while self.can_send()
            && let Some((index, entry)) = self.iomaps.next_change()
        {
            self.sent = self.sent.wrapping_add(1);
            self.requests -= 1;
            let bytes = entry.to_bytes(self.order);
            // The peer's list of iomap entries follows its list of targets.
            let targets = u64::from(self.peer.targets.length) * Target::SIZE as u64;
            let at = targets + u64::from(index) * Iomap::SIZE as u64;
            let to = (
                self.peer.targets.addr.wrapping_add(at),
                self.peer.targets.key,
            );
            let mut wr = Self::write(0, to, Some(Message::Iomap(index)));
            wr.send_flags = IBV_SEND_INLINE;
            self.post_send(wr, &mut [inline_piece(bytes.as_ptr(), bytes.len())]);
        }
        !self.iomaps.has_changes()
    }
}
