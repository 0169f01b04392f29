//! Another process's port, seen from here: its file, its regions, its channels, its life.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::shm::dir::Dir;
use crate::shm::layout::{self, CqEntry, Header, MAX_MR, MrEntry, QpEntry, SrqEntry};
use crate::shm::segment::{Mapping, Population, Tables};
use crate::shm::sync::lock;

/// A peer's port, mapped.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) slot: u32,
    pub(crate) epoch: u64,
    pub(crate) pid: Pid,
    /// Readable when the process has ended.
    pub(crate) pidfd: OwnedFd,
    dir: Dir,
    mapping: Mapping,
    tables: Tables,
    wake: File,
    regions: Mutex<HashMap<u32, Arc<PeerRegion>>>,
    channels: Mutex<HashMap<u32, File>>,
    dead: AtomicBool,
    /// It knows that this port sends to it.
    is_announced: AtomicBool,
}

/// A peer's memory region, mapped.
#[derive(Debug)]
pub(crate) struct PeerRegion {
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) access: u32,
    pub(crate) pd: u32,
    pub(crate) mapping: Mapping,
}

/// Why a peer's port cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    #[error("no process of this user has this queue pair: port {slot} is not there ({source})")]
    NotThere { slot: u32, source: io::Error },
    #[error("the process that had this queue pair (port {slot}) has ended")]
    Ended { slot: u32 },
    #[error("port {slot} was made by another version of Adverb; use one version on both sides")]
    Version { slot: u32 },
    #[error("port {slot} belongs to another PID namespace, which the local port does not reach")]
    PidNamespace { slot: u32 },
    #[error("port {slot}: {source}")]
    System { slot: u32, source: io::Error },
}

impl PeerError {
    /// Whether the slot may be that of a process with which no memory is shared: one of another user,
    /// of another directory, of another PID namespace, or of another version of Adverb. (A process of
    /// ours that has ended leaves its slot to whoever comes.)
    pub(crate) fn is_of_a_stranger(&self) -> bool {
        !matches!(self, PeerError::System { .. })
    }
}

impl Peer {
    /// Maps the port of `slot`.
    pub(crate) fn open(dir: &Dir, slot: u32) -> Result<Self, PeerError> {
        let system = |source| PeerError::System { slot, source };
        let file = dir
            .open_peer(slot, "port")
            .map_err(|source| PeerError::NotThere { slot, source })?;
        let length = file.metadata().map_err(system)?.len();
        if length != layout::LENGTH as u64 {
            return Err(PeerError::Version { slot });
        }
        let mapping = Mapping::new(&file, length, Population::Lazy).map_err(system)?;
        let header: &Header = mapping.at(0);
        if header.magic.load(Ordering::Acquire) != layout::MAGIC {
            return Err(PeerError::Version { slot });
        }
        if header.pid_namespace.load(Ordering::Relaxed) != pid_namespace() {
            return Err(PeerError::PidNamespace { slot });
        }
        let pid = Pid::from_raw(header.pid.load(Ordering::Relaxed) as i32)
            .ok_or(PeerError::Version { slot })?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| PeerError::Ended { slot })?;
        // The lock tells that the process behind the pidfd is the owner and no later one.
        if !Dir::is_alive(&file) {
            return Err(PeerError::Ended { slot });
        }
        let wake = dir.open_fifo(slot, "wake").map_err(system)?;
        // SAFETY: both live in the peer, and the tables are lent only by borrowing it.
        let tables = unsafe { Tables::of(&mapping) };
        Ok(Peer {
            slot,
            epoch: header.epoch.load(Ordering::Relaxed),
            pid,
            pidfd,
            dir: dir.clone(),
            mapping,
            tables,
            wake,
            regions: Mutex::default(),
            channels: Mutex::default(),
            dead: AtomicBool::new(false),
            is_announced: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Whether it closed its port: its slot may have another owner by now.
    pub(crate) fn has_left(&self) -> bool {
        let header: &Header = self.mapping.at(0);
        header.magic.load(Ordering::Acquire) != layout::MAGIC
    }

    pub(crate) fn mark_dead(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Tells the peer's engine, once, that the port in `slot`, whose owner has `epoch`, sends
    /// datagrams to it, and may die with some of its cells in hand.
    pub(crate) fn announce(&self, slot: u32, epoch: u64) {
        if self.epoch == epoch || self.is_announced.load(Ordering::Relaxed) {
            return;
        }
        let entry = self.tables.senders.at(slot);
        entry.epoch.store(epoch, Ordering::SeqCst);
        self.wake();
        self.is_announced.store(true, Ordering::Relaxed);
    }

    /// A queue pair's entry; none where the index is beyond the table.
    pub(crate) fn qp_entry(&self, index: u32) -> Option<&QpEntry> {
        self.tables.qps.get(index)
    }

    /// After a `quiesce::barrier`: waits until the operation that queue pair `index` of the peer may
    /// be in the middle of has ended. False where it does not within `patience`.
    pub(crate) fn wait_idle(&self, index: u32, patience: Duration) -> bool {
        self.qp_entry(index)
            .is_none_or(|entry| entry.requester.busy.wait_idle(patience, || self.is_dead()))
    }

    /// A completion queue's entry; none where the index is beyond the table.
    pub(crate) fn cq_entry(&self, index: u32) -> Option<&CqEntry> {
        self.tables.cqs.get(index)
    }

    /// A shared receive queue's entry; none where the index is beyond the table.
    pub(crate) fn srq_entry(&self, index: u64) -> Option<&SrqEntry> {
        self.tables.srqs.get(u32::try_from(index).ok()?)
    }

    /// The entry of the region that `key` would have.
    #[inline]
    pub(crate) fn mr_entry(&self, key: u32) -> &MrEntry {
        self.tables.mrs.at(key & (MAX_MR - 1))
    }

    /// Address of `length` bytes at `offset` of the port file; none where they lie outside.
    pub(crate) fn address(&self, offset: u64, length: u64) -> Option<*mut u8> {
        let end = offset.checked_add(length)?;
        (end <= self.mapping.length() as u64 && offset.is_multiple_of(64))
            .then(|| self.mapping.base().wrapping_add(offset as usize))
    }

    /// Wakes the peer's engine.
    pub(crate) fn wake(&self) {
        // Full: it is about to wake anyway. Broken: it is dead, which its pidfd tells.
        let _ = (&self.wake).write(&[0]);
    }

    /// Writes a completion event to channel `channel` of the peer.
    pub(crate) fn raise(&self, channel: u32, cq: u32) -> io::Result<()> {
        let mut channels = lock(&self.channels);
        let fifo = match channels.entry(channel) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                new.insert(self.dir.open_fifo(self.slot, &format!("c{channel}"))?)
            }
        };
        (&*fifo).write_all(&cq.to_ne_bytes())
    }

    /// The region that `key` names, mapped at first use; none where there is no such region.
    pub(crate) fn region(&self, key: u32) -> Option<Arc<PeerRegion>> {
        let mut regions = lock(&self.regions);
        if let Some(region) = regions.get(&key) {
            return Some(region.clone());
        }
        regions.retain(|key, _| self.mr_entry(*key).key.load(Ordering::Acquire) == *key);
        let region = Arc::new(self.map_region(key)?);
        regions.insert(key, region.clone());
        Some(region)
    }

    fn map_region(&self, key: u32) -> Option<PeerRegion> {
        let entry = self.mr_entry(key);
        if key == 0 || entry.key.load(Ordering::Acquire) != key {
            return None;
        }
        let (addr, length) = (
            entry.addr.load(Ordering::Relaxed),
            entry.length.load(Ordering::Relaxed),
        );
        let (access, pd) = (
            entry.access.load(Ordering::Relaxed),
            entry.pd.load(Ordering::Relaxed),
        );
        let name = format!("m{}", entry.file.load(Ordering::Relaxed));
        let file = self.dir.open_peer(self.slot, &name).ok()?;
        // The entry may have been given to another region meanwhile: then its key has changed.
        // The file must hold the whole region, or touching it would fault.
        let same = entry.key.load(Ordering::Acquire) == key;
        if !same || length > file.metadata().ok()?.len() {
            return None;
        }
        let mapping = Mapping::new(&file, length, Population::Now).ok()?;
        Some(PeerRegion {
            addr,
            length,
            access,
            pd,
            mapping,
        })
    }
}

/// Returns the inode of this process's PID namespace, or 0 if /proc does not tell it.
pub(crate) fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino())
}
