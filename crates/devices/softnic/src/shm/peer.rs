//! The port of another process: its file, regions and channels, and whether it is alive.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Uid, getpid, pidfd_open};

use crate::program_memory::page_size;
use crate::shm::dir::Dir;
use crate::shm::layout::{
    self, CqEntry, Header, MrEntry, OwnerRequestEntry, PROGRAM_MEMORY, PROGRAM_PAGES, QpEntry,
    SrqEntry, mr_index,
};
use crate::shm::life;
use crate::shm::process::{self, CopyFailure, Direction, Pieces};
use crate::shm::segment::{Mapping, Population, Tables};
use crate::shm::sync::lock;

/// Completion channels that were opened, by number.
type Channels = HashMap<u32, File>;

/// A peer's mapped port.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) slot: u32,
    pub(crate) epoch: u64,
    pub(crate) pid: Pid,
    pub(crate) watch: PeerWatch,
    dir: Dir,
    /// Inode of the port file.
    inode: u64,
    mapping: Mapping,
    tables: Tables,
    wake: File,
    regions: Mutex<HashMap<u32, Arc<PeerRegion>>>,
    channels: Mutex<Channels>,
    dead: AtomicBool,
    /// Its regions of program memory are in another process.
    pub(crate) is_other_process: bool,
    /// The kernel does not let this process access the owner's memory.
    pub(crate) refuses_copies: AtomicBool,
    /// It knows that this port sends datagrams to it.
    is_announced: AtomicBool,
}

/// How the end of a peer's process is noticed.
#[derive(Debug)]
pub(crate) enum PeerWatch {
    /// A descriptor that is readable when the process has ended.
    Pidfd(OwnedFd),
    /// The port file, if there is no `pidfd_open`, as in Valgrind and before Linux 5.3: it is locked while the process
    /// lives.
    Lock(File),
}

/// A peer's mapped memory region.
#[derive(Debug)]
pub(crate) struct PeerRegion {
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) memory: PeerMemory,
}

/// How a peer's memory region is reached.
#[derive(Debug)]
pub(crate) enum PeerMemory {
    /// Its file is mapped; where the mapping has its first byte.
    File(Mapping, usize),
    /// It is memory of its owner's program. What has to be added to an address of a request.
    Program { shift: u64 },
    /// The same, and this process is the owner's.
    SameProcess { shift: u64 },
}

/// Why a region's memory cannot be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAccess {
    /// The region does not exist, or does not have the range or the rights: the request is at fault.
    Refused,
    /// This process lacks the descriptors or the memory to map it, which does not concern the peer.
    NoResources,
}

/// A place in a region, which the requester may access.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reached {
    /// It is mapped here.
    Here(*mut u8),
    /// It is not mapped in this process.
    Far(FarPlace),
}

/// A place in the memory of another process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarPlace {
    /// The region.
    pub(crate) key: u32,
    /// The address as requests name it.
    pub(crate) addr: u64,
    /// What has to be added to that to get the address in the owner's process.
    shift: u64,
}

impl PeerRegion {
    /// Returns where the byte is that requests name by `addr`. The region has the key `key`.
    #[inline]
    pub(crate) fn place(&self, key: u32, addr: u64) -> Reached {
        Reached::Here(match self.memory {
            PeerMemory::File(ref mapping, first) => {
                let offset = addr.wrapping_sub(self.addr) as usize;
                mapping.base().wrapping_add(first.wrapping_add(offset))
            }
            PeerMemory::Program { shift } => {
                return Reached::Far(FarPlace { key, addr, shift });
            }
            PeerMemory::SameProcess { shift } => {
                std::ptr::with_exposed_provenance_mut(addr.wrapping_add(shift) as usize)
            }
        })
    }
}

/// Why a peer's port cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error("no process of this user has this queue pair: cannot open port {slot} ({source})")]
    NotThere { slot: u32, source: io::Error },
    #[error("the process that had this queue pair (port {slot}) has ended")]
    Ended { slot: u32 },
    #[error("port {slot} was made by another version of Adverb; use one version on both sides")]
    Version { slot: u32 },
    #[error(
        "this process or the process of port {slot} has changed its user since it opened the device"
    )]
    OtherUser { slot: u32 },
    #[error("port {slot} belongs to another PID namespace, which the local port does not reach")]
    PidNamespace { slot: u32 },
    #[error("cannot watch the process of port {slot}: {source}")]
    Watch { slot: u32, source: PidfdError },
    #[error("port {slot}: {source}")]
    System { slot: u32, source: io::Error },
}

impl PeerError {
    /// Whether the slot may belong to a process that shares no memory with this one: of another user, with
    /// another directory, in another PID namespace, or of another version of Adverb. (After a process has
    /// ended, any other may take its slot.)
    pub(crate) fn is_unshared(&self) -> bool {
        !matches!(self, PeerError::Watch { .. } | PeerError::System { .. })
    }
}

/// `pidfd_open` failed, though the process may live.
#[derive(Debug, thiserror::Error)]
#[error("pidfd_open failed ({0}); {remedy}", remedy = self.remedy())]
pub(crate) struct PidfdError(#[from] pub(crate) Errno);

impl PidfdError {
    pub(crate) fn remedy(&self) -> &'static str {
        match self.0 {
            Errno::MFILE => "raise the maximum of open files of this process (ulimit -n)",
            Errno::NFILE => "raise fs.file-max (sysctl)",
            Errno::NOMEM => "free memory",
            _ => "in a container, allow pidfd_open in its seccomp profile",
        }
    }
}

/// Checks that the kernel lets this process watch others. Without `pidfd_open` it watches their locks.
pub(crate) fn check_pidfd() -> Result<(), PidfdError> {
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) | Err(Errno::NOSYS) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

impl Peer {
    /// Maps the port of `slot`. `namespace` is the PID namespace of this process.
    pub(crate) fn open(dir: &Dir, slot: u32, namespace: u64) -> Result<Self, PeerError> {
        let system = |source| PeerError::System { slot, source };
        let file = dir.open_peer(slot, "port").map_err(|e| match e.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied => {
                PeerError::NotThere { slot, source: e }
            }
            _ => system(e),
        })?;
        let meta = file.metadata().map_err(system)?;
        let length = meta.len();
        if length != layout::LENGTH as u64 {
            return Err(PeerError::Version { slot });
        }
        let mapping = Mapping::new(&file, length, Population::Lazy).map_err(system)?;
        let header: &Header = mapping.at(0);
        if header.magic.load(Ordering::Acquire) != layout::MAGIC {
            return Err(PeerError::Version { slot });
        }
        if header.pid_namespace.load(Ordering::Relaxed) != namespace {
            return Err(PeerError::PidNamespace { slot });
        }
        let pid = Pid::from_raw(header.pid.load(Ordering::Relaxed) as i32)
            .ok_or(PeerError::Version { slot })?;
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Some(pidfd),
            Err(Errno::NOSYS) => None,
            Err(Errno::SRCH) => return Err(PeerError::Ended { slot }),
            Err(e) => {
                let source = e.into();
                return Err(PeerError::Watch { slot, source });
            }
        };
        // The port file is still locked, so the process of the pidfd is the owner and not a later process with
        // its PID.
        if !Dir::is_alive(&file) {
            return Err(PeerError::Ended { slot });
        }
        let watch = pidfd.map_or(PeerWatch::Lock(file), PeerWatch::Pidfd);
        let wake = dir.open_fifo(slot, "wake").map_err(system)?;
        // SAFETY: the peer owns both, and the tables are only lent by borrowing the peer.
        let tables = unsafe { Tables::of(&mapping) };
        Ok(Peer {
            slot,
            epoch: header.epoch.load(Ordering::Relaxed),
            pid,
            watch,
            dir: dir.clone(),
            inode: meta.ino(),
            mapping,
            tables,
            wake,
            regions: Mutex::default(),
            channels: Mutex::default(),
            dead: AtomicBool::new(false),
            is_other_process: pid != getpid(),
            refuses_copies: AtomicBool::new(false),
            is_announced: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Whether the program that opened the port is ending or has ended, without closing it. Other threads than its engine
    /// may still be in the middle of an operation.
    pub(crate) fn has_ended(&self) -> bool {
        let header: &Header = self.mapping.at(0);
        // A port that is being closed clears its magic number before its engine ends.
        life::has_ended(&header.engine) && !self.has_left()
    }

    /// Whether the program has ended without closing the port, so that no thread of it runs any more. This finds what no
    /// descriptor reports: `execve`, and any end if there is no `pidfd_open`.
    pub(crate) fn is_gone(&self) -> bool {
        let is_unlocked = match &self.watch {
            PeerWatch::Lock(file) => !Dir::is_alive(file),
            PeerWatch::Pidfd(_) => false,
        };
        // The kernel releases the lock of the port file after all threads have ended.
        (is_unlocked || self.has_ended()) && self.dir.owner(self.slot) != Some(self.inode)
    }

    /// Whether it can still be used: its program runs, and has not closed the port.
    pub(crate) fn is_usable(&self) -> bool {
        !self.is_dead() && !self.has_left() && !self.has_ended()
    }

    /// Whether it closed its port. Its slot may have another owner then.
    pub(crate) fn has_left(&self) -> bool {
        let header: &Header = self.mapping.at(0);
        header.magic.load(Ordering::Acquire) != layout::MAGIC
    }

    /// Whether the owner had this effective user when it last made or connected a queue pair.
    pub(crate) fn has_user(&self, user: Uid) -> bool {
        let header: &Header = self.mapping.at(0);
        header.user.load(Ordering::Relaxed) == user.as_raw()
    }

    /// Whether the owner still runs the program that opened the port, as far as is known now.
    #[inline]
    pub(crate) fn lives(&self) -> bool {
        let header: &Header = self.mapping.at(0);
        life::runs(&header.engine) && !self.is_dead()
    }

    /// Copies all pieces to or from the memory of the owner's program.
    pub(crate) fn copy(
        &self,
        direction: Direction,
        pieces: &mut Pieces,
        place: FarPlace,
    ) -> Result<(), CopyFailure> {
        // After the owner has ended, another process may have its number.
        if !self.lives() {
            return Err(CopyFailure::Gone);
        }
        if self.refuses_copies.load(Ordering::Relaxed) {
            return Err(CopyFailure::Refused);
        }
        let at = place.addr.wrapping_add(place.shift);
        // SAFETY: the caller checked keys and rights of both sides.
        let copied = unsafe { process::copy(self.pid, direction, pieces, at) };
        if copied == Err(CopyFailure::Refused) {
            self.refuses_copies.store(true, Ordering::Relaxed);
        }
        // If it lives now, it lived during the copy.
        if self.lives() {
            copied
        } else {
            Err(CopyFailure::Gone)
        }
    }

    /// Returns the owner request of the port in `slot`.
    pub(crate) fn owner_request(&self, slot: u32) -> &OwnerRequestEntry {
        self.tables.owner_requests.at(slot)
    }

    /// Tells the owner that the port in `slot` has a request for it.
    pub(crate) fn call(&self, slot: u32) {
        let header: &Header = self.mapping.at(0);
        let bits = &header.owner_requests.0[(slot / u64::BITS) as usize];
        bits.fetch_or(1 << (slot % u64::BITS), Ordering::AcqRel);
        self.wake();
    }

    pub(crate) fn mark_dead(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Tells the peer's engine, once, that the port in `slot`, whose owner has `epoch`, sends datagrams to it.
    /// If that owner dies, the engine has to reclaim the cells that it held.
    pub(crate) fn announce(&self, slot: u32, epoch: u64) {
        if self.epoch == epoch || self.is_announced.load(Ordering::Relaxed) {
            return;
        }
        let entry = self.tables.senders.at(slot);
        entry.epoch.store(epoch, Ordering::SeqCst);
        self.wake();
        self.is_announced.store(true, Ordering::Relaxed);
    }

    /// Returns a queue pair's entry. `None` if the index exceeds the table.
    pub(crate) fn qp_entry(&self, index: u32) -> Option<&QpEntry> {
        self.tables.qps.get(index)
    }

    /// After a `quiesce::barrier`: waits until queue pair `index` of the peer has ended the operation that may be in
    /// flight. Returns false if it does not end within `timeout`.
    pub(crate) fn wait_idle(&self, index: u32, timeout: Duration) -> bool {
        self.qp_entry(index)
            .is_none_or(|entry| entry.requester.busy.wait_idle(timeout, || self.is_dead()))
    }

    /// Returns a completion queue's entry. `None` if the index exceeds the table.
    pub(crate) fn cq_entry(&self, index: u32) -> Option<&CqEntry> {
        self.tables.cqs.get(index)
    }

    /// Returns a shared receive queue's entry. `None` if the index exceeds the table.
    pub(crate) fn srq_entry(&self, index: u64) -> Option<&SrqEntry> {
        self.tables.srqs.get(u32::try_from(index).ok()?)
    }

    /// Returns the entry at the index of `key`. The caller has to compare the entry's key.
    #[inline]
    pub(crate) fn mr_entry(&self, key: u32) -> &MrEntry {
        self.tables.mrs.at(mr_index(key))
    }

    /// Returns the address of `length` bytes at `offset` of the port file. `None` if they are not within it.
    pub(crate) fn address(&self, offset: u64, length: u64) -> Option<*mut u8> {
        let end = offset.checked_add(length)?;
        (end <= self.mapping.length() as u64 && offset.is_multiple_of(64))
            .then(|| self.mapping.base().wrapping_add(offset as usize))
    }

    /// Wakes the peer's engine.
    pub(crate) fn wake(&self) {
        // If the FIFO is full, the engine has been woken already; if it is broken, the peer is dead. A thread cannot be
        // cancelled in it, unlike in the C library's write.
        let _ = rustix::io::write(&self.wake, &[0]);
    }

    /// Opens completion channel `channel` of the peer, unless it is open.
    pub(crate) fn open_channel(&self, channel: u32) -> io::Result<MutexGuard<'_, Channels>> {
        let mut channels = lock(&self.channels);
        if !channels.contains_key(&channel) {
            // The peer removes the name of a channel that it destroys.
            channels.retain(|_, fifo| fifo.metadata().is_ok_and(|meta| meta.nlink() > 0));
            let fifo = self.dir.open_fifo(self.slot, &format!("c{channel}"))?;
            channels.insert(channel, fifo);
        }
        Ok(channels)
    }

    /// Writes a completion event to channel `channel` of the peer.
    pub(crate) fn raise(&self, channel: u32, cq: u32) -> io::Result<()> {
        let channels = self.open_channel(channel)?;
        let fifo = &channels[&channel];
        // So few bytes are written at once, or not at all.
        rustix::io::retry_on_intr(|| rustix::io::write(fifo, &cq.to_ne_bytes()))?;
        Ok(())
    }

    /// Returns the region with this key and maps it at first use.
    pub(crate) fn region(&self, key: u32) -> Result<Arc<PeerRegion>, NoAccess> {
        let mut regions = lock(&self.regions);
        if let Some(region) = regions.get(&key) {
            return Ok(region.clone());
        }
        regions.retain(|key, _| self.mr_entry(*key).key.load(Ordering::Acquire) == *key);
        let region = Arc::new(self.map_region(key)?);
        regions.insert(key, region.clone());
        Ok(region)
    }

    fn map_region(&self, key: u32) -> Result<PeerRegion, NoAccess> {
        let entry = self.mr_entry(key);
        if key == 0 || entry.key.load(Ordering::Acquire) != key || entry.is_window() {
            return Err(NoAccess::Refused);
        }
        let (addr, length) = (
            entry.addr.load(Ordering::Relaxed),
            entry.length.load(Ordering::Relaxed),
        );
        let shift = entry.shift.load(Ordering::Relaxed);
        let memory = match entry.file.load(Ordering::Relaxed) {
            PROGRAM_MEMORY if self.is_other_process => PeerMemory::Program { shift },
            PROGRAM_PAGES if self.is_other_process => match self.map_pages(entry, length) {
                Some((mapping, first)) => PeerMemory::File(mapping, first),
                None => PeerMemory::Program { shift },
            },
            PROGRAM_MEMORY | PROGRAM_PAGES => PeerMemory::SameProcess { shift },
            file => PeerMemory::File(self.map_file(file, length)?, 0),
        };
        // If the entry was reused for another region while it was read, its key has changed.
        if entry.key.load(Ordering::Acquire) != key {
            return Err(NoAccess::Refused);
        }
        Ok(PeerRegion {
            addr,
            length,
            memory,
        })
    }

    /// Maps shared pages of the owner's program; returns where the mapping has the region's first byte. `None` if the owner
    /// has closed their file, or the kernel does not let this process open it: then they are reached by address.
    fn map_pages(&self, entry: &MrEntry, length: u64) -> Option<(Mapping, usize)> {
        let fd = entry.pages_fd.load(Ordering::Relaxed);
        let inode = entry.pages_inode.load(Ordering::Relaxed);
        let offset = entry.pages_offset.load(Ordering::Relaxed);
        let pid = self.pid.as_raw_nonzero();
        let path = format!("/proc/{pid}/fd/{fd}");
        // The program may have closed the descriptor and opened something else.
        let is_it = |meta: &Metadata| {
            let end = offset.checked_add(length);
            let contains = end.is_some_and(|end| end <= meta.len());
            meta.is_file() && meta.ino() == inode && contains
        };
        if !std::fs::metadata(&path).is_ok_and(|meta| is_it(&meta)) {
            return None;
        }
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        let mut how = File::options();
        let file = how.read(true).write(true).custom_flags(flags).open(&path);
        let file = file.ok()?;
        let first = offset % page_size();
        let whole = first + length;
        if !file.metadata().is_ok_and(|meta| is_it(&meta)) || !self.lives() {
            return None;
        }
        let mapping = Mapping::part(&file, offset - first, whole, Population::Now).ok()?;
        Some((mapping, first as usize))
    }

    fn map_file(&self, number: u64, length: u64) -> Result<Mapping, NoAccess> {
        let failed = |e: io::Error| match e.kind() {
            // The region was deregistered just now, or this process has changed its user.
            ErrorKind::NotFound | ErrorKind::PermissionDenied => NoAccess::Refused,
            _ => NoAccess::NoResources,
        };
        let file = self.dir.open_peer(self.slot, &format!("m{number}"));
        let file = file.map_err(failed)?;
        // The file must contain the whole region, or an access would fault.
        if length > file.metadata().map_err(failed)?.len() {
            return Err(NoAccess::Refused);
        }
        Mapping::new(&file, length, Population::Now).map_err(failed)
    }
}

/// Returns the inode of this process's PID namespace, or 0 if /proc does not show it.
pub(crate) fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino())
}
