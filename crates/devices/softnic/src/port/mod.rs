//! The port of this process: its shared file, its tables, its objects and its peers.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use adverb_verbs::{AsyncEvent, Gid, OpenError, PathMtu, SrqId, open_files_remedy};
use rustix::process::{Uid, geteuid};
use spin::mutex::SpinMutex;

use crate::shm::arena::Arena;
use crate::shm::datagram_ring::Holder;
use crate::shm::dir::{Claim, Dir, DirPath};
use crate::shm::fork::{Process, Withheld};
use crate::shm::indices::Indices;
use crate::shm::layout::{
    self, ACTIVE_MTU, FIRST_QP, Header, MAX_CQ, MAX_MR, MAX_QP, MAX_SRQ, MrEntry,
};
use crate::shm::null_space::NullRegions;
use crate::shm::peer::{Peer, pid_namespace};
use crate::shm::regions::{LocalRegion, RegionTable, Windows};
use crate::shm::segment::{Mapping, Population, Table, Tables, reserve};
use crate::shm::sync::lock;
use crate::shm::tasks::{Tasks, Wake};
use crate::udp::{self, Bound, Progress, Udp, UdpAddress};

mod events;
mod peers;
mod storage;

use events::AsyncEvents;
pub(crate) use peers::SenderWatch;
pub(crate) use storage::TableEntry;

/// A queue pair, as its port and the engine see it.
pub(crate) trait PortQp: fmt::Debug + Send + Sync {
    /// Before this process sleeps: asks the peer to wake this side's engine when it posts a receive.
    fn ask_for_wake(&self);

    /// Tries to carry out the requests that wait, oldest first. Returns whether some still wait.
    fn drive(&self) -> bool;

    /// Reclaims the cells that dead senders held in a UD queue pair's receive queue, or in its shared one.
    fn reclaim_datagrams(&self, is_dead: &dyn Fn(Holder) -> bool);

    /// Returns the connected peer and the index of its queue pair, if it is reached over shared memory.
    fn connected_peer(&self) -> Option<(Arc<Peer>, u32)>;

    /// Wakes its peer's engine, if that waits for a receive and this queue pair takes receives from `srq`.
    fn receive_posted(&self, srq: SrqId);

    /// Whether there are completions that were not polled, of messages that have arrived or of send requests.
    fn has_unpolled_completions(&self) -> bool;

    /// Takes what the peer reported: its first request, or that this side's memory or its own requests are at fault,
    /// which moves the queue pair to the error state.
    fn take_reports(&self);

    fn is_connected_to(&self, peer: &Arc<Peer>) -> bool;

    /// Ends the requests to a dead peer. RC: the oldest one has exceeded its retries, the others are flushed, and so
    /// are the receives, unless the peer closed its device and no request is outstanding.
    /// UC does not notice its peer's death.
    fn fail_for_dead_peer(&self);
}

/// A shared receive queue, as its port sees it.
pub(crate) trait PortSrq: fmt::Debug + Send + Sync {
    /// Takes datagrams that have arrived.
    fn take_datagrams(&self);

    /// Takes the event that the queue's limit was reached, if it was.
    fn take_limit_event(&self) -> Option<AsyncEvent>;

    /// Whether an event is due when the queue's limit is reached.
    fn has_limit(&self) -> bool;
}

/// Everything that a context's objects share.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) dir: Dir,
    pub(crate) slot: u32,
    pub(crate) epoch: u64,
    pub(crate) gid: Gid,
    /// The UDP port, if the device was opened with an address.
    pub(crate) udp: Option<Udp>,
    /// The process that opened it. A child may have inherited it.
    process: Process,
    /// The effective user who opened it.
    user: Uid,
    _withheld: [Withheld; 2],
    /// The port file, locked while the process lives.
    file: Arc<File>,
    mapping: Mapping,
    tables: Tables,
    arena: Mutex<Arena>,
    /// Datagram rings of destroyed UD queue pairs, by the size of their queue. Late senders may still write to
    /// them, so they are only reused as datagram rings.
    datagram_blocks: Mutex<HashMap<usize, Vec<Range<u64>>>>,
    pub(crate) qp_indices: Mutex<Indices>,
    pub(crate) cq_indices: Mutex<Indices>,
    pub(crate) mr_indices: Mutex<Indices>,
    pub(crate) srq_indices: Mutex<Indices>,
    /// The next number for a region's or channel's file, or a protection domain. Numbers are never reused.
    serial: AtomicU32,
    pub(crate) qps: Mutex<HashMap<u32, Arc<dyn PortQp>>>,
    pub(crate) regions: Mutex<RegionTable>,
    pub(crate) null_regions: NullRegions,
    /// Locked before the regions.
    pub(crate) windows: Mutex<Windows>,
    pub(crate) srqs: Mutex<HashMap<u32, Weak<dyn PortSrq>>>,
    events: AsyncEvents,
    /// The mapped ports. Earlier owners of a slot stay until the engine has handled their death.
    peers: Mutex<Vec<Arc<Peer>>>,
    /// Operations that had not ended when their queue pair was destroyed: the peer, and the index of its queue pair.
    unended: Mutex<Vec<(Arc<Peer>, u32)>>,
    /// Queue pairs whose oldest request waits for the peer.
    pub(crate) pending: SpinMutex<Vec<Arc<dyn PortQp>>>,
    /// Their number, which each poll reads.
    pub(crate) pending_count: AtomicUsize,
    /// Number of drives by pollers. While it increases, the engine does not drive.
    pub(crate) drives: AtomicU64,
    pub(crate) wake: Wake,
    pub(crate) tasks: Tasks,
    pub(crate) closing: AtomicBool,
    /// Its files were removed.
    is_released: AtomicBool,
    /// Where in the port file the bytes of this process's outstanding owner request are.
    pub(crate) owner_request_buffer: Mutex<Option<Range<u64>>>,
    /// Held while owner requests of peers are carried out.
    pub(crate) carrying_out: Mutex<()>,
    /// How tests reach private memory of this process.
    #[cfg(feature = "testing")]
    pub(crate) private_reach: std::sync::OnceLock<PrivateReach>,
}

/// How private memory is reached from this process: for tests, as if it were in another process.
#[cfg(feature = "testing")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivateReach {
    /// By its address.
    Directly,
    /// By system calls.
    BySystemCall,
    /// By requests to its owner's engine.
    ByOwner,
}

/// The GID of a port without a UDP port.
const LOCALHOST: Gid = Gid::from_ipv4(std::net::Ipv4Addr::LOCALHOST);

/// Returns the error if no slot is free.
fn no_free_slot(at: Option<UdpAddress>) -> OpenError {
    if let Some(at) = at {
        return at.all_taken();
    }
    OpenError::Unavailable {
        device: "soft".into(),
        reason: format!("all {} ports of this user are in use", layout::MAX_SLOTS),
        remedy: "end a process that uses Adverb".into(),
    }
}

impl Port {
    /// Claims a slot and initializes its file.
    pub(crate) fn open(path: &DirPath, at: Option<UdpAddress>) -> Result<Self, OpenError> {
        let claimed = match at {
            None => path.claim(|_| Ok(Some(None)))?,
            Some(at) => path.claim(|slot| Ok(at.bind(slot)?.map(Some)))?,
        };
        let Claim {
            dir,
            slot,
            file,
            held,
        } = claimed.ok_or_else(|| no_free_slot(at))?;
        // The file stays open, and thus locked, until the slot is released. Otherwise another process could
        // claim the slot before.
        let file = Arc::new(file);
        let made = Self::lay_out(&dir, slot, file.clone(), held);
        made.map_err(|source| {
            dir.release(slot);
            let action = format!("make a port in {}", dir.path().display());
            let explained = format!("{source}{}", remedy(&dir, &source));
            OpenError::System {
                device: "soft".into(),
                action,
                source: io::Error::new(source.kind(), explained),
            }
        })
    }

    fn lay_out(dir: &Dir, slot: u32, file: Arc<File>, bound: Option<Bound>) -> io::Result<Self> {
        file.set_len(layout::LENGTH as u64)?;
        reserve(&file, 0, layout::QP_TABLE as u64)?;
        // Another open file than the locked one: children inherit the mapping, and would keep the lock with it.
        let mapped = dir.open_peer(slot, "port")?;
        let mapping = Mapping::new(&mapped, layout::LENGTH as u64, Population::Lazy)?;
        let wake = Wake::create(dir, slot)?;
        let epoch = random_u64()?;
        let user = geteuid();
        announce(mapping.at(0), epoch, user);
        // SAFETY: both live in the port, and the tables are lent only by borrowing it.
        let tables = unsafe { Tables::of(&mapping) };
        // Packets to an earlier process with this address may still be in flight. With a random first index
        // they hardly ever match a queue pair of this process.
        let qp_indices = match bound {
            None => Indices::new(FIRST_QP..MAX_QP),
            Some(_) => Indices::beginning_at(FIRST_QP..MAX_QP, random_u64()?),
        };
        Ok(Port {
            dir: dir.clone(),
            slot,
            epoch,
            gid: bound.as_ref().map_or(LOCALHOST, Bound::gid),
            udp: bound.map(Udp::new),
            process: Process::current(),
            user,
            _withheld: [
                Withheld::new(file.as_fd()),
                Withheld::new(wake.fifo.as_fd()),
            ],
            file,
            mapping,
            tables,
            arena: Mutex::new(Arena::new(layout::ARENA as u64..layout::LENGTH as u64)),
            datagram_blocks: Mutex::default(),
            qp_indices: Mutex::new(qp_indices),
            cq_indices: Mutex::new(Indices::new(0..MAX_CQ)),
            mr_indices: Mutex::new(Indices::new(0..MAX_MR)),
            srq_indices: Mutex::new(Indices::new(0..MAX_SRQ)),
            serial: AtomicU32::new(0),
            qps: Mutex::default(),
            regions: Mutex::default(),
            null_regions: NullRegions::default(),
            windows: Mutex::default(),
            srqs: Mutex::default(),
            events: AsyncEvents::default(),
            peers: Mutex::default(),
            unended: Mutex::default(),
            pending: SpinMutex::default(),
            pending_count: AtomicUsize::new(0),
            drives: AtomicU64::new(0),
            wake,
            tasks: Tasks::default(),
            closing: AtomicBool::new(false),
            is_released: AtomicBool::new(false),
            owner_request_buffer: Mutex::default(),
            carrying_out: Mutex::default(),
            #[cfg(feature = "testing")]
            private_reach: std::sync::OnceLock::new(),
        })
    }

    /// Returns a number that this port has not returned before.
    pub(crate) fn next_serial(&self) -> u32 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether this process inherited the port by a fork. Then it must not change anything that the owner shares.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process.is_parent()
    }

    /// Returns how processes reach each other's program memory, if this one has registered some.
    pub(crate) fn way_to_program_memory(&self) -> Option<&'static str> {
        let regions = lock(&self.regions);
        regions.program_memory().next()?;
        let is_shared = |region: &LocalRegion| region.shared_pages().is_some();
        if regions.program_memory().all(is_shared) {
            return Some("mapped: its pages were shared when it was registered");
        }
        drop(regions);
        let refuses = |peer: &Arc<Peer>| peer.refuses_copies.load(Ordering::Relaxed);
        Some(if self.peers().iter().any(refuses) {
            "the owner's engine, because the kernel refuses process_vm_readv"
        } else {
            "process_vm_readv and process_vm_writev; atomics by the owner's engine"
        })
    }

    /// Reclaims the cells that dead senders held in the receive queues for datagrams.
    pub(crate) fn reclaim_datagrams(&self, is_dead: impl Fn(Holder) -> bool) {
        let qps = self.queue_pairs();
        qps.iter().for_each(|qp| qp.reclaim_datagrams(&is_dead));
    }

    pub(crate) fn queue_pairs(&self) -> Vec<Arc<dyn PortQp>> {
        lock(&self.qps).values().cloned().collect()
    }

    /// Returns the MTU, which is also the maximum size of a datagram.
    pub(crate) fn mtu(&self) -> PathMtu {
        self.udp.as_ref().map_or(ACTIVE_MTU, |udp| udp.mtu)
    }

    /// Whether a queue pair is connected over UDP, so that the UDP port has to be driven.
    #[inline]
    pub(crate) fn uses_udp(&self) -> bool {
        self.udp.as_ref().is_some_and(Udp::is_used)
    }

    /// Whether even peers that share its memory are reached over UDP.
    pub(crate) fn uses_udp_for_all(&self) -> bool {
        self.udp.as_ref().is_some_and(Udp::carries_all)
    }

    /// Drives the UDP port from a polling thread. `None` if another thread is driving it.
    #[inline]
    pub(crate) fn drive_udp(&self) -> Option<Progress> {
        let udp = self.udp.as_ref()?;
        udp.drive(self)
    }

    /// Whether a queue pair waits for its peer.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        self.pending_count.load(Ordering::Relaxed) != 0
    }

    /// Tries to carry out the requests that wait for a peer. Called by polling threads, otherwise by the engine.
    #[cold]
    pub(crate) fn drive(&self) {
        self.drives.fetch_add(1, Ordering::Relaxed);
        let Some(mut pending) = self.pending.try_lock() else {
            return;
        };
        pending.retain(|qp| qp.drive());
        self.pending_count.store(pending.len(), Ordering::Relaxed);
    }

    /// Before this process sleeps: asks peers to wake its engine when they post a receive.
    pub(crate) fn prepare_to_sleep(&self) {
        if self.has_pending() {
            // A send queue is locked before the list, so it must not be locked while the list is.
            let waiting = self.pending.lock().clone();
            waiting.iter().for_each(|qp| qp.ask_for_wake());
            self.drive();
        }
    }

    /// Adds a queue pair whose request has to wait. The caller holds the lock of its send queue.
    pub(crate) fn add_pending(&self, qp: Arc<dyn PortQp>) {
        let mut pending = self.pending.lock();
        if !pending.iter().any(|p| Arc::ptr_eq(p, &qp)) {
            pending.push(qp);
        }
        self.pending_count.store(pending.len(), Ordering::Relaxed);
        drop(pending);
        self.wake.watch();
    }
}

impl udp::Host for Port {
    fn regions(&self) -> (&Mutex<RegionTable>, &Table<MrEntry>) {
        (&self.regions, &self.tables.mrs)
    }

    fn wake(&self) -> &Wake {
        &self.wake
    }

    fn listener(&self, service: u64) -> Option<u16> {
        let slot = self.dir.listener(service);
        slot.filter(|slot| *slot != self.slot).map(udp::udp_port)
    }

    fn tasks(&self) -> &Tasks {
        &self.tasks
    }
}

impl Port {
    /// Makes peers find that the port is closed. It precedes the end of the engine, which alone means the end of the program.
    pub(crate) fn mark_left(&self) {
        let header: &Header = self.mapping.at(0);
        header.magic.store(0, Ordering::Release);
    }

    /// Removes the port's files, once. Peers that have mapped them find that the slot may have another owner.
    pub(crate) fn release(&self) {
        if !self.is_released.swap(true, Ordering::AcqRel) {
            self.udp.iter().for_each(Udp::drain);
            self.mark_left();
            self.dir.release(self.slot);
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if !self.is_inherited() {
            self.release();
        }
    }
}

/// Writes the owner of a port to its header; the magic number last, because it marks the header as valid.
fn announce(header: &Header, epoch: u64, user: Uid) {
    header.epoch.store(epoch, Ordering::Relaxed);
    header.pid.store(std::process::id(), Ordering::Relaxed);
    header.user.store(user.as_raw(), Ordering::Relaxed);
    header
        .pid_namespace
        .store(pid_namespace(), Ordering::Relaxed);
    header.magic.store(layout::MAGIC, Ordering::Release);
}

/// Returns what helps against a failed allocation, as the end of an error.
pub(crate) fn remedy(dir: &Dir, error: &io::Error) -> String {
    let descriptors = open_files_remedy(error);
    if !descriptors.is_empty() {
        return descriptors.to_owned();
    }
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EAGAIN) => {
            return "; raise the limits of memory (ulimit -v, ulimit -l)".to_owned();
        }
        Some(libc::EACCES) => {
            return "; the process has changed its user since it opened the device: open it afterwards".to_owned();
        }
        Some(libc::EFBIG) => return "; raise the limit of a file's size (ulimit -f)".to_owned(),
        _ => {}
    }
    let place = dir
        .path()
        .parent()
        .unwrap_or(dir.path())
        .display()
        .to_string();
    format!(
        "; free space in {place} (df -h {place}), enlarge it, or set ADVERB_SHM to another directory"
    )
}

pub(crate) fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
