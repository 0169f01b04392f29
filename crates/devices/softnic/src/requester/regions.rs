//! The peer's memory regions, found by key.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_verbs::AccessFlags;

use crate::shm::layout::mr_index;
use crate::shm::peer::{NoAccess, Peer, PeerRegion, Reached};

const CACHE_SLOTS: usize = 32;

/// A cache of the peer's most recently used regions, by key.
#[derive(Debug, Default)]
pub(super) struct RegionCache {
    slots: [Option<(u32, Arc<PeerRegion>)>; CACHE_SLOTS],
}

impl RegionCache {
    /// Returns the place of a range of the peer's memory, if `key` is the key of a region of domain `pd` that
    /// contains it and allows `need`.
    #[inline]
    pub(super) fn find(
        &mut self,
        peer: &Peer,
        key: u32,
        pd: u32,
        need: AccessFlags,
        (addr, length): (u64, u64),
    ) -> Result<Reached, NoAccess> {
        let slot = &mut self.slots[mr_index(key) as usize % CACHE_SLOTS];
        if slot.as_ref().is_none_or(|(cached, _)| *cached != key) {
            *slot = Some((key, peer.region(key)?));
        }
        let (_, region) = slot.as_ref().ok_or(NoAccess::Refused)?;
        // The region may have been deregistered since it was cached. While its key is in the table, it has not
        // changed, except for its domain and access rights.
        let entry = peer.mr_entry(key);
        if entry.key.load(Ordering::Acquire) != key {
            *slot = None;
            return Err(NoAccess::Refused);
        }
        let offset = addr.wrapping_sub(region.addr);
        let fits = offset <= region.length && length <= region.length - offset;
        let access = AccessFlags::from_bits_retain(entry.access.load(Ordering::Relaxed));
        let allowed = entry.pd.load(Ordering::Relaxed) == pd && access.contains(need);
        match fits && allowed {
            true => Ok(region.place(key, addr)),
            false => Err(NoAccess::Refused),
        }
    }
}
