//! Memory windows: keys that give peers access to a part of a memory region (IBTA vol. 1, 10.6.7).
//!
//! A window has an entry in the table of keys, like a region. While it is bound, the entry names the region, so that a
//! requester finds the window first and then the region's memory. The low 8 bits of a window's keys vary from bind to
//! bind; the others stay (`ibv_inc_rkey`).
//!
//! A type 1 window serves all queue pairs of its protection domain. A type 2 window serves the queue pair that bound it
//! (2B), whose peer can invalidate it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use adverb_verbs::{AccessFlags, CreateError, Lkey, Operation, Qpn, Rkey, WcStatus, WindowBinding};

use crate::domain::SoftPd;
use crate::memory::key_of;
use crate::port::{Port, TableEntry};
use crate::shm::layout::{BoundTo, MAX_MR, MrEntry, WINDOW, mr_index};
use crate::shm::quiesce;
use crate::shm::regions::{Window, WindowType};
use crate::shm::sync::lock;

/// Rights that a window can give a peer.
const REMOTE: AccessFlags = AccessFlags::REMOTE_READ
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);
/// In place of a queue pair's number: the window serves all queue pairs of its domain.
const ANY: u32 = 0;

/// A memory window of the user-space NIC. Dropping it deallocates it, which invalidates its key.
#[derive(Debug)]
pub struct SoftMw {
    port: Arc<Port>,
    key: u32,
}

/// Why a memory window was not bound or invalidated. The completion has only a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WindowError {
    #[error("no window has this key")]
    UnknownKey,
    #[error("window, region and queue pair have different protection domains")]
    Domain,
    #[error("a type 2 window is bound until it is invalidated")]
    Bound,
    #[error("a type 1 window cannot be zero-based, nor a type 2 window empty")]
    Form,
    #[error("the region does not have this key, this range, or the rights for this window")]
    Region,
    #[error("a peer has stopped in the middle of an operation")]
    Busy,
}

impl SoftPd {
    /// Allocates a memory window (`ibv_alloc_mw`).
    ///
    /// # Errors
    /// There are too many regions and windows, or there is no memory for its entry.
    pub fn alloc_mw(&self, kind: WindowType) -> Result<SoftMw, CreateError> {
        let port = &self.handle.port;
        let exhausted = CreateError::Exhausted {
            what: "memory regions and windows",
            limit: MAX_MR.into(),
        };
        let index = lock(&port.mr_indices).take().ok_or(exhausted)?;
        let reserved = port.reserve_entry(TableEntry::Mr(index));
        let key = reserved
            .and_then(|()| key_of(index))
            .map_err(|source: io::Error| {
                lock(&port.mr_indices).give(index);
                port.no_room("allocate a memory window", source)
            })?;
        let pd = self.number;
        lock(&port.windows).insert(index, Window { key, pd, kind });
        Ok(SoftMw {
            port: port.clone(),
            key,
        })
    }
}

impl SoftMw {
    /// Returns the key that the window has before it is first bound. It gives no access.
    pub fn rkey(&self) -> Rkey {
        Rkey(self.key)
    }
}

impl Drop for SoftMw {
    fn drop(&mut self) {
        let port = &self.port;
        if port.is_inherited() {
            return;
        }
        let index = mr_index(self.key);
        lock(&port.windows).remove(&index);
        port.unbind(port.mr_entry(index));
        lock(&port.mr_indices).give(index);
    }
}

impl Port {
    /// Carries out a bind or a local invalidate of queue pair `qpn`, whose protection domain is `pd`.
    pub(crate) fn operate_on_keys(&self, (qpn, pd): (Qpn, u32), operation: &Operation) -> WcStatus {
        let (done, failed) = match operation {
            Operation::BindWindow(binding) => {
                (self.bind_window((qpn, pd), binding), WcStatus::MwBindErr)
            }
            Operation::LocalInvalidate(rkey) => {
                (self.invalidate_window(pd, *rkey), WcStatus::LocQpOpErr)
            }
            _ => return WcStatus::LocQpOpErr,
        };
        done.map_or(failed, |()| WcStatus::Success)
    }

    fn bind_window(&self, (qpn, pd): (Qpn, u32), to: &WindowBinding) -> Result<(), WindowError> {
        // Locked to the end: a region that is deregistered now unbinds its windows after this.
        let windows = lock(&self.windows);
        let window = *windows
            .get(&mr_index(to.window.0))
            .filter(|window| window.has_key(to.window) && window.has_key(to.rkey))
            .ok_or(WindowError::UnknownKey)?;
        if window.pd != pd {
            return Err(WindowError::Domain);
        }
        let entry = self.mr_entry(mr_index(window.key));
        match window.kind {
            WindowType::Type1 if to.access.contains(AccessFlags::ZERO_BASED) => {
                return Err(WindowError::Form);
            }
            WindowType::Type2 if to.length == 0 => return Err(WindowError::Form),
            WindowType::Type2 if entry.key.load(Ordering::Acquire) != 0 => {
                return Err(WindowError::Bound);
            }
            _ => {}
        }
        if to.length > 0 {
            self.check_region(pd, to)?;
        }
        let bound = entry.key.load(Ordering::Acquire);
        if !self.unbind(entry) {
            // A refused bind changes nothing. The entry still describes the old binding, whose region is registered as long as
            // the windows are locked; only the owner changes the key of a type 1 window.
            let _regions = lock(&self.regions);
            entry.key.store(bound, Ordering::Release);
            return Err(WindowError::Busy);
        }
        if to.length > 0 {
            let qpn = match window.kind {
                WindowType::Type1 => ANY,
                WindowType::Type2 => qpn.get(),
            };
            // Accesses over UDP hold this lock.
            let _regions = lock(&self.regions);
            publish(entry, to, (qpn, pd));
        }
        Ok(())
    }

    /// Checks that a region of domain `pd` may have this window.
    fn check_region(&self, pd: u32, to: &WindowBinding) -> Result<(), WindowError> {
        let Lkey(key) = to.region;
        let region = self.mr_entry(mr_index(key));
        if key == 0 || region.key.load(Ordering::Acquire) != key {
            return Err(WindowError::Region);
        }
        if region.pd.load(Ordering::Relaxed) != pd {
            return Err(WindowError::Domain);
        }
        let rights = AccessFlags::from_bits_retain(region.access.load(Ordering::Relaxed));
        let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let may_write = rights.contains(AccessFlags::LOCAL_WRITE) || !to.access.intersects(writes);
        let length = region.length.load(Ordering::Relaxed);
        let offset = to.addr.wrapping_sub(region.addr.load(Ordering::Relaxed));
        let fits = offset <= length && to.length <= length - offset;
        if rights.contains(AccessFlags::WINDOW_BIND) && may_write && fits {
            return Ok(());
        }
        Err(WindowError::Region)
    }

    fn invalidate_window(&self, pd: u32, rkey: Rkey) -> Result<(), WindowError> {
        let windows = lock(&self.windows);
        let window = windows.get(&mr_index(rkey.0));
        let window = window.filter(|window| window.kind == WindowType::Type2);
        let entry = self.mr_entry(mr_index(rkey.0));
        if window.is_none() || entry.key.load(Ordering::Acquire) != rkey.0 {
            return Err(WindowError::UnknownKey);
        }
        if window.is_some_and(|window| window.pd != pd) {
            return Err(WindowError::Domain);
        }
        if self.unbind(entry) {
            Ok(())
        } else {
            Err(WindowError::Busy)
        }
    }

    /// Invalidates the key of a window, and waits until the operations that use it have ended. Returns false if one
    /// does not end.
    fn unbind(&self, entry: &MrEntry) -> bool {
        let regions = lock(&self.regions);
        let was_bound = entry.key.swap(0, Ordering::AcqRel) != 0;
        drop(regions);
        !was_bound || self.quiesce_peers(quiesce::TIMEOUT)
    }

    fn unbind_all(&self, is_meant: impl Fn(&MrEntry) -> bool) {
        for index in lock(&self.windows).keys() {
            let entry = self.mr_entry(*index);
            if entry.key.load(Ordering::Acquire) != 0 && is_meant(entry) {
                self.unbind(entry);
            }
        }
    }

    /// Invalidates the windows of a region that is being deregistered.
    pub(crate) fn unbind_windows_of(&self, region: u32) {
        self.unbind_all(|entry| BoundTo::of(entry).region == region);
    }

    /// Invalidates the type 2 windows of a queue pair that is being destroyed.
    pub(crate) fn unbind_windows_for(&self, qpn: Qpn) {
        self.unbind_all(|entry| BoundTo::of(entry).qpn == qpn.get());
    }

    /// Whether windows are bound to a region.
    pub(crate) fn has_windows(&self, region: u32) -> bool {
        lock(&self.windows).keys().any(|index| {
            let entry = self.mr_entry(*index);
            let is_bound = entry.key.load(Ordering::Acquire) != 0;
            is_bound && BoundTo::of(entry).region == region
        })
    }
}

/// Makes a bound window visible to requesters. The key is stored last.
fn publish(entry: &MrEntry, to: &WindowBinding, (qpn, pd): (u32, u32)) {
    let first = match to.access.contains(AccessFlags::ZERO_BASED) {
        true => 0,
        false => to.addr,
    };
    entry.addr.store(first, Ordering::Relaxed);
    let shift = to.addr.wrapping_sub(first);
    entry.shift.store(shift, Ordering::Relaxed);
    entry.length.store(to.length, Ordering::Relaxed);
    let rights = to.access.intersection(REMOTE);
    entry.access.store(rights.bits(), Ordering::Relaxed);
    entry.pd.store(pd | WINDOW, Ordering::Relaxed);
    let region = to.region.0;
    BoundTo { region, qpn }.store(entry);
    entry.key.store(to.rkey.0, Ordering::Release);
}

impl MrEntry {
    /// Whether it is a window's, bound or not.
    #[inline]
    pub(crate) fn is_window(&self) -> bool {
        self.pd.load(Ordering::Relaxed) & WINDOW != 0
    }

    /// Returns the region's key and the address of a range, as requests with that key name it: if the window has the
    /// key `key`, serves queue pair `qpn` of domain `pd` and gives its peer the right `need`.
    pub(crate) fn through_window(
        &self,
        key: u32,
        (qpn, pd): (Qpn, u32),
        need: AccessFlags,
        (addr, length): (u64, u64),
    ) -> Option<(u32, u64)> {
        if key == 0 || self.key.load(Ordering::Acquire) != key {
            return None;
        }
        let offset = addr.wrapping_sub(self.addr.load(Ordering::Relaxed));
        let there = self.length.load(Ordering::Relaxed);
        let fits = offset <= there && length <= there - offset;
        let rights = AccessFlags::from_bits_retain(self.access.load(Ordering::Relaxed));
        let bound = BoundTo::of(self);
        let serves = bound.qpn == ANY || bound.qpn == qpn.get();
        let allowed = serves && self.is_of(pd) && rights.contains(need);
        let at = addr.wrapping_add(self.shift.load(Ordering::Relaxed));
        (fits && allowed).then_some((bound.region, at))
    }

    /// Whether it is a window of domain `pd`.
    fn is_of(&self, pd: u32) -> bool {
        self.pd.load(Ordering::Relaxed) == pd | WINDOW
    }

    /// Invalidates a key for the peer of queue pair `qpn` in domain `pd`. Returns false unless the key belongs to a
    /// type 2 window that serves this queue pair.
    ///
    /// Nobody else accesses memory through the window, so there is no other operation to wait for.
    pub(crate) fn invalidate(&self, Rkey(key): Rkey, (qpn, pd): (Qpn, u32)) -> bool {
        let cleared = || {
            self.key
                .compare_exchange(key, 0, Ordering::AcqRel, Ordering::Relaxed)
        };
        let is_meant = self.is_of(pd) && BoundTo::of(self).qpn == qpn.get();
        key != 0 && is_meant && cleared().is_ok()
    }
}
