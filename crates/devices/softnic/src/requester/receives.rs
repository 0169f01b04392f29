//! Finds the receives of a connected queue pair in the peer's file.

use std::sync::atomic::Ordering;

use crate::shm::layout::QpEntry;
use crate::shm::peer::Peer;
use crate::shm::ring::{Line, RecvRing};
use crate::shm::shared_ring::{MAX_SLOTS, SharedRing};

/// A shared receive queue, whose slots are in a separate ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct SharedReceives {
    pub(super) queue: SharedRing<'static>,
    slots: usize,
    /// The peer's queue pair, for which requests are taken.
    holder: u16,
}

impl SharedReceives {
    /// Takes a request; returns its position in the ring of slots, or `None` if none is posted.
    #[inline]
    pub(super) fn take(&self) -> Option<u64> {
        let ticket = self.queue.take(self.holder)?;
        Some(ticket.request(self.slots))
    }
}

/// A queue pair's receives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receives {
    pub(super) ring: RecvRing<'static>,
    pub(super) shared: Option<SharedReceives>,
    /// Protection domain of their memory.
    pub(super) pd: u32,
}

impl Receives {
    /// Finds the receives of `remote`, which is queue pair `index` of the peer. `None` if its entry is
    /// inconsistent. They are valid as long as the peer's mapping is kept.
    pub(super) fn of(peer: &Peer, remote: &QpEntry, index: u32) -> Option<Self> {
        let slots = remote.ring_slots.load(Ordering::Relaxed);
        let offset = remote.ring_offset.load(Ordering::Relaxed);
        if slots == 0 {
            return Self::shared(peer, offset, index);
        }
        let stride = remote.ring_stride.load(Ordering::Relaxed);
        Some(Receives {
            ring: ring(peer, offset, (slots, stride))?,
            shared: None,
            pd: remote.pd.load(Ordering::Relaxed),
        })
    }

    /// Finds the receives of a shared receive queue of the peer, for its queue pair `index`.
    pub(super) fn shared(peer: &Peer, srq: u64, index: u32) -> Option<Self> {
        let entry = peer.srq_entry(srq)?;
        let (words, slots) = (
            entry.words.load(Ordering::Relaxed) as usize,
            entry.slots.load(Ordering::Relaxed),
        );
        if !words.is_power_of_two() || slots as usize > MAX_SLOTS {
            return None;
        }
        let offset = entry.offset.load(Ordering::Relaxed);
        let length = (SharedRing::lines(words) * size_of::<Line>()) as u64;
        let lines = peer.address(offset, length)?;
        let stride = entry.stride.load(Ordering::Relaxed);
        let ring = ring(peer, offset.checked_add(length)?, (slots, stride))?;
        // SAFETY: the lines are in the peer's mapping (checked by `address`), which the caller keeps for longer
        // than the result.
        let queue = unsafe { SharedRing::from_raw(lines.cast(), words) };
        let shared = SharedReceives {
            queue,
            slots: slots as usize,
            holder: index as u16,
        };
        Some(Receives {
            ring,
            shared: Some(shared),
            pd: entry.pd.load(Ordering::Relaxed),
        })
    }
}

/// Returns the ring at an offset of the peer's file, given the number of slots and of lines per slot.
fn ring(peer: &Peer, offset: u64, (slots, stride): (u32, u32)) -> Option<RecvRing<'static>> {
    let bytes = u64::from(slots) * u64::from(stride) * size_of::<Line>() as u64;
    let lines = peer.address(offset, bytes)?;
    if !slots.is_power_of_two() || stride == 0 {
        return None;
    }
    // SAFETY: the lines are in the peer's mapping (checked by `address`), which the caller keeps for longer than the
    // result.
    Some(unsafe { RecvRing::from_raw(lines.cast(), slots as usize, stride as usize) })
}
