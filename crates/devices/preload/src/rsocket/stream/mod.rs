//! The data path of a connected rsocket: credits, buffers, and the queue pair that moves the bytes.
//!
//! ```text
//!   send ──► send buffer ── RDMA WRITE with immediate data ──► peer's receive buffer ──► receive
//!                                                                                           │
//!   targets ◄── RDMA WRITE with immediate data: a half that is free again, and credits ◄────┘
//! ```
//! Each side writes to the other's receive buffer. The buffer has two halves; the sender may write to the halves that the
//! receiver has announced, its *targets*, and fills one before it begins the next. When a half is free again, the receiver
//! announces it by writing an entry to the list of targets in the sender's memory. A data message also consumes a receive
//! request of the peer, for which the sender needs a credit. Messages without data need no credit: the receive queue has
//! additional room for them.
//!
//! All memory of a connection is one region: receive buffer, send buffer, list of targets, list of iomap entries.
//!
//! `create` makes it, `data` sends and receives, `requests` posts; this file has the state, and takes completions.

mod create;
mod data;
mod requests;

use std::collections::VecDeque;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_abi::{
    IBV_WC_RETRY_EXC_ERR, IBV_WC_SUCCESS, IBV_WC_WITH_IMM, ibv_comp_channel, ibv_cq, ibv_wc,
    rdma_cm_id,
};
use adverb_softnic::SoftMr;
use adverb_verbs::MemoryRegion as _;

use super::mapping::Iomaps;
use super::sizes::{CONTROL, Sizes};
use super::wire::{ByteOrder, ConnData, Iomap, Message, TARGETS, Target};
use crate::channel::Channel;
use crate::cq::{self, Cq};

/// Lengths in bytes of the first data message of a call and of the longest. Messages grow, so that the receiver begins to
/// copy early (`RS_OLAP_START_SIZE`, `RS_MAX_TRANSFER`).
const TRANSFER: (usize, usize) = (2048, 65536);
/// Number of completions that are taken, and of receives that are posted, at a time.
const BATCH: usize = 16;
/// Receive requests for messages that need no credit: the maximum that the peer may have sent since this side polled.
const SPARE_RECEIVES: u32 = 2 * CONTROL;

/// `wr_id` of receives, and of requests for messages without data. Requests with data have its length in the send buffer.
const RECEIVE: u64 = u64::MAX;
const CONTROL_MESSAGE: u64 = u64::MAX - 1;

/// The peer's lists.
#[derive(Clone, Copy, Debug, Default)]
struct PeerLists {
    /// Its list of targets, and the entry that is written next.
    targets: Target,
    next: u32,
    /// Number of entries of its list of iomap entries, which follows.
    iomaps: u32,
}

/// A connected rsocket's data path.
pub(super) struct Stream {
    id: *mut rdma_cm_id,
    channel: *mut ibv_comp_channel,
    cq: *mut ibv_cq,
    memory: SoftMr,
    sizes: Sizes,
    order: ByteOrder,
    peer: PeerLists,
    pub(super) iomaps: Iomaps,

    /// Number of data messages sent, and the number up to which the peer lets this side send (both modulo 2^16).
    sent: u16,
    limit: u16,
    targets: [Target; TARGETS],
    current: usize,
    /// Free requests of the send queue, for data and for messages without.
    requests: u32,
    controls: u32,
    /// Free bytes of the send buffer, and where the next message begins in it.
    free: u32,
    send_at: u32,

    /// Lengths of the data messages that were received and not read completely; of the first, `taken` bytes were.
    arrived: VecDeque<u32>,
    taken: u32,
    receive_at: u32,
    /// Number of data messages read, and the number at which credits are given next (both modulo 2^16).
    read: u16,
    give_at: u16,
    /// Bytes of the receive buffer that the peer may still write: they were announced, and not reported as written.
    room: u32,
    /// Bytes of the receive buffer that were read and not announced, and where the next half to announce begins.
    unannounced: u32,
    announce_at: u32,

    /// More data may arrive.
    pub(super) reads: bool,
    /// Data may be sent.
    pub(super) writes: bool,
    /// This side has ended sending.
    pub(super) has_shut_down: bool,
    /// Messages may be exchanged.
    pub(super) is_connected: bool,
    /// The errno by which the connection was lost, until a call has reported it.
    pub(super) lost: Option<c_int>,
    /// The queue pair has failed.
    is_broken: bool,
}

// SAFETY: the objects behind the pointers belong to the stream, and may be used by any thread.
unsafe impl Send for Stream {}

impl Stream {
    /// Returns what the peer needs to know.
    pub(super) fn conn_data(&self) -> ConnData {
        let key = self.memory.rkey().0;
        ConnData {
            order: ByteOrder::Native,
            credits: self.sizes.recv_queue as u16,
            targets: Target {
                addr: self.lists_at(),
                key,
                length: TARGETS as u32,
            },
            iomaps: self.sizes.iomaps,
            buffer: Target {
                addr: self.memory.addr(),
                key,
                length: self.sizes.recv_buffer / 2,
            },
        }
    }

    /// Takes over the peer's private data, which have its lists and the first half of its receive buffer. That half is the
    /// first target, so this side begins to write the peer's list at its second entry.
    pub(super) fn set_peer(&mut self, data: &ConnData) {
        self.order = data.order;
        self.peer = PeerLists {
            targets: data.targets,
            next: 1 % data.targets.length,
            iomaps: data.iomaps,
        };
        self.targets[0] = data.buffer;
        self.limit = data.credits;
    }

    /// The queue pair is connected, and the peer's, too: announces the second half of the receive buffer.
    pub(super) fn connected(&mut self) {
        self.is_connected = !self.is_broken;
        self.give();
    }

    /// The descriptor of the completion channel.
    pub(super) fn fd(&self) -> c_int {
        // SAFETY: the channel is the stream's.
        unsafe { (*self.channel).fd }
    }

    /// Takes the events of the completion channel; returns whether there were any.
    pub(super) fn take_events(&self) -> bool {
        // SAFETY: the channel is the stream's, and its descriptor is open.
        let (channel, fd) =
            unsafe { (Channel::of(self.channel), BorrowedFd::borrow_raw(self.fd())) };
        let mut any = false;
        while channel.soft.read_event(fd).is_ok() {
            any = true;
        }
        any
    }

    /// Makes the next completion raise an event.
    pub(super) fn arm(&self) {
        // SAFETY: the completion queue is the stream's.
        unsafe { cq::req_notify_cq(self.cq, 0) };
    }

    fn base(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.memory.addr() as usize)
    }

    fn lists_at(&self) -> u64 {
        let buffers = u64::from(self.sizes.recv_buffer) + u64::from(self.sizes.send_buffer);
        self.memory.addr() + buffers
    }

    /// Offset of an iomap entry in the lists.
    fn iomap_at(index: u32) -> u64 {
        (TARGETS * Target::SIZE + index as usize * Iomap::SIZE) as u64
    }

    /// Returns bytes of the lists, which the peer may write at any time.
    fn listed<const N: usize>(&self, offset: u64) -> [u8; N] {
        let at: *const u8 = std::ptr::with_exposed_provenance((self.lists_at() + offset) as usize);
        // SAFETY: the callers read entries of the lists.
        unsafe { at.cast::<[u8; N]>().read_volatile() }
    }

    /// Returns the buffers that the peer has mapped.
    pub(super) fn mapped(&self) -> impl Iterator<Item = Iomap> {
        let indices = 0..self.sizes.iomaps;
        indices.map(|index| Iomap::from_bytes(self.listed(Self::iomap_at(index))))
    }

    /// Number of buffers that this side may map for the peer.
    pub(super) fn max_iomaps(&self) -> u32 {
        self.peer.iomaps
    }

    /// Takes completions; returns whether there were any.
    pub(super) fn progress(&mut self) -> bool {
        let mut any = false;
        loop {
            let mut found = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
            // SAFETY: the queue is the stream's, and there is room for the completions.
            let taken = unsafe { Cq::of(self.cq).poll(BATCH, found.as_mut_ptr().cast()) };
            let Ok(taken) = taken else {
                self.lose(libc::EIO);
                return true;
            };
            let mut receives = 0;
            for wc in &found[..taken] {
                // SAFETY: the first `taken` ones were written.
                let wc = unsafe { wc.assume_init_ref() };
                match wc.wr_id {
                    RECEIVE => receives += u32::from(self.received(wc)),
                    _ => self.ended(wc),
                }
            }
            any |= taken > 0;
            self.post_receives(receives);
            if taken < BATCH {
                break;
            }
        }
        if any {
            self.give();
        }
        any
    }

    /// A request to send has ended.
    fn ended(&mut self, wc: &ibv_wc) {
        if wc.wr_id == CONTROL_MESSAGE {
            self.controls += 1;
        } else {
            self.requests += 1;
            self.free += wc.wr_id as u32;
        }
        match wc.status {
            IBV_WC_SUCCESS => {}
            IBV_WC_RETRY_EXC_ERR => self.lose(libc::ETIMEDOUT),
            _ => self.lose(libc::ECONNRESET),
        }
    }

    /// A message has arrived; returns whether it did.
    fn received(&mut self, wc: &ibv_wc) -> bool {
        if wc.status != IBV_WC_SUCCESS {
            return false;
        }
        let message = match wc.wc_flags & IBV_WC_WITH_IMM {
            0 => None,
            _ => Message::from_imm(u32::from_be(wc.imm_data)),
        };
        match message {
            Some(Message::Data(length)) if length > 0 => self.data_arrived(length),
            Some(Message::Credits(limit)) => {
                self.limit = limit;
                self.look_at_targets();
            }
            Some(Message::Disconnect) => self.disconnected(),
            Some(Message::Shutdown) if self.writes => self.reads = false,
            Some(Message::Shutdown) => self.disconnected(),
            // It has taken a credit, as data does.
            Some(Message::Iomap(_)) => self.read = self.read.wrapping_add(1),
            Some(Message::Data(_) | Message::Keepalive) | None => {}
        }
        true
    }

    /// The peer reports that it has written to the receive buffer. It breaks the protocol if it has written
    /// more bytes than were announced to it, or sent more messages than it has credits for: then the connection is lost. Later
    /// data, which would follow a gap, are refused, too.
    fn data_arrived(&mut self, length: u32) {
        if length > self.room || self.arrived.len() == self.sizes.recv_queue as usize {
            self.room = 0;
            self.lose(libc::EPROTO);
            return;
        }
        self.room -= length;
        self.arrived.push_back(length);
    }

    /// Takes over targets that the peer has written. The peer writes an entry only after the previous target in this place
    /// was used up, and sends a message after writing, so no entry is overlooked. An entry that is not completely written
    /// has no key and no length.
    fn look_at_targets(&mut self) {
        for index in 0..TARGETS {
            if self.targets[index].length != 0 {
                continue;
            }
            let offset = (index * Target::SIZE) as u64;
            // The peer writes the second word last, so it is read first: if it has arrived, the first has, too.
            let word = |n: u64| {
                let at = (self.lists_at() + offset + 8 * n) as usize;
                // SAFETY: the word is in the stream's memory, which is aligned to pages as the buffers are.
                unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)) }
                    .load(Ordering::Acquire)
                    .to_ne_bytes()
            };
            let (rest, addr) = (word(1), word(0));
            let mut bytes = [0; Target::SIZE];
            bytes[..8].copy_from_slice(&addr);
            bytes[8..].copy_from_slice(&rest);
            let target = Target::from_bytes(bytes);
            if target.length != 0 && target.key != 0 {
                self.targets[index] = target;
                let at = (self.lists_at() + offset) as usize;
                let at = std::ptr::with_exposed_provenance_mut::<[u8; Target::SIZE]>(at);
                // SAFETY: the entry is in the stream's memory, and the peer does not write it until it is used up.
                unsafe { at.write_volatile([0; Target::SIZE]) };
            }
        }
    }

    /// The peer neither sends nor receives any more. What has arrived can still be read.
    pub(super) fn disconnected(&mut self) {
        self.reads = false;
        self.writes = false;
        self.is_connected = false;
    }

    /// The queue pair has failed. After the end of the connection this changes nothing.
    fn lose(&mut self, errno: c_int) {
        if self.is_connected || !self.has_peer() {
            self.lost = Some(errno);
        }
        self.is_broken = true;
        self.disconnected();
    }

    /// Whether it has the peer's private data.
    pub(super) fn has_peer(&self) -> bool {
        self.peer.targets.length != 0
    }

    /// Gives credits and announces a free half of the receive buffer, if it is time to.
    fn give(&mut self) {
        let half = self.sizes.recv_buffer / 2;
        while self.is_connected && self.controls > 0 {
            let is_free = self.unannounced >= half;
            let is_due = self.read.wrapping_sub(self.give_at) as i16 >= 0;
            if !is_free && !is_due {
                return;
            }
            self.give_at = self.read.wrapping_add((self.sizes.recv_queue / 2) as u16);
            let message = Message::Credits(self.read.wrapping_add(self.sizes.recv_queue as u16));
            if !is_free {
                self.send_control(message, None);
                return;
            }
            let target = Target {
                addr: self.memory.addr() + u64::from(self.announce_at),
                key: self.memory.rkey().0,
                length: half,
            };
            let at = u64::from(self.peer.next) * Target::SIZE as u64;
            self.send_control(message, Some((&target.to_bytes(self.order), at)));
            self.room += half;
            self.unannounced -= half;
            self.announce_at = (self.announce_at + half) % self.sizes.recv_buffer;
            self.peer.next = (self.peer.next + 1) % self.peer.targets.length;
        }
    }
}
