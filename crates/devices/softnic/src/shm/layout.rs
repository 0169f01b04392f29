//! The layout of a port file.
//!
//! ```text
//! 0         Header
//! SENDERS   SenderEntry × MAX_SLOTS   ports that have sent datagrams to this one
//! OWNER_REQUESTS   OwnerRequestEntry × MAX_SLOTS   what peers ask the owner to do with its program's memory
//! QP_TABLE  QpEntry × MAX_QP      queue pairs, as requesters need them
//! CQ_TABLE  CqEntry × MAX_CQ      completion queues: how receive completions raise events
//! MR_TABLE  MrEntry × MAX_MR      keys
//! SRQ_TABLE SrqEntry × MAX_SRQ    shared receive queues, as requesters need them
//! ARENA     receive rings of connections, of UD queue pairs and of shared receive queues
//! ```
//! The file is sparse: storage is allocated when entries and rings are first used. Words with different writers (the
//! owner, the owner as requester, the connected peer) are on different cache lines.

use adverb_verbs::{AsyncEvent, PathMtu, QpState, QpType, Qpn, Srqn};

use crate::shm::notify::Armed;
use crate::shm::quiesce::Busy;
use crate::shm::ready::Ready;
use crate::shm::sync::{AtomicU32, AtomicU64, Ordering, compiler_fence};

/// First word of a port file: "adverb" and a layout version.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"adverb\x00\x0e");

/// Bits of a queue pair number that index the owner's table; those above are the port's slot.
pub(crate) const QP_INDEX_BITS: u32 = 14;
/// Set in the queue pair numbers of all slots except 0. Other NICs count their numbers up from the lowest. So a
/// number without this bit belongs to them or to slot 0, which all have the UDP port of the standard.
const SLOT_MARK: u32 = 1 << 23;
/// Maximum number of ports on a host.
pub(crate) const MAX_SLOTS: u32 = SLOT_MARK >> QP_INDEX_BITS;

/// Returns the index of a queue pair in its owner's table.
pub(crate) fn qp_index(qpn: Qpn) -> u32 {
    qpn.get() & ((1 << QP_INDEX_BITS) - 1)
}

/// Returns the slot of a queue pair's owner.
pub(crate) fn slot_of(qpn: Qpn) -> u32 {
    match qpn.get() & SLOT_MARK {
        0 => 0,
        _ => (qpn.get() ^ SLOT_MARK) >> QP_INDEX_BITS,
    }
}

/// Returns the number of the queue pair at `index` of a slot's table.
pub(crate) fn qpn_of(slot: u32, index: u32) -> Qpn {
    let mark = if slot == 0 { 0 } else { SLOT_MARK };
    Qpn::new(mark | slot << QP_INDEX_BITS | index).expect("slot and index have 23 bits")
}

/// Returns the number of the XRC shared receive queue at `index` of a slot's table. It is not 0.
pub(crate) fn srqn_of(slot: u32, index: u32) -> Srqn {
    Srqn(qpn_of(slot, index + 1).get())
}

/// Returns the index of an XRC shared receive queue in the table of `slot`; `None` if it belongs to another slot.
pub(crate) fn srq_index(slot: u32, srqn: Srqn) -> Option<u32> {
    let number = Qpn::new(srqn.0).filter(|number| slot_of(*number) == slot)?;
    qp_index(number).checked_sub(1)
}

/// Largest packet. A datagram's message is at most one packet.
pub(crate) const ACTIVE_MTU: PathMtu = PathMtu::B4096;
/// Maximum number of queue pairs of a port. Indices 0 and 1 are not used: the specification reserves QPN 0 and 1.
pub(crate) const MAX_QP: u32 = 1 << 12;
/// Lowest queue pair index.
pub(crate) const FIRST_QP: u32 = 2;
/// Maximum number of completion queues of a port.
pub(crate) const MAX_CQ: u32 = 1 << 12;
/// Maximum number of shared receive queues of a port.
pub(crate) const MAX_SRQ: u32 = 1 << 10;
/// Bits of a key that index the table of regions and windows. They are above the [`KEY_BYTE`].
const MR_INDEX_BITS: u32 = 14;
/// Maximum number of memory regions and windows of a port.
pub(crate) const MAX_MR: u32 = 1 << MR_INDEX_BITS;
/// Bits of a window's key that the program chooses. In a region's key they are random.
pub(crate) const KEY_BYTE: u32 = 0xff;

/// Bits of a key above the [`KEY_BYTE`] that are the index.
pub(crate) const KEY_INDEX: u32 = (MAX_MR - 1) << KEY_BYTE.count_ones();

/// Returns the index of a key in the table of regions and windows.
#[inline]
pub(crate) const fn mr_index(key: u32) -> u32 {
    key >> KEY_BYTE.count_ones() & (MAX_MR - 1)
}

pub(crate) const SENDERS: usize = 4096;
pub(crate) const OWNER_REQUESTS: usize = SENDERS + MAX_SLOTS as usize * size_of::<SenderEntry>();
pub(crate) const QP_TABLE: usize =
    OWNER_REQUESTS + MAX_SLOTS as usize * size_of::<OwnerRequestEntry>();
pub(crate) const CQ_TABLE: usize = QP_TABLE + MAX_QP as usize * size_of::<QpEntry>();
pub(crate) const MR_TABLE: usize = CQ_TABLE + MAX_CQ as usize * size_of::<CqEntry>();
pub(crate) const SRQ_TABLE: usize = MR_TABLE + MAX_MR as usize * size_of::<MrEntry>();
pub(crate) const ARENA: usize = SRQ_TABLE + MAX_SRQ as usize * size_of::<SrqEntry>();
/// Length of a port file. Most of the file is a hole.
pub(crate) const LENGTH: usize = 1 << 30;

const _: () = assert!(ARENA.is_multiple_of(4096) && ARENA < LENGTH);
const _: () = assert!(QP_TABLE.is_multiple_of(4096));

/// The process that owns the port.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Header {
    /// [`MAGIC`], stored last: the header is complete.
    pub(crate) magic: AtomicU64,
    /// Random: distinguishes this owner of the slot from earlier owners.
    pub(crate) epoch: AtomicU64,
    /// The owner's PID namespace (inode), in which `pid` is valid.
    pub(crate) pid_namespace: AtomicU64,
    /// The owner's process.
    pub(crate) pid: AtomicU32,
    /// The owner's effective user when it last made or connected a queue pair. It may change (`setuid`).
    pub(crate) user: AtomicU32,
    /// Marked by the owner's engine thread, and by the kernel when that ends (`life`).
    pub(crate) engine: std::sync::atomic::AtomicU32,
    /// Slots of peers with an outstanding owner request. Set by the peers and cleared by the owner.
    pub(crate) owner_requests: OwnerRequestBits,
}

/// One bit per slot. Like `Header::engine` no part of the rings, which alone are model-checked.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct OwnerRequestBits(
    pub(crate) [std::sync::atomic::AtomicU64; (MAX_SLOTS / u64::BITS) as usize],
);

/// An owner request of the port in this slot. Written by that port's owner; while `state` says that it is asked for, by the
/// owner of this file.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct OwnerRequestEntry {
    /// Epoch of the port that asks.
    pub(crate) epoch: AtomicU64,
    /// Whether it is asked for or carried out. Stored last.
    pub(crate) state: AtomicU32,
    pub(crate) kind: AtomicU32,
    /// The region.
    pub(crate) key: AtomicU32,
    /// The place in the region, as requests name it.
    pub(crate) addr: AtomicU64,
    pub(crate) length: AtomicU64,
    /// Offset of the bytes in the file of the port that asks.
    pub(crate) buffer: AtomicU64,
    /// Of an atomic operation; then the first is its result.
    pub(crate) operands: [AtomicU64; 2],
}

/// A port that sends datagrams to this one. Written by that port's owner.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SenderEntry {
    /// Epoch of the port in this slot when it first sent a datagram; 0: it has sent none.
    pub(crate) epoch: AtomicU64,
}

/// A queue pair, as its peer sees it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct QpEntry {
    /// [`Phase`]: with one load the peer learns whether the queue pair was reset, and whether it receives.
    pub(crate) phase: AtomicU64,
    /// Epoch of the port that it is connected to.
    pub(crate) dest_epoch: AtomicU64,
    /// Its receive ring in this file: a `RecvRing`, of a UD queue pair a `DatagramRing`; or the index
    /// of its shared receive queue, which has either.
    pub(crate) ring_offset: AtomicU64,
    /// The queue pair that it is connected to.
    pub(crate) dest_qpn: AtomicU32,
    /// First packet it expects.
    pub(crate) rq_psn: AtomicU32,
    /// Access rights of the peer (`AccessFlags`).
    pub(crate) access: AtomicU32,
    /// Protection domain; of an XRC receive queue pair, its XRC domain.
    pub(crate) pd: AtomicU32,
    /// Slots of the ring, a power of two; 0: it takes from a shared receive queue.
    pub(crate) ring_slots: AtomicU32,
    /// Lines of a slot.
    pub(crate) ring_stride: AtomicU32,
    /// Index of the completion queue for receives.
    pub(crate) recv_cq: AtomicU32,
    /// RNR timer code.
    pub(crate) min_rnr_timer: AtomicU32,
    /// Maximum number of READs and atomics of the peer in flight; 0: none are allowed.
    pub(crate) max_dest_rd_atomic: AtomicU32,
    /// UD: queue key.
    pub(crate) qkey: AtomicU32,
    /// Written by its owner as requester.
    pub(crate) requester: RequesterLine,
    /// Written by the connected peer.
    pub(crate) from_peer: PeerLine,
}

/// A queue pair's generation (which counts its RESETs), service and state, as in [`QpEntry::phase`]:
/// `generation << 8 | service << 4 | state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phase(pub(crate) u64);

impl Phase {
    /// The phase of no queue pair.
    pub(crate) const NONE: Self = Phase(u64::MAX);

    pub(crate) fn new(generation: u64, service: QpType, state: QpState) -> Self {
        Phase(generation << 8 | service_code(service) << 4 | u64::from(state as u32))
    }

    pub(crate) fn generation(self) -> u64 {
        self.0 >> 8
    }

    pub(crate) fn state(self) -> Option<QpState> {
        QpState::from_code(self.0 as u32 & 0xf)
    }

    /// Whether requests of a peer with this service are carried out.
    pub(crate) fn receives(self, service: QpType) -> bool {
        self.0 >> 4 & 0xf == service_code(service.of_peer())
            && self.state().is_some_and(QpState::receives)
    }

    /// Returns the ring position of the first receive of this generation.
    pub(crate) fn first_position(self) -> u64 {
        first_position(self.generation())
    }
}

const fn service_code(service: QpType) -> u64 {
    match service {
        QpType::Uc => 1,
        QpType::Ud => 2,
        QpType::XrcSend => 3,
        QpType::XrcRecv => 4,
        _ => 0,
    }
}

/// Returns the ring position of the first receive of a generation. Generations are 2^44 receives apart.
pub(crate) fn first_position(generation: u64) -> u64 {
    (generation & 0x3_ffff) << 44
}

/// How a generation of a queue pair has failed as a responder: `(generation + 1) << 2 | kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) u64);

/// What is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// A receive, which has completed with the error.
    Receive,
    /// The access rights.
    Access,
    /// The request.
    Request,
}

impl Fault {
    pub(crate) fn new(generation: u64, kind: FaultKind) -> Self {
        Fault((generation + 1) << 2 | kind as u64)
    }

    pub(crate) fn is_of(self, generation: u64) -> bool {
        self.0 >> 2 == generation + 1
    }

    /// Returns the event by which its owner learns of it, if no completion reports it.
    pub(crate) fn event(self, qpn: Qpn) -> Option<AsyncEvent> {
        const ACCESS: u64 = FaultKind::Access as u64;
        const REQUEST: u64 = FaultKind::Request as u64;
        match self.0 & 3 {
            ACCESS => Some(AsyncEvent::QpAccessError(qpn)),
            REQUEST => Some(AsyncEvent::QpRequestError(qpn)),
            _ => None,
        }
    }
}

/// Written by the queue pair's owner in every operation, read by the peer when it waits for the operation's end.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct RequesterLine {
    /// Odd while an operation is in flight.
    pub(crate) busy: Busy,
}

/// Written by the connected peer.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct PeerLine {
    /// [`Fault`]: a generation whose responder failed; 0: none. Its owner moves the queue pair to the error state,
    /// like a responder that sends a fatal NAK.
    pub(crate) fault: AtomicU64,
    /// Generation, plus one, that the peer's first request found in RTR; 0: none. Its owner reports it.
    pub(crate) established: AtomicU64,
    /// Generation, plus one, of the peer's queue pair that has sent requests to this generation; 0: none yet.
    /// Another generation of the peer does not continue the packet sequence.
    pub(crate) requester_generation: AtomicU64,
    /// UC: position of the next receive when the peer's last connection ended. Only positions of this generation are
    /// valid.
    pub(crate) next: AtomicU64,
    /// Nonzero: the peer sleeps until a receive is posted; wake its engine.
    pub(crate) waiting: AtomicU32,
}

/// A completion queue, as producers see it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct CqEntry {
    /// [`Duties`] of producers.
    pub(crate) duties: AtomicU32,
    /// Whether it waits for an event.
    pub(crate) arming: ArmedLine,
    /// Queue pairs that may have something for it, if producers mark them.
    pub(crate) ready: Ready<{ (MAX_QP / u64::BITS) as usize }>,
}

/// What producers have to do after each completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Duties(pub(crate) u32);

impl Duties {
    /// Mark the queue pair.
    pub(crate) const MARK: u32 = 1 << 31;

    /// Raise an event in a channel, if the queue has one. Channel numbers are serial numbers of the port.
    pub(crate) fn new(channel: Option<u32>) -> Self {
        Duties(channel.map_or(0, |number| (number + 1) & !Self::MARK))
    }

    /// Reads the duties of a queue to which a completion was added.
    #[inline]
    pub(crate) fn of(entry: &CqEntry) -> Self {
        // Keeps the load behind the store of the completion, for an owner that adds a duty and then executes
        // `quiesce::barrier`: either this load sees the duty, or the owner sees the completion.
        compiler_fence(Ordering::SeqCst);
        Duties(entry.duties.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn any(self) -> bool {
        self.0 != 0
    }

    /// Returns the number of the channel.
    pub(crate) fn channel(self) -> Option<u32> {
        (self.0 & !Self::MARK).checked_sub(1)
    }

    /// Marks queue pair `index`, if that is a duty.
    pub(crate) fn mark(self, entry: &CqEntry, index: Option<u32>) {
        if let Some(index) = index
            && self.0 & Self::MARK != 0
        {
            entry.ready.mark(index);
        }
    }
}

/// Whether the queue is armed, on a separate cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ArmedLine {
    pub(crate) armed: Armed,
}

/// In place of a file's number: the region is memory that the owner's program already had.
pub(crate) const PROGRAM_MEMORY: u64 = u64::MAX;

/// In place of a file's number: the region is program memory, whose pages are shared ([`crate::pages`]).
pub(crate) const PROGRAM_PAGES: u64 = u64::MAX - 1;

/// In [`MrEntry::pd`]: the entry is a memory window's, so no local key of a domain matches it.
pub(crate) const WINDOW: u32 = 1 << 31;

/// What a memory window is bound to, in [`MrEntry::file`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundTo {
    /// Key of the region.
    pub(crate) region: u32,
    /// Number of the only queue pair that the window serves; 0: it serves all of its domain.
    pub(crate) qpn: u32,
}

impl BoundTo {
    pub(crate) fn of(entry: &MrEntry) -> Self {
        let word = entry.file.load(Ordering::Relaxed);
        BoundTo {
            region: word as u32,
            qpn: (word >> 32) as u32,
        }
    }

    pub(crate) fn store(self, entry: &MrEntry) {
        let word = u64::from(self.region) | u64::from(self.qpn) << 32;
        entry.file.store(word, Ordering::Relaxed);
    }
}

/// A memory region or a memory window.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct MrEntry {
    /// Its lkey and rkey; 0: no region, or a window that is not bound. Stored last and cleared first, so the other words are valid while it is set.
    pub(crate) key: AtomicU32,
    /// `AccessFlags`.
    pub(crate) access: AtomicU32,
    /// Address by which requests name the first byte.
    pub(crate) addr: AtomicU64,
    /// What has to be added (with wrapping) to such an address to get the address in the owner's process; of a window,
    /// to get the address in its region.
    pub(crate) shift: AtomicU64,
    /// Length in bytes.
    pub(crate) length: AtomicU64,
    /// Number of its file, [`PROGRAM_MEMORY`] or [`PROGRAM_PAGES`]; of a window the words of [`BoundTo`].
    pub(crate) file: AtomicU64,
    /// Protection domain, of a window with [`WINDOW`].
    pub(crate) pd: AtomicU32,
    /// Shared pages: the descriptor of their file in the owner's process.
    pub(crate) pages_fd: AtomicU32,
    /// Its inode.
    pub(crate) pages_inode: AtomicU64,
    /// Where the file has the region's first byte.
    pub(crate) pages_offset: AtomicU64,
}

/// A shared receive queue: a `SharedRing`, followed by the slots of its requests, a `RecvRing`. For datagrams
/// there is also a `DatagramRing`.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct SrqEntry {
    /// Offset of the queue in this file.
    pub(crate) offset: AtomicU64,
    /// Offset of the ring for datagrams to its queue pairs.
    pub(crate) mailbox: AtomicU64,
    /// Slots of that ring, a power of two; 0: it has none. Stored last.
    pub(crate) mailbox_slots: AtomicU32,
    /// Maximum number of posted requests, a power of two.
    pub(crate) words: AtomicU32,
    /// Slots, a power of two.
    pub(crate) slots: AtomicU32,
    /// Lines of a slot.
    pub(crate) stride: AtomicU32,
    /// Protection domain.
    pub(crate) pd: AtomicU32,
    /// XRC: index of the completion queue.
    pub(crate) recv_cq: AtomicU32,
    /// XRC: [`XrcQueue`]; 0: it is another queue, or destroyed. Stored last and cleared first.
    pub(crate) xrc: AtomicU64,
}

/// Identity of an XRC shared receive queue: a number that no other queue of the port had, and its XRC domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XrcQueue(pub(crate) u64);

impl XrcQueue {
    pub(crate) fn new(serial: u32, domain: u32) -> Self {
        XrcQueue(u64::from(serial) << 32 | u64::from(domain + 1))
    }

    pub(crate) fn is_in(self, domain: u32) -> bool {
        self.0 & u64::from(u32::MAX) == u64::from(domain + 1)
    }
}

/// A struct of atomics that may be in memory shared with other processes.
///
/// # Safety
/// Every bit pattern is a valid value and all access is by atomics (`#[repr(C)]`).
pub(crate) unsafe trait SharedWords {}

macro_rules! shared_words {
    ($($entry:ty),*) => {
        $(
            // SAFETY: the struct is `repr(C)` and consists of atomics.
            unsafe impl SharedWords for $entry {}
        )*
    };
}
shared_words!(
    Header,
    SenderEntry,
    OwnerRequestEntry,
    QpEntry,
    CqEntry,
    MrEntry,
    SrqEntry
);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_of_different_writers_are_on_different_cache_lines() {
        assert_eq!(std::mem::offset_of!(QpEntry, requester), 64);
        assert_eq!(std::mem::offset_of!(QpEntry, from_peer), 128);
        assert_eq!(size_of::<QpEntry>(), 192);
        assert_eq!(std::mem::offset_of!(CqEntry, arming), 64);
        assert_eq!(size_of::<MrEntry>(), 64);
        assert_eq!(std::mem::offset_of!(Header, owner_requests), 64);
        assert_eq!(size_of::<OwnerRequestEntry>(), 64);
    }
}
