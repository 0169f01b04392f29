//! Receives datagrams: when the owner of a UD queue pair (or of a shared receive queue of UD queue pairs)
//! polls, it copies messages from their cells into the memory of receive requests, after the 40 bytes of a
//! global routing header.
//!
//! Sources: IBTA vol. 1, 8.3 (GRH), 9.8.3 (UD), 11.4.2.1 (completion of a UD receive).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use adverb_verbs::{
    AccessFlags, CreateError, Imm, Lkey, Sge, WcFlags, WcOpcode, WcStatus, WorkCompletion,
};

use adverb_wire::{Grh, grh};

use crate::memory::check_local;
use crate::port::Port;
use crate::shm::datagram_ring::{
    Addressee, Cell, DatagramRing, GRH_LEN, GrhSource, Holder, Message,
};
use crate::shm::layout::{ACTIVE_MTU, Fault, FaultKind, Phase};
use crate::shm::regions::RegionTable;
use crate::shm::ring::{Line, Piece, RecvRing};
use crate::shm::sync::lock;

/// Number of lines of a cell. A message is at most one packet.
pub(crate) const CELL_LINES: usize =
    DatagramRing::lines_per_cell(ACTIVE_MTU.bytes().get() as usize);

/// Bytes of a packet in addition to the payload: BTH, DETH and ICRC (IBTA vol. 1, 5.2).
const TRANSPORT_OVERHEAD: u32 = 12 + 8 + 4;
const IMM_LENGTH: u32 = 4;

/// A ring of datagrams in the port file, as its owner sees it.
#[derive(Debug)]
pub(crate) struct Mailbox {
    port: Arc<Port>,
    /// Protection domain of the receives' memory.
    pd: u32,
    pub(crate) ring: DatagramRing<'static>,
    block: Range<u64>,
    pub(crate) slots: usize,
}

impl Mailbox {
    /// Allocates memory for `slots` (a power of two) messages.
    pub(crate) fn new(port: &Arc<Port>, pd: u32, slots: usize) -> Result<Self, CreateError> {
        let lines = DatagramRing::lines(slots, CELL_LINES);
        let block = port.take_datagram_block(slots, (lines * size_of::<Line>()) as u64)?;
        // SAFETY: the block was just allocated in the port's own mapping, which `port` keeps. It was cleared when it was
        // new, and has only been used as such a ring since.
        let ring =
            unsafe { DatagramRing::from_raw(port.address(block.start).cast(), slots, CELL_LINES) };
        Ok(Mailbox {
            port: port.clone(),
            pd,
            ring,
            block,
            slots,
        })
    }

    /// Whether this process inherited it by a fork.
    pub(crate) fn is_inherited(&self) -> bool {
        self.port.is_inherited()
    }

    /// Returns the ring's offset in the port file.
    pub(crate) fn offset(&self) -> u64 {
        self.block.start
    }

    /// Adds a message that arrived over the network, with its global routing header. Returns its position,
    /// which is `from` or later; `None` if there is no room. The caller acts as a sender, while the queue pair
    /// is not reset.
    pub(crate) fn put(
        &self,
        from: u64,
        (message, to): (Message, Addressee),
        (grh, payload): (&[u8; GRH_LEN], &[u8]),
    ) -> Option<u64> {
        let ring = self.ring;
        if payload.len() > ring.room() {
            return None;
        }
        let same_generation = || true;
        let mut position = ring.posted_from(from.max(ring.first()), same_generation)?;
        let cell = ring.claim(position, Holder::new(self.port.slot, self.port.epoch))?;
        ring.describe(cell, message, to);
        // SAFETY: this thread owns the cell from its claim to its publication, and the cell has room for both parts, as
        // checked above.
        unsafe {
            std::ptr::copy_nonoverlapping(grh.as_ptr(), ring.grh(cell), GRH_LEN);
            std::ptr::copy_nonoverlapping(payload.as_ptr(), ring.payload(cell), payload.len());
        }
        while !ring.publish(position, cell) {
            let Some(next) = ring.posted_from(position, same_generation) else {
                ring.free(cell);
                return None;
            };
            position = next;
        }
        Some(position)
    }

    /// Closes the receives at `positions` without completions.
    pub(crate) fn discard(&self, mut positions: Range<u64>) {
        for cell in positions.by_ref().filter_map(|p| self.ring.close(p)) {
            self.ring.free(cell);
        }
    }

    /// Copies the message in `cell` to the receive at `position` of `requests`, and frees the cell. Returns the
    /// completion, without `wr_id` and queue pair.
    pub(crate) fn deliver(
        &self,
        cell: Cell,
        (requests, position): (RecvRing<'_>, u64),
        regions: &RegionTable,
    ) -> WorkCompletion {
        let message = self.ring.message(cell);
        let outcome = self.scatter((cell, message), (requests, position), regions);
        self.ring.free(cell);
        let mut flags = WcFlags::GRH;
        flags.set(WcFlags::WITH_IMM, message.imm.is_some());
        WorkCompletion {
            status: outcome.err().unwrap_or(WcStatus::Success),
            opcode: WcOpcode::Recv,
            byte_len: GRH_LEN as u32 + message.length,
            imm: message.imm.map(Imm),
            invalidated: None,
            src_qp: adverb_verbs::Qpn::new(message.source),
            flags,
            ..WorkCompletion::default()
        }
    }

    /// Copies header and payload into the request's scatter elements. A message that does not fit is a local
    /// length error (IBTA vol. 1, 11.6.2).
    fn scatter(
        &self,
        (cell, message): (Cell, Message),
        (requests, position): (RecvRing<'_>, u64),
        regions: &RegionTable,
    ) -> Result<(), WcStatus> {
        let length = GRH_LEN as u64 + u64::from(message.length);
        if length > requests.capacity(position) {
            return Err(WcStatus::LocLenErr);
        }
        let header = self.grh_of(cell, message);
        let mut parts = [
            (header.as_ptr(), GRH_LEN),
            (
                self.ring.payload(cell).cast_const(),
                message.length as usize,
            ),
        ]
        .into_iter();
        let (mut source, mut left) = parts.next().unwrap_or((header.as_ptr(), 0));
        for piece in requests.pieces(position).filter(|piece| piece.length != 0) {
            if left == 0 {
                break;
            }
            let is_known = regions.at(piece.lkey).is_some();
            let target = self.target(piece).filter(|_| is_known);
            let (mut target, mut room) =
                (target.ok_or(WcStatus::LocProtErr)?, piece.length as usize);
            while room > 0 && left > 0 {
                let count = room.min(left);
                // SAFETY: `source` has `left` bytes, and `target` has `room` bytes in a region that stays mapped while
                // `regions` is locked.
                unsafe {
                    std::ptr::copy_nonoverlapping(source, target, count);
                    (source, target) = (source.add(count), target.add(count));
                }
                (left, room) = (left - count, room - count);
                if left == 0 {
                    (source, left) = parts.next().unwrap_or((source, 0));
                }
            }
        }
        Ok(())
    }

    /// Returns the first byte of a scatter element, if it may be written.
    fn target(&self, piece: Piece) -> Option<*mut u8> {
        // SAFETY: not used inline, so any value is safe: the key is checked.
        let sge = unsafe { Sge::from_raw(piece.addr, piece.length, Lkey(piece.lkey)) };
        check_local(&self.port, self.pd, &sge, AccessFlags::LOCAL_WRITE)
    }

    /// Returns the 40 bytes before a message's payload.
    fn grh_of(&self, cell: Cell, message: Message) -> [u8; GRH_LEN] {
        match message.grh {
            GrhSource::Local => self.routing_header(message),
            // SAFETY: the cell's GRH is within the ring, and the owner of the ring owns the cell until it frees it.
            GrhSource::Received => unsafe { self.ring.grh(cell).cast::<[u8; GRH_LEN]>().read() },
        }
    }

    /// Returns the header that a packet between two ports of this host would have (IBTA vol. 1, 8.3).
    fn routing_header(&self, message: Message) -> [u8; GRH_LEN] {
        let imm = if message.imm.is_some() { IMM_LENGTH } else { 0 };
        let after = TRANSPORT_OVERHEAD + imm + message.length.next_multiple_of(4);
        if let Some(udp) = &self.port.udp {
            return udp.grh_within_host(after as usize);
        }
        let header = Grh {
            traffic_class: 0,
            flow_label: 0,
            payload_length: after as u16,
            next_header: grh::NEXT_HEADER,
            hop_limit: 1,
            sgid: self.port.gid,
            dgid: self.port.gid,
        };
        header.to_bytes()
    }

    /// Reclaims the cells of dead holders. Returns whether messages wait at position `next` or later.
    pub(crate) fn reclaim(&self, next: u64, is_dead: impl Fn(Holder) -> bool) -> bool {
        self.ring.reclaim(next, is_dead);
        self.ring.arrival(next).is_some()
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        if self.port.is_inherited() {
            return;
        }
        self.port
            .give_datagram_block(self.slots, self.block.clone());
    }
}

/// Makes the engine move queue pair `index`, one of whose receives failed, to the error state. The polling
/// thread must not do so, because it holds the completion queue's lock.
#[cold]
pub(crate) fn fail_receiver(port: &Port, index: u32) {
    let entry = port.qp_entry(index);
    let generation = Phase(entry.phase.load(Ordering::Relaxed)).generation();
    let fault = Fault::new(generation, FaultKind::Receive);
    entry.from_peer.fault.store(fault.0, Ordering::Release);
    port.wake.wake();
}

/// The receiving side of a UD queue pair without a shared receive queue.
#[derive(Debug)]
pub(crate) struct Datagrams {
    /// Index of its queue pair in the port's table.
    index: u32,
    pub(crate) mailbox: Mailbox,
    /// A receive failed, and the engine has to move the queue pair to the error state.
    has_failed: AtomicBool,
}

impl Datagrams {
    /// The receiving side of queue pair `index`, with this mailbox.
    pub(crate) fn new(index: u32, mailbox: Mailbox) -> Self {
        Datagrams {
            index,
            mailbox,
            has_failed: AtomicBool::new(false),
        }
    }

    fn ring(&self) -> DatagramRing<'static> {
        self.mailbox.ring
    }

    /// Resets the queue; returns the position of its first receive.
    pub(crate) fn begin_generation(&self) -> u64 {
        self.has_failed.store(false, Ordering::Relaxed);
        self.ring().begin_generation()
    }

    /// Posts a receive.
    #[inline]
    pub(crate) fn post(&self, position: u64) {
        self.ring().post(position);
    }

    /// Copies the message of the receive at `position`, if it has one, to the memory of its request in `requests`.
    #[inline(never)] // keeps the poll of connections small
    pub(crate) fn take(&self, requests: RecvRing<'_>, position: u64) -> Option<WorkCompletion> {
        let cell = self.ring().arrival(position)?;
        if self.has_failed.load(Ordering::Relaxed) {
            return None;
        }
        Some(self.deliver(cell, requests, position))
    }

    /// Flushes the receive at `position`. If it has a message, completes it with the message.
    pub(crate) fn close(&self, requests: RecvRing<'_>, position: u64) -> Option<WorkCompletion> {
        let cell = self.ring().close(position)?;
        if self.has_failed.load(Ordering::Relaxed) {
            self.ring().free(cell);
            return None;
        }
        Some(self.deliver(cell, requests, position))
    }

    fn deliver(&self, cell: Cell, requests: RecvRing<'_>, position: u64) -> WorkCompletion {
        let Mailbox { port, .. } = &self.mailbox;
        // While the table of regions is locked, the memory is not deregistered and unmapped during the copy.
        let regions = lock(&port.regions);
        let completion = self.mailbox.deliver(cell, (requests, position), &regions);
        drop(regions);
        if !completion.status.is_success() {
            self.has_failed.store(true, Ordering::Relaxed);
            fail_receiver(port, self.index);
        }
        completion
    }
}
