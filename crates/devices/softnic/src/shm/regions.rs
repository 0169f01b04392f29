//! The memory regions that this process has registered, for access by packets.

use std::sync::Arc;

use crate::shm::layout::MAX_MR;
use crate::shm::segment::Mapping;

/// The memory of a region. It is unmapped when the last user drops it.
#[derive(Debug)]
pub(crate) struct LocalRegion {
    pub(crate) mapping: Mapping,
}

/// The regions of a port by their index. Each access of a packet looks its region up, so this is not a hash table.
#[derive(Debug, Default)]
pub(crate) struct RegionTable(Vec<Option<Arc<LocalRegion>>>);

impl RegionTable {
    pub(crate) fn insert(&mut self, index: u32, region: &Arc<LocalRegion>) {
        let index = index as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        self.0[index] = Some(region.clone());
    }

    pub(crate) fn remove(&mut self, index: u32) {
        if let Some(place) = self.0.get_mut(index as usize) {
            *place = None;
        }
    }

    /// Returns the region at the index of `key`. The caller has to compare the region's key with `key`.
    #[inline]
    pub(crate) fn at(&self, key: u32) -> Option<&Arc<LocalRegion>> {
        self.0.get((key & (MAX_MR - 1)) as usize)?.as_ref()
    }
}
