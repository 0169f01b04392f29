//! Null memory regions (`ibv_alloc_null_mr`): reading one gives zeros, and what is written to one is discarded.
//! [`null_space`](crate::shm::null_space) describes how.

use std::sync::Arc;

use adverb_units::Bytes;
use adverb_verbs::{AccessFlags, Lkey, MemoryRegion as _, RegisterError};

use crate::domain::SoftPd;
use crate::memory::SoftMr;
use crate::port::Port;
use crate::shm::null_space::{LENGTH, OwnRange, Space};
use crate::shm::regions::LocalRegion;

/// A null memory region of the user-space NIC. Dropping it deregisters it.
#[derive(Debug)]
pub struct SoftNullMr {
    port: Arc<Port>,
    sink: SoftMr,
    _zeros: SoftMr,
}

impl SoftPd {
    /// Allocates a null region (`ibv_alloc_null_mr`).
    ///
    /// # Errors
    /// There are too many regions, or there is no address space for it.
    pub fn alloc_null_mr(&self) -> Result<SoftNullMr, RegisterError> {
        let port = &self.handle.port;
        let space = Space::get().map_err(|source| RegisterError::Memory {
            length: Bytes::new(2 * LENGTH as u64),
            place: "the address space of this process".to_owned(),
            remedy: "raise the limit of its virtual memory (ulimit -v)".to_owned(),
            source,
        })?;
        let region = |first, access| {
            let length = LENGTH;
            let memory = LocalRegion::Null(OwnRange { first, length });
            SoftMr::of_null(port, self.number, (memory, first as u64), access)
        };
        let zeros = region(space.zeros, AccessFlags::empty())?;
        let sink = region(space.sink, AccessFlags::LOCAL_WRITE)?;
        port.null_regions.add(sink.lkey(), zeros.lkey());
        Ok(SoftNullMr {
            port: port.clone(),
            sink,
            _zeros: zeros,
        })
    }
}

impl SoftPd {
    /// Registers a zero-based region without bytes, as programs make of device memory.
    ///
    /// # Errors
    /// There are too many regions.
    pub fn register_empty(&self, access: AccessFlags) -> Result<SoftMr, RegisterError> {
        let range = OwnRange {
            first: 0,
            length: 0,
        };
        let memory = (LocalRegion::Null(range), 0);
        SoftMr::of_null(&self.handle.port, self.number, memory, access)
    }
}

impl SoftNullMr {
    /// Returns the key for local use. The region has no key for peers.
    pub fn lkey(&self) -> Lkey {
        self.sink.lkey()
    }
}

impl Drop for SoftNullMr {
    fn drop(&mut self) {
        self.port.null_regions.remove(self.sink.lkey());
    }
}
