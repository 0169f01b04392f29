//! Memory regions: each allocated in a file of shared memory, or memory that the program already has.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use adverb_units::Bytes;
use adverb_verbs::{AccessFlags, Lkey, MemoryAccessError, MemoryRegion, RegisterError, Rkey, Sge};

use rustix::io::Errno;

use crate::domain::SoftPd;
use crate::idle;
use crate::pages::{self, NotShared, PagesOf, Reach};
use crate::port::{Port, TableEntry, random_u64, remedy};
use crate::program_memory::fault_in;
use crate::shm::copy::place;
use crate::shm::layout::{KEY_BYTE, KEY_INDEX, MAX_MR, PROGRAM_MEMORY, PROGRAM_PAGES, mr_index};
use crate::shm::quiesce;
use crate::shm::regions::{LocalRegion, ProgramMemory};
use crate::shm::segment::{Mapping, Population, release, reserve};
use crate::shm::sync::lock;

/// Maximum size of a region.
pub(crate) const MAX_MR_SIZE: Bytes = Bytes::mib(256 * 1024);

/// A memory region of the user-space NIC. Dropping it deregisters it, and frees its memory if it was allocated with it.
#[derive(Debug)]
pub struct SoftMr {
    port: Arc<Port>,
    region: Arc<LocalRegion>,
    index: u32,
    key: u32,
    /// Address by which requests name the first byte.
    addr: u64,
    /// Number of its file; `None` if it is memory that the program already had.
    file: Option<u32>,
}

/// Memory of the program, to be registered.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) base: *mut u8,
    pub(crate) length: Bytes,
    /// Address by which requests name the first byte.
    pub(crate) iova: u64,
    pub(crate) access: AccessFlags,
}

impl SoftMr {
    /// Allocates memory.
    pub(crate) fn new(
        port: &Arc<Port>,
        pd: u32,
        length: Bytes,
        access: AccessFlags,
    ) -> Result<Self, RegisterError> {
        check(length, access)?;
        let file = port.next_serial();
        let made = allocate(port, file, length)
            .map_err(|source| no_room(port, length, source))
            .and_then(|mapping| {
                let addr = mapping.base().expose_provenance() as u64;
                let memory = (LocalRegion::File(mapping), addr);
                Self::enter(port, pd, memory, (Some(file), access))
            });
        made.inspect_err(|_| port.dir.remove(port.slot, &format!("m{file}")))
    }

    /// Registers memory that the program already has.
    pub(crate) fn of_program(
        port: &Arc<Port>,
        pd: u32,
        memory: &Registration,
    ) -> Result<Self, RegisterError> {
        let &Registration {
            base,
            length,
            iova,
            access,
        } = memory;
        check(length, access)?;
        let addr = base.expose_provenance() as u64;
        let fault = |source| RegisterError::Fault {
            addr,
            length,
            access,
            source,
        };
        let ends = [addr, iova].map(|first| first.checked_add(length.get()));
        let ([Some(end), Some(_)], Some(base)) = (ends, NonNull::new(base)) else {
            return Err(fault(Errno::FAULT.into()));
        };
        let range = addr..end;
        let reach = pages::reach(&range);
        // Shared pages are all present and may be written.
        if let Reach::Address { .. } = reach {
            fault_in(&range, access).map_err(fault)?;
        }
        let memory = ProgramMemory::new(base, length.get() as usize, reach);
        let memory = (LocalRegion::Program(memory), iova);
        Self::enter(port, pd, memory, (None, access))
    }

    /// Registers a part of a null region, or an empty region.
    pub(crate) fn of_null(
        port: &Arc<Port>,
        pd: u32,
        memory: (LocalRegion, u64),
        access: AccessFlags,
    ) -> Result<Self, RegisterError> {
        Self::enter(port, pd, memory, (None, access))
    }

    /// Registers new private memory.
    #[cfg(feature = "testing")]
    pub(crate) fn in_private_memory(
        port: &Arc<Port>,
        pd: u32,
        length: Bytes,
        access: AccessFlags,
    ) -> Result<Self, RegisterError> {
        check(length, access)?;
        let mapping =
            Mapping::private(length.get()).map_err(|source| no_room(port, length, source))?;
        let addr = mapping.base().expose_provenance() as u64;
        Self::enter(
            port,
            pd,
            (LocalRegion::Private(mapping), addr),
            (None, access),
        )
    }

    /// Makes a table entry for a region whose first byte requests name by `addr`.
    fn enter(
        port: &Arc<Port>,
        pd: u32,
        (region, addr): (LocalRegion, u64),
        (file, access): (Option<u32>, AccessFlags),
    ) -> Result<Self, RegisterError> {
        let exhausted = RegisterError::Exhausted {
            limit: MAX_MR.into(),
        };
        let index = lock(&port.mr_indices).take().ok_or(exhausted)?;
        let reserved = port.reserve_entry(TableEntry::Mr(index));
        let key = reserved.and_then(|()| key_of(index)).map_err(|source| {
            lock(&port.mr_indices).give(index);
            no_room(port, Bytes::new(region.length()), source)
        })?;
        let mr = SoftMr {
            port: port.clone(),
            region: Arc::new(region),
            index,
            key,
            addr,
            file,
        };
        if file.is_none() {
            admit_peers();
        }
        mr.publish(pd, access);
        Ok(mr)
    }

    /// Makes the region visible to requesters. The key is stored last, with release, because it marks the entry
    /// as valid.
    fn publish(&self, pd: u32, access: AccessFlags) {
        lock(&self.port.regions).insert(self.index, &self.region);
        let entry = self.port.mr_entry(self.index);
        let base = self.region.base().expose_provenance() as u64;
        entry.addr.store(self.addr, Ordering::Relaxed);
        (entry.shift).store(base.wrapping_sub(self.addr), Ordering::Relaxed);
        entry.length.store(self.region.length(), Ordering::Relaxed);
        entry.access.store(access.bits(), Ordering::Relaxed);
        let pages = self.region.shared_pages();
        let file = match (self.file, pages) {
            (Some(file), _) => file.into(),
            (None, Some(_)) => PROGRAM_PAGES,
            (None, None) => PROGRAM_MEMORY,
        };
        if let Some(PagesOf { fd, inode, offset }) = pages {
            entry.pages_fd.store(fd, Ordering::Relaxed);
            entry.pages_inode.store(inode, Ordering::Relaxed);
            entry.pages_offset.store(offset, Ordering::Relaxed);
        }
        entry.file.store(file, Ordering::Relaxed);
        entry.pd.store(pd, Ordering::Relaxed);
        entry.key.store(self.key, Ordering::Release);
    }

    /// Changes the protection domain, the access rights or both (`ibv_rereg_mr`). The keys and the memory stay.
    ///
    /// # Errors
    /// The domain belongs to another context, the access rights are invalid, or the process itself does not have
    /// them. The region is as before.
    pub fn change(
        &self,
        pd: Option<&SoftPd>,
        access: Option<AccessFlags>,
    ) -> Result<(), RegisterError> {
        let port = &self.port;
        if pd.is_some_and(|pd| !Arc::ptr_eq(&pd.handle.port, port)) {
            return Err(RegisterError::Foreign);
        }
        if let Some(access) = access {
            check(self.length(), access)?;
            self.check_program(access)?;
        }
        let entry = port.mr_entry(self.index);
        if let Some(access) = access {
            entry.access.store(access.bits(), Ordering::Release);
        }
        if let Some(pd) = pd {
            entry.pd.store(pd.number, Ordering::Release);
        }
        // Operations that peers began with the old rights end.
        port.quiesce_peers(self.timeout());
        Ok(())
    }

    /// Returns why other processes reach this memory of the program by its address; `None` if they map its pages, or if
    /// it was allocated with the region.
    pub fn why_not_shared(&self) -> Option<NotShared> {
        self.region.why_not_shared()
    }

    /// Whether memory windows are bound to it. Dropping it invalidates them.
    pub fn has_windows(&self) -> bool {
        self.port.has_windows(self.key)
    }

    /// Returns how long peers may take to end their operations. Memory of the program is used for something else
    /// afterwards, so a stopped peer must not write to it. A file of shared memory is not reused.
    fn timeout(&self) -> Duration {
        match &*self.region {
            LocalRegion::File(_) | LocalRegion::Null(_) => quiesce::TIMEOUT,
            _ => Duration::MAX,
        }
    }

    /// Checks that the program itself may access its memory like this.
    fn check_program(&self, access: AccessFlags) -> Result<(), RegisterError> {
        let LocalRegion::Program(_) = &*self.region else {
            return Ok(());
        };
        let addr = self.region.base().expose_provenance() as u64;
        let range = addr..addr + self.region.length();
        fault_in(&range, access).map_err(|source| RegisterError::Fault {
            addr,
            length: self.length(),
            access,
            source,
        })
    }

    fn check(&self, offset: u64, length: u64) -> Result<*mut u8, MemoryAccessError> {
        let end = offset.checked_add(length);
        if end.is_some_and(|end| end <= self.region.length()) {
            Ok(self.region.base().wrapping_add(offset as usize))
        } else {
            Err(MemoryAccessError {
                offset,
                length,
                region: self.length(),
            })
        }
    }
}

/// Checks what any region has to fulfil.
fn check(length: Bytes, access: AccessFlags) -> Result<(), RegisterError> {
    if length.get() == 0 || length > MAX_MR_SIZE {
        return Err(RegisterError::Length {
            length,
            max: MAX_MR_SIZE,
        });
    }
    if !access.is_consistent() {
        return Err(RegisterError::Access { access });
    }
    Ok(())
}

fn no_room(port: &Port, length: Bytes, source: io::Error) -> RegisterError {
    RegisterError::Memory {
        length,
        place: port.dir.path().display().to_string(),
        remedy: remedy(&port.dir, &source)
            .trim_start_matches("; ")
            .to_owned(),
        source,
    }
}

/// Creates a file and its mapping.
fn allocate(port: &Port, file: u32, length: Bytes) -> io::Result<Mapping> {
    let memory = port.dir.create(port.slot, &format!("m{file}"))?;
    reserve(&memory, 0, length.get())?;
    Mapping::new(&memory, length.get(), Population::Now)
}

/// Lets other processes of this user access the memory of this one, where the kernel otherwise reserves that for its
/// parents (Yama's `ptrace_scope` 1). Other kernels refuse the call.
fn admit_peers() {
    const ANY: libc::c_ulong = libc::c_ulong::MAX;
    // SAFETY: changes only who may trace this process.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, ANY) };
}

/// Returns a key for an index of the table. Its other bits are random, and those above the [`KEY_BYTE`] are not all 0.
pub(crate) fn key_of(index: u32) -> io::Result<u32> {
    loop {
        let key = random_u64()? as u32 & !KEY_INDEX | index << KEY_BYTE.count_ones();
        if key & !KEY_BYTE != 0 {
            return Ok(key);
        }
    }
}

impl Drop for SoftMr {
    fn drop(&mut self) {
        let port = &self.port;
        if port.is_inherited() {
            return;
        }
        port.mr_entry(self.index).key.store(0, Ordering::Release);
        port.unbind_windows_of(self.key);
        lock(&port.regions).remove(self.index);
        let is_idle = port.quiesce_peers(self.timeout());
        if let Some(file) = self.file {
            let name = format!("m{file}");
            // Peers keep their mapping of the file until they look for another region. Its pages are freed now,
            // unless a peer is in the middle of an operation.
            if is_idle && let Ok(file) = port.dir.open_peer(port.slot, &name) {
                let _ = release(&file, self.region.length());
            }
            port.dir.remove(port.slot, &name);
        }
        lock(&port.mr_indices).give(self.index);
    }
}

impl MemoryRegion for SoftMr {
    fn addr(&self) -> u64 {
        self.addr
    }

    fn length(&self) -> Bytes {
        Bytes::new(self.region.length())
    }

    fn lkey(&self) -> Lkey {
        Lkey(self.key)
    }

    fn rkey(&self) -> Rkey {
        Rkey(self.key)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), MemoryAccessError> {
        let source = self.check(offset, into.len() as u64)?;
        // SAFETY: `check` ensures that the source is in the region; `into` is exclusive.
        unsafe { std::ptr::copy(source, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), MemoryAccessError> {
        let target = self.check(offset, from.len() as u64)?;
        // SAFETY: `check` ensures that the target is in the region; `from` is readable.
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
        // SAFETY: `check` ensures that the byte is in the region; an atomic load may race with any writer.
        Ok(unsafe { (*byte.cast::<AtomicU8>()).load(Ordering::Acquire) })
    }

    fn words(&self) -> Option<&[AtomicU64]> {
        let words = self.length().as_usize() / size_of::<AtomicU64>();
        let first = self
            .check(0, (words * size_of::<AtomicU64>()) as u64)
            .ok()?;
        let first = first.cast::<AtomicU64>();
        // SAFETY: `check` ensures that the range is in the region, which stays mapped as long as `self` is borrowed; it is
        // aligned. Atomics may race with any writer.
        first
            .is_aligned()
            .then(|| unsafe { std::slice::from_raw_parts(first, words) })
    }

    #[inline]
    fn sge(&self, offset: u64, length: u32) -> Result<Sge<'_>, MemoryAccessError> {
        self.check(offset, length.into())?;
        // SAFETY: `check` ensures that the range is in the region, which lives as long as the borrow of `self`.
        Ok(unsafe { Sge::from_raw(self.addr + offset, length, Lkey(self.key)) })
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
    let entry = port.mr_entry(mr_index(key));
    let (addr, length) = (
        entry.addr.load(Ordering::Relaxed),
        entry.length.load(Ordering::Relaxed),
    );
    let access = AccessFlags::from_bits_retain(entry.access.load(Ordering::Relaxed));
    let offset = sge.addr().wrapping_sub(addr);
    let fits = offset <= length && u64::from(sge.length()) <= length - offset;
    let allowed = access.contains(need) && entry.pd.load(Ordering::Relaxed) == pd;
    let named = key != 0 && entry.key.load(Ordering::Acquire) == key;
    (named && fits && allowed).then(|| local_address(port, sge))
}

/// Returns the first byte of an SGE in this process. The SGE was checked, or the result must not be used.
#[inline]
pub(crate) fn local_address(port: &Port, sge: &Sge<'_>) -> *mut u8 {
    let entry = port.mr_entry(mr_index(sge.lkey().0));
    let addr = sge.addr().wrapping_add(entry.shift.load(Ordering::Relaxed));
    std::ptr::with_exposed_provenance_mut(addr as usize)
}
