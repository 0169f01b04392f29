//! Memory regions, each allocated in a file of shared memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use adverb_units::Bytes;
use adverb_verbs::{AccessFlags, Lkey, MemoryAccessError, MemoryRegion, RegisterError, Rkey, Sge};

use crate::idle;
use crate::port::{Port, TableEntry, random_u64, remedy};
use crate::shm::copy::place;
use crate::shm::layout::{MAX_MR, MR_INDEX_BITS};
use crate::shm::regions::LocalRegion;
use crate::shm::segment::{Mapping, Population, release, reserve};
use crate::shm::sync::lock;

/// Maximum size of a region.
pub(crate) const MAX_MR_SIZE: Bytes = Bytes::mib(256 * 1024);

/// A memory region of the user-space NIC, with its memory. Dropping it deregisters and frees it.
#[derive(Debug)]
pub struct SoftMr {
    port: Arc<Port>,
    region: Arc<LocalRegion>,
    index: u32,
    key: u32,
    file: u32,
    length: u64,
}

impl SoftMr {
    pub(crate) fn new(
        port: &Arc<Port>,
        pd: u32,
        length: Bytes,
        access: AccessFlags,
    ) -> Result<Self, RegisterError> {
        if length.get() == 0 || length > MAX_MR_SIZE {
            return Err(RegisterError::Length {
                length,
                max: MAX_MR_SIZE,
            });
        }
        if !access.is_consistent() {
            return Err(RegisterError::Access { access });
        }
        let exhausted = RegisterError::Exhausted {
            limit: MAX_MR.into(),
        };
        let index = lock(&port.mr_indices).take().ok_or(exhausted)?;
        let file = port.next_serial();
        let made = allocate(port, index, file, length);
        let (mapping, tag) = made.map_err(|source| {
            port.dir.remove(port.slot, &format!("m{file}"));
            lock(&port.mr_indices).give(index);
            RegisterError::Memory {
                length,
                place: port.dir.path().display().to_string(),
                remedy: remedy(&port.dir, &source)
                    .trim_start_matches("; ")
                    .to_owned(),
                source,
            }
        })?;
        let region = Arc::new(LocalRegion { mapping });
        let mr = SoftMr {
            port: port.clone(),
            region,
            index,
            key: tag << MR_INDEX_BITS | index,
            file,
            length: length.get(),
        };
        mr.publish(pd, access);
        Ok(mr)
    }

    /// Makes the region visible to requesters. The key is stored last, with release, because it marks the entry
    /// as valid.
    fn publish(&self, pd: u32, access: AccessFlags) {
        lock(&self.port.regions).insert(self.index, &self.region);
        let entry = self.port.mr_entry(self.index);
        entry.addr.store(self.addr(), Ordering::Relaxed);
        entry.length.store(self.length, Ordering::Relaxed);
        entry.access.store(access.bits(), Ordering::Relaxed);
        entry.file.store(self.file.into(), Ordering::Relaxed);
        entry.pd.store(pd, Ordering::Relaxed);
        entry.key.store(self.key, Ordering::Release);
    }

    fn check(&self, offset: u64, length: u64) -> Result<*mut u8, MemoryAccessError> {
        let end = offset.checked_add(length);
        if end.is_some_and(|end| end <= self.length) {
            Ok(self.region.mapping.base().wrapping_add(offset as usize))
        } else {
            Err(MemoryAccessError {
                offset,
                length,
                region: Bytes::new(self.length),
            })
        }
    }
}

/// Creates the file and its mapping, and a random key tag.
fn allocate(port: &Port, index: u32, file: u32, length: Bytes) -> std::io::Result<(Mapping, u32)> {
    port.reserve_entry(TableEntry::Mr(index))?;
    let memory = port.dir.create(port.slot, &format!("m{file}"))?;
    reserve(&memory, 0, length.get())?;
    let mapping = Mapping::new(&memory, length.get(), Population::Now)?;
    loop {
        let tag = random_u64()? as u32 >> MR_INDEX_BITS;
        if tag != 0 {
            return Ok((mapping, tag));
        }
    }
}

impl Drop for SoftMr {
    fn drop(&mut self) {
        let port = &self.port;
        port.mr_entry(self.index).key.store(0, Ordering::Release);
        lock(&port.regions).remove(self.index);
        let name = format!("m{}", self.file);
        // Peers keep their mapping of the file until they look for another region. Its pages are freed now,
        // unless a peer is in the middle of an operation.
        if port.quiesce_peers()
            && let Ok(file) = port.dir.open_peer(port.slot, &name)
        {
            let _ = release(&file, self.length);
        }
        port.dir.remove(port.slot, &name);
        lock(&port.mr_indices).give(self.index);
    }
}

impl MemoryRegion for SoftMr {
    fn addr(&self) -> u64 {
        self.region.mapping.base().expose_provenance() as u64
    }

    fn length(&self) -> Bytes {
        Bytes::new(self.length)
    }

    fn lkey(&self) -> Lkey {
        Lkey(self.key)
    }

    fn rkey(&self) -> Rkey {
        Rkey(self.key)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MemoryAccessError> {
        let source = self.check(offset, into.len() as u64)?;
        // SAFETY: `check` ensures that the source is in our mapping; `into` is exclusive.
        unsafe { std::ptr::copy(source, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MemoryAccessError> {
        let target = self.check(offset, from.len() as u64)?;
        // SAFETY: `check` ensures that the target is in our writable mapping; `from` is readable.
        unsafe { place(target, from.as_ptr(), from.len()) };
        Ok(())
    }

    #[inline]
    fn load(&self, offset: u64) -> Result<u8, MemoryAccessError> {
        // A program that polls memory for a peer's message has to receive the packets that carry it.
        if self.port.uses_udp() {
            self.port.drive_udp();
            idle::note_misses(idle::POLLS_PER_UDP_POLL);
        } else {
            idle::note_misses(1);
        }
        let byte = self.check(offset, 1)?;
        // SAFETY: `check` ensures that the byte is in our mapping; an atomic load may race with any writer.
        Ok(unsafe { (*byte.cast::<AtomicU8>()).load(Ordering::Acquire) })
    }

    #[inline]
    fn sge(&self, offset: u64, length: u32) -> Result<Sge<'_>, MemoryAccessError> {
        let addr = self.check(offset, length.into())?;
        // SAFETY: `check` ensures that the range is in our mapping, which lives as long as the borrow of `self`.
        Ok(unsafe { Sge::from_raw(addr.expose_provenance() as u64, length, Lkey(self.key)) })
    }
}

/// Returns the first byte of an SGE that `pd` may access with `need`.
///
/// The SGE borrows its region, which stays mapped therefore. A range within the region of the SGE's key is
/// within the region that the SGE was made from, because regions do not overlap.
#[inline]
pub(crate) fn check_local(
    port: &Port,
    pd: u32,
    sge: &Sge<'_>,
    need: AccessFlags,
) -> Option<*mut u8> {
    let key = sge.lkey().0;
    let entry = port.mr_entry(key & (MAX_MR - 1));
    let (addr, length) = (
        entry.addr.load(Ordering::Relaxed),
        entry.length.load(Ordering::Relaxed),
    );
    let access = AccessFlags::from_bits_retain(entry.access.load(Ordering::Relaxed));
    let offset = sge.addr().wrapping_sub(addr);
    let fits = offset <= length && u64::from(sge.length()) <= length - offset;
    let allowed = access.contains(need) && entry.pd.load(Ordering::Relaxed) == pd;
    let named = key != 0 && entry.key.load(Ordering::Acquire) == key;
    (named && fits && allowed).then(|| std::ptr::with_exposed_provenance_mut(sge.addr() as usize))
}
