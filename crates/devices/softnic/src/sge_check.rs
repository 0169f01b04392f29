//! Why the device does not access an SGE, for explanations (requests themselves only fail or succeed) and for advice
//! about memory.

use std::io;
use std::sync::atomic::Ordering;

use adverb_verbs::{AccessFlags, Sge};

use crate::domain::SoftPd;
use crate::memory::local_address;
use crate::program_memory::fault_in;
use crate::shm::layout::mr_index;

/// An SGE that requests of a protection domain cannot use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SgeError {
    /// There is no region with this key.
    #[error("lkey {lkey:#x} is not the key of a region")]
    UnknownKey {
        /// The given key.
        lkey: u32,
    },
    /// The region belongs to another protection domain.
    #[error("the region with lkey {lkey:#x} belongs to another protection domain")]
    Domain {
        /// The given key.
        lkey: u32,
    },
    /// The range is not within the region.
    #[error(
        "{length} B at {addr:#x} are outside the region with lkey {lkey:#x}: {region_length} B at {region_addr:#x}"
    )]
    Range {
        /// The given key.
        lkey: u32,
        /// First byte of the SGE.
        addr: u64,
        /// Length of the SGE.
        length: u32,
        /// First byte of the region.
        region_addr: u64,
        /// Length of the region.
        region_length: u64,
    },
    /// The region was registered without the access right.
    #[error("the region with lkey {lkey:#x} was registered without {}, which the request needs", names(*missing))]
    Access {
        /// The given key.
        lkey: u32,
        /// The missing rights.
        missing: AccessFlags,
    },
}

/// Why memory cannot be prefetched.
#[derive(Debug, thiserror::Error)]
pub enum PrefetchError {
    /// Requests cannot use the SGE.
    #[error(transparent)]
    Sge(#[from] SgeError),
    /// The process does not have the memory.
    #[error("{length} B at {addr:#x} are not memory of this process: {source}")]
    Fault {
        /// First byte of the SGE.
        addr: u64,
        /// Length of the SGE.
        length: u32,
        /// The kernel's reason.
        source: io::Error,
    },
}

fn names(access: AccessFlags) -> String {
    let names: Vec<_> = access.iter_names().map(|(name, _)| name).collect();
    names.join(", ")
}

impl SoftPd {
    /// Checks an SGE as requests of this protection domain do that need the right `need`.
    ///
    /// # Errors
    /// The first reason why such a request fails.
    pub fn check_sge(&self, sge: &Sge<'_>, need: AccessFlags) -> Result<(), SgeError> {
        let lkey = sge.lkey().0;
        let entry = self.handle.port.mr_entry(mr_index(lkey));
        if lkey == 0 || entry.key.load(Ordering::Acquire) != lkey {
            return Err(SgeError::UnknownKey { lkey });
        }
        if entry.pd.load(Ordering::Relaxed) != self.number {
            return Err(SgeError::Domain { lkey });
        }
        if self.handle.port.null_regions.has(sge.lkey()) {
            return Ok(());
        }
        let region_addr = entry.addr.load(Ordering::Relaxed);
        let region_length = entry.length.load(Ordering::Relaxed);
        let (addr, length) = (sge.addr(), sge.length());
        let offset = addr.wrapping_sub(region_addr);
        if offset > region_length || u64::from(length) > region_length - offset {
            return Err(SgeError::Range {
                lkey,
                addr,
                length,
                region_addr,
                region_length,
            });
        }
        let access = AccessFlags::from_bits_retain(entry.access.load(Ordering::Relaxed));
        match need - access {
            missing if missing.is_empty() => Ok(()),
            missing => Err(SgeError::Access { lkey, missing }),
        }
    }

    /// Makes the pages of an SGE present in memory, for requests that need the right `need`.
    ///
    /// # Errors
    /// Such requests cannot use the SGE, or the process does not have the memory.
    pub fn prefetch(&self, sge: &Sge<'_>, need: AccessFlags) -> Result<(), PrefetchError> {
        self.check_sge(sge, need)?;
        if sge.length() == 0 || self.handle.port.null_regions.has(sge.lkey()) {
            return Ok(());
        }
        let first = local_address(&self.handle.port, sge).expose_provenance() as u64;
        let range = first..first.saturating_add(sge.length().into());
        fault_in(&range, need).map_err(|source| PrefetchError::Fault {
            addr: sge.addr(),
            length: sge.length(),
            source,
        })
    }
}
