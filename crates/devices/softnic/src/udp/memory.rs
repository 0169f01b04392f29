//! The registered memory of this process, as the transport accesses it.
//!
//! Every access looks its region up and checks key, range and rights. The table of regions stays locked during the
//! access, so deregistering a region takes effect either before or after it.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering};

use adverb_transport::{Access, AccessError, AtomicOperation, Key, Memory, Place};
use adverb_verbs::{AccessFlags, Lkey, Qpn, RemoteAddress, Rkey};

use super::host::Host;
use crate::shm::copy::place;
use crate::shm::layout::{MrEntry, mr_index};
use crate::shm::regions::RegionTable;
use crate::shm::segment::Table;
use crate::shm::sync::lock;

const WORD: u64 = size_of::<u64>() as u64;

/// The port's regions, locked: none is deregistered and unmapped while this exists.
pub(super) struct Regions<'a> {
    entries: &'a Table<MrEntry>,
    held: MutexGuard<'a, RegionTable>,
}

impl<'a> Regions<'a> {
    pub(super) fn of(host: &'a dyn Host) -> Self {
        let (regions, entries) = host.regions();
        Regions {
            entries,
            held: lock(regions),
        }
    }

    /// Returns the memory of queue pair `qpn` of protection domain `pd`, whose receives are in domain `recv_pd` and
    /// whose peer has the rights `access`.
    pub(super) fn reached_by(
        &self,
        qpn: Qpn,
        (pd, recv_pd): (u32, u32),
        access: AccessFlags,
    ) -> Reach<'_> {
        Reach {
            regions: self,
            qpn,
            pd,
            recv_pd,
            access,
        }
    }
}

/// The memory that one queue pair may access.
#[derive(Clone, Copy)]
pub(super) struct Reach<'a> {
    regions: &'a Regions<'a>,
    qpn: Qpn,
    pd: u32,
    /// Protection domain of its receives: its own, or its shared receive queue's.
    recv_pd: u32,
    access: AccessFlags,
}

impl Reach<'_> {
    /// Returns the address of `length` bytes at `at`, if `access` is allowed.
    #[inline]
    fn find(&self, at: Place, length: u64, access: Access) -> Result<*mut u8, AccessError> {
        let (key, need, granted) = match at.key {
            Key::Local(lkey) => (lkey.0, needed_locally(access), AccessFlags::all()),
            Key::Remote(rkey) => (rkey.0, needed_remotely(access), self.access),
        };
        if !granted.contains(need) {
            return Err(AccessError::NotAllowed);
        }
        let entry = self.regions.entries.at(mr_index(key));
        if entry.is_window() && matches!(at.key, Key::Remote(_)) {
            return self.find_in_window(entry, key, need, (at.addr, length));
        }
        let region = self.regions.held.at(key);
        let region = region.ok_or(AccessError::UnknownKey)?;
        if key == 0 || entry.key.load(Ordering::Acquire) != key {
            return Err(AccessError::UnknownKey);
        }
        let allowed = AccessFlags::from_bits_retain(entry.access.load(Ordering::Relaxed));
        let pd = entry.pd.load(Ordering::Relaxed);
        let is_receive = matches!(at.key, Key::Local(_)) && pd == self.recv_pd;
        if !(pd == self.pd || is_receive) || !allowed.contains(need) {
            return Err(AccessError::NotAllowed);
        }
        let there = entry.length.load(Ordering::Relaxed);
        let there = there.min(region.length());
        let offset = at.addr.wrapping_sub(entry.addr.load(Ordering::Relaxed));
        if offset > there || length > there - offset {
            return Err(AccessError::OutOfRange);
        }
        Ok(region.base().wrapping_add(offset as usize))
    }

    /// The same, if `key` is a memory window's.
    #[cold]
    fn find_in_window(
        &self,
        entry: &MrEntry,
        key: u32,
        need: AccessFlags,
        (addr, length): (u64, u64),
    ) -> Result<*mut u8, AccessError> {
        let found = entry.through_window(key, (self.qpn, self.pd), need, (addr, length));
        let (region, addr) = found.ok_or(AccessError::NotAllowed)?;
        // The window alone determines the rights, and reading with a local key needs none.
        let key = Key::Local(Lkey(region));
        self.find(Place { key, addr }, length, Access::Read)
    }
}

fn needed_locally(access: Access) -> AccessFlags {
    match access {
        Access::Read => AccessFlags::empty(),
        Access::Write | Access::Atomic => AccessFlags::LOCAL_WRITE,
    }
}

fn needed_remotely(access: Access) -> AccessFlags {
    match access {
        Access::Read => AccessFlags::REMOTE_READ,
        Access::Write => AccessFlags::REMOTE_WRITE,
        Access::Atomic => AccessFlags::REMOTE_ATOMIC,
    }
}

impl Memory for Reach<'_> {
    fn check(&self, at: Place, length: u64, access: Access) -> Result<(), AccessError> {
        self.find(at, length, access).map(drop)
    }

    #[inline]
    fn read(&self, at: Place, into: &mut [u8]) -> Result<(), AccessError> {
        let source = self.find(at, into.len() as u64, Access::Read)?;
        // SAFETY: `find` checked the source, which stays mapped while the table is locked; `into` is exclusive.
        unsafe { std::ptr::copy(source, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    #[inline]
    fn write(&mut self, at: Place, from: &[u8]) -> Result<(), AccessError> {
        let target = self.find(at, from.len() as u64, Access::Write)?;
        // SAFETY: `find` checked the target, which stays mapped while the table is locked; `from` is readable.
        unsafe { place(target, from.as_ptr(), from.len()) };
        Ok(())
    }

    fn atomic(
        &mut self,
        at: RemoteAddress,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError> {
        let target = self.find(at.into(), WORD, Access::Atomic)?;
        if !target.addr().is_multiple_of(WORD as usize) {
            return Err(AccessError::NotAllowed);
        }
        // SAFETY: `find` checked the word, which stays mapped while the table is locked; it is aligned.
        let word = unsafe { &*target.cast::<AtomicU64>() };
        Ok(match operation {
            AtomicOperation::FetchAdd(addend) => word.fetch_add(addend, Ordering::SeqCst),
            AtomicOperation::CompareSwap(c) => word
                .compare_exchange(c.expected, c.new, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|found| found),
        })
    }

    /// Peers can only invalidate windows.
    fn invalidate(&mut self, rkey: Rkey) -> Result<(), AccessError> {
        let entry = self.regions.entries.at(mr_index(rkey.0));
        match entry.invalidate(rkey, (self.qpn, self.pd)) {
            true => Ok(()),
            false => Err(AccessError::NotAllowed),
        }
    }
}
