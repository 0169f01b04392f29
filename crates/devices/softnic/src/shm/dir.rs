//! The directory of the ports: finds live ports and removes the files of dead ones.
//!
//! ```text
//! /dev/shm/adverb-UID/        0700, owned by the user ($ADVERB_SHM replaces /dev/shm)
//!   003.port                  a process's port; locked (flock) while the process lives
//!   003.wake                  FIFO: wakes its engine
//!   003.c0, 003.c1 …          FIFOs: its completion channels
//!   003.m0, 003.m1 …          its memory regions
//!   003.s1061c06 …            the services for which it listens, in hexadecimal (`gsi`)
//! /dev/shm/adverb-UID@ADDR-NS/   the same for ports with UDP port at an address of network
//!                                namespace NS (its inode): there slot n has UDP port 4791 + n
//! ```
//! All names of a slot begin with its number. Files with other names belong to other programs and are never removed. Slots
//! are claimed, and stale files removed, under a lock on the directory itself. The kernel releases a lock when its holder
//! dies, for whatever reason.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use adverb_units::Bytes;
use adverb_verbs::OpenError;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, fstatvfs, lstat, mkdir,
    mknodat, open, openat, rmdir, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::shm::layout::MAX_SLOTS;

/// Environment variable that names a directory to use instead of `/dev/shm`.
const PLACE: &str = "ADVERB_SHM";

/// How long to wait for the directory's lock. A process that is not stopped holds it for less than a millisecond.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time between two attempts to take it.
const PAUSE: Duration = Duration::from_millis(1);

/// Flags for opening all files: no symbolic links are followed, and other programs do not inherit them.
const SAFELY: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// The path of the user's directory, which may not exist yet.
#[derive(Clone, Debug)]
pub(crate) struct DirPath(PathBuf);

/// The user's directory, opened once. Files are opened relative to its descriptor, never by path: another user may
/// replace the directory at that path at any time.
#[derive(Clone, Debug)]
pub(crate) struct Dir {
    path: PathBuf,
    fd: Arc<OwnedFd>,
}

/// A claimed slot; its port file stays locked while this lives.
#[derive(Debug)]
pub(crate) struct Claim<T> {
    /// The directory in which the slot is.
    pub(crate) dir: Dir,
    /// The slot.
    pub(crate) slot: u32,
    /// Its port file.
    pub(crate) file: File,
    /// What the claimant acquired with it.
    pub(crate) held: T,
}

/// A lock on the directory, released when dropped.
struct Locked(OwnedFd);

impl Drop for Locked {
    fn drop(&mut self) {
        // A child that was forked meanwhile has the same open file, so closing it does not release the lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// The memory from which regions are allocated.
#[derive(Clone, Debug)]
pub struct SharedMemory {
    /// The directory of files in memory.
    pub place: PathBuf,
    /// What is free there.
    pub free: Bytes,
}

/// Returns the memory from which regions are allocated: `$ADVERB_SHM`, or `/dev/shm` if it is not set.
///
/// # Errors
/// There is no such directory.
pub fn shared_memory() -> io::Result<SharedMemory> {
    let place = place();
    let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let stat = fstatvfs(open(&place, how, Mode::empty())?)?;
    let free = Bytes::new(stat.f_bavail * stat.f_frsize);
    Ok(SharedMemory { place, free })
}

fn place() -> PathBuf {
    std::env::var_os(PLACE).map_or_else(|| "/dev/shm".into(), PathBuf::from)
}

impl DirPath {
    /// The user's directory in `$ADVERB_SHM`, or in `/dev/shm` if it is not set.
    pub(crate) fn from_env() -> Self {
        DirPath(place().join(user_name()))
    }

    /// The directory of the ports at one address of this network namespace. Slots and UDP ports correspond there.
    pub(crate) fn of_address(&self, ip: IpAddr) -> Self {
        let namespace = std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |meta| meta.ino());
        let mut name = self.0.as_os_str().to_owned();
        name.push(format!("@{ip}-{namespace}"));
        DirPath(name.into())
    }

    /// Removes the files of dead processes, then claims the lowest free slot for which `hold` returns a value. (It
    /// returns `None` if the slot is in use elsewhere.) `None` if no slot is free.
    pub(crate) fn claim<T>(
        &self,
        hold: impl FnMut(u32) -> Result<Option<T>, OpenError>,
    ) -> Result<Option<Claim<T>>, OpenError> {
        self.reap_others();
        let (dir, _locked) = self.open_locked()?;
        let claimed = dir.claim_locked(hold);
        if !matches!(claimed, Ok(Some(_))) {
            dir.remove_if_empty();
        }
        claimed
    }

    fn open_locked(&self) -> Result<(Dir, Locked), OpenError> {
        loop {
            match mkdir(&self.0, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(self.failed("create the directory", e)),
            }
            let Some(dir) = self.open()? else { continue };
            match dir.lock() {
                Ok(locked) => return Ok((dir, locked)),
                // The last process has removed the directory: try again.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(self.failed("lock the directory", e)),
            }
        }
    }

    /// Removes the files of dead processes from the user's other directories. Nobody else would, if the address or its
    /// network namespace no longer exists. A directory that is locked is in use.
    fn reap_others(&self) {
        let place = self.0.parent().unwrap_or(&self.0);
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        for path in names
            .filter(|name| is_of_user(name))
            .map(|name| place.join(name))
        {
            if path != self.0
                && let Ok(Some(dir)) = DirPath(path).open()
                && let Ok(_locked) = dir.lock_within(Duration::ZERO)
            {
                let _ = dir.reap_locked();
                dir.remove_if_empty();
            }
        }
    }

    /// Opens the directory, if it is a private one of this user; `None` if it was removed. The check uses the
    /// opened descriptor, because a check of the path may see another directory than the one opened.
    fn open(&self) -> Result<Option<Dir>, OpenError> {
        let opened = open(
            &self.0,
            SAFELY | OFlags::DIRECTORY | OFlags::RDONLY,
            Mode::empty(),
        );
        let stat = match &opened {
            Ok(fd) => fstat(fd),
            Err(_) => lstat(&self.0),
        };
        match (opened, stat) {
            (Err(Errno::NOENT), _) | (_, Err(Errno::NOENT)) => Ok(None),
            (_, Err(e)) => Err(self.failed("look at the directory", e)),
            (_, Ok(stat)) if !is_private(&stat) => Err(self.not_private(&stat)),
            (Err(e), _) => Err(self.failed("open the directory", e)),
            (Ok(fd), _) => Ok(Some(Dir {
                path: self.0.clone(),
                fd: Arc::new(fd),
            })),
        }
    }

    fn failed(&self, action: &str, source: impl Into<io::Error>) -> OpenError {
        OpenError::System {
            device: "soft".into(),
            action: format!("{action} in {}", self.0.display()),
            source: source.into(),
        }
    }

    fn not_private(&self, stat: &Stat) -> OpenError {
        let mode = stat.st_mode & 0o7777;
        let uid = stat.st_uid;
        let path = self.0.display();
        OpenError::Unavailable {
            device: "soft".into(),
            reason: format!(
                "{path} (mode {mode:o}, uid {uid}) is not a private directory of this user"
            ),
            remedy: "remove it, or set ADVERB_SHM to a directory of your own".into(),
        }
    }
}

/// The name of the user's directory; `@` and an address follow in the names of the others.
fn user_name() -> String {
    format!("adverb-{}", geteuid().as_raw())
}

/// Whether the user's directories have this name.
fn is_of_user(name: &str) -> bool {
    let rest = name.strip_prefix(&user_name());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
}

/// Whether this is a directory of this user that nobody else may enter.
fn is_private(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_dir()
        && stat.st_uid == geteuid().as_raw()
        && stat.st_mode & 0o077 == 0
}

impl Dir {
    /// The path where the directory was opened, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads this process to the directory: not after a `chroot`.
    pub(crate) fn is_at_path(&self) -> bool {
        let (there, here) = (lstat(&self.path), fstat(&self.fd));
        there.is_ok_and(|there| here.is_ok_and(|here| there.st_ino == here.st_ino))
    }

    fn claim_locked<T>(
        &self,
        mut hold: impl FnMut(u32) -> Result<Option<T>, OpenError>,
    ) -> Result<Option<Claim<T>>, OpenError> {
        let failed = |action, e| DirPath(self.path.clone()).failed(action, e);
        self.reap_locked()
            .map_err(|e| failed("look for stale files", e))?;
        for slot in 0..MAX_SLOTS {
            let file = match self.create(slot, "port") {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(failed("create a port file", e)),
            };
            // Blocks only while another process checks whether the owner is alive.
            flock(&file, FlockOperation::LockExclusive)
                .map_err(|e| failed("lock a new port file", e.into()))?;
            let held = hold(slot);
            if let Ok(Some(held)) = held {
                let dir = self.clone();
                return Ok(Some(Claim {
                    dir,
                    slot,
                    file,
                    held,
                }));
            }
            self.remove_slot(slot);
            held?;
        }
        Ok(None)
    }

    /// Records that `slot` listens for a service, so that the other processes find it.
    ///
    /// # Errors
    /// `AlreadyExists` if a process does already.
    pub(crate) fn announce(&self, slot: u32, service: u64) -> io::Result<()> {
        let _locked = self.lock()?;
        match self.listener(service) {
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
            None => {
                let name = service_name(service);
                self.remove(slot, &name); // left by a dead owner of the slot
                self.create(slot, &name).map(drop)
            }
        }
    }

    /// Ends what [`Dir::announce`] recorded.
    pub(crate) fn withdraw(&self, slot: u32, service: u64) {
        self.remove(slot, &service_name(service));
    }

    /// Returns the slot of the process that listens for a service.
    pub(crate) fn listener(&self, service: u64) -> Option<u32> {
        let names = self.port_files().ok()?;
        let of_service = |name: &String| {
            let kind = name.split_once('.')?.1;
            (service_of_kind(kind)? == service).then(|| slot_of_file(name))?
        };
        let mut slots = names.iter().filter_map(of_service);
        slots.find(|slot| self.has_owner(*slot))
    }

    /// Opens the directory of the ports at another address of the same network namespace. `None` if this user has none
    /// there.
    pub(crate) fn of_other_address(&self, ip: IpAddr) -> Option<Self> {
        let (user, own) = self.path.to_str()?.rsplit_once('@')?;
        let (_, namespace) = own.rsplit_once('-')?;
        let other = DirPath(format!("{user}@{ip}-{namespace}").into());
        other.open().ok()?
    }

    /// Whether a process has claimed `slot` and lives.
    pub(crate) fn has_owner(&self, slot: u32) -> bool {
        self.owner(slot).is_some()
    }

    /// Returns a number of the living process that has claimed `slot`: its port file's inode.
    pub(crate) fn owner(&self, slot: u32) -> Option<u64> {
        let how = OFlags::RDONLY | OFlags::NONBLOCK;
        let port = self.open_file(&file_name(slot, "port"), how).ok()?;
        Self::is_alive(&port).then(|| port.metadata().map_or(0, |meta| meta.ino()))
    }

    /// Removes the files of `slot`, and the directory if it was the last.
    pub(crate) fn release(&self, slot: u32) {
        if let Ok(_locked) = self.lock() {
            self.remove_slot(slot);
            let _ = self.reap_locked();
            self.remove_if_empty();
        }
    }

    /// Removes the files of dead processes.
    pub(crate) fn reap(&self) {
        if let Ok(_locked) = self.lock() {
            let _ = self.reap_locked();
        }
    }

    /// Opens a file of another process's slot, if it is this user's.
    pub(crate) fn open_peer(&self, slot: u32, name: &str) -> io::Result<File> {
        let file = self.open_file(&file_name(slot, name), OFlags::RDWR)?;
        if file.metadata()?.uid() == geteuid().as_raw() {
            Ok(file)
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }

    /// Whether the owner of `port`, an opened port file, lives.
    pub(crate) fn is_alive(port: &File) -> bool {
        match flock(port, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let _ = flock(port, FlockOperation::Unlock);
                false
            }
            Err(_) => true,
        }
    }

    /// Creates a file of `slot`, readable and writable by the user alone.
    pub(crate) fn create(&self, slot: u32, name: &str) -> io::Result<File> {
        let new = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        self.open_file(&file_name(slot, name), new)
    }

    /// Removes a file of `slot`, if it exists.
    pub(crate) fn remove(&self, slot: u32, name: &str) {
        let _ = unlinkat(&self.fd, file_name(slot, name), AtFlags::empty());
    }

    /// Creates a FIFO of `slot` and opens it.
    pub(crate) fn create_fifo(&self, slot: u32, name: &str) -> io::Result<File> {
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(&self.fd, file_name(slot, name), FileType::Fifo, mode, 0)?;
        self.open_fifo(slot, name)
    }

    /// Opens a FIFO for reading and writing, so reading never returns end of file, and writing after its owner
    /// has died raises no SIGPIPE.
    pub(crate) fn open_fifo(&self, slot: u32, name: &str) -> io::Result<File> {
        self.open_file(&file_name(slot, name), OFlags::RDWR | OFlags::NONBLOCK)
    }

    fn open_file(&self, name: &str, how: OFlags) -> io::Result<File> {
        let opened = openat(&self.fd, name, SAFELY | how, Mode::RUSR | Mode::WUSR)?;
        Ok(opened.into())
    }

    /// Locks the directory; `NotFound` if it was removed.
    fn lock(&self) -> io::Result<Locked> {
        self.lock_within(TIMEOUT)
    }

    fn lock_within(&self, timeout: Duration) -> io::Result<Locked> {
        // A separate open file, because locks belong to open files and threads share `self.fd`.
        let how = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = openat(&self.fd, ".", how, Mode::empty())?;
        lock_within(&dir, timeout)?;
        match fstat(&dir)?.st_nlink {
            0 => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(Locked(dir)),
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entries = rustix::fs::Dir::read_from(&self.fd)?;
        let names = entries.filter_map(|entry| {
            let name = entry.ok()?.file_name().to_str().ok()?.to_owned();
            (name != "." && name != "..").then_some(name)
        });
        Ok(names.collect())
    }

    /// Returns the names of the files that ports made, in order.
    fn port_files(&self) -> io::Result<Vec<String>> {
        let mut names = self.names()?;
        names.retain(|name| slot_of_file(name).is_some());
        names.sort();
        Ok(names)
    }

    fn reap_locked(&self) -> io::Result<()> {
        for files in self
            .port_files()?
            .chunk_by(|a, b| slot_of_file(a) == slot_of_file(b))
        {
            let Some(slot) = slot_of_file(&files[0]) else {
                continue;
            };
            if !self.has_owner(slot) {
                self.remove_files(files);
            }
        }
        Ok(())
    }

    fn remove_slot(&self, slot: u32) {
        let mut files = self.port_files().unwrap_or_default();
        files.retain(|name| slot_of_file(name) == Some(slot));
        self.remove_files(&files);
    }

    fn remove_files(&self, names: &[String]) {
        for name in names {
            let _ = unlinkat(&self.fd, name, AtFlags::empty());
        }
    }

    /// Removes the directory, which is locked, if it is empty. A directory cannot be removed by its descriptor;
    /// if the path names another empty directory by now, nothing is lost.
    fn remove_if_empty(&self) {
        let _ = rmdir(&self.path);
    }
}

/// The name of a file of `slot`: its port, a FIFO, a region.
fn file_name(slot: u32, name: &str) -> String {
    format!("{slot:03x}.{name}")
}

/// Locks `dir`. Fails if another process holds the lock for longer than `timeout`.
fn lock_within(dir: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match flock(dir, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < timeout => std::thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {
                let reason =
                    format!("a process has held the lock for {timeout:?}: is one stopped?");
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            locked => return Ok(locked?),
        }
    }
}

/// Returns the slot of a file that a port made, by its name; `None` for any other name.
fn slot_of_file(name: &str) -> Option<u32> {
    let (number, kind) = name.split_once('.')?;
    let slot = u32::from_str_radix(number, 16).ok()?;
    let is_numbered = |kind: &str| {
        let number = kind.strip_prefix(['c', 'm']).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_known =
        kind == "port" || kind == "wake" || is_numbered(kind) || service_of_kind(kind).is_some();
    (is_known && slot < MAX_SLOTS && name == file_name(slot, kind)).then_some(slot)
}

/// Returns the service that a file names after the slot.
fn service_of_kind(kind: &str) -> Option<u64> {
    let service = u64::from_str_radix(kind.strip_prefix('s')?, 16).ok()?;
    (kind == service_name(service)).then_some(service)
}

fn service_name(service: u64) -> String {
    format!("s{service:x}")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    use std::fs;

    use rustix::fs::CWD;

    fn dir_in(place: &Path) -> DirPath {
        DirPath(place.join("adverb-test"))
    }

    fn claim(dir: &DirPath) -> Claim<()> {
        dir.claim(|_| Ok(Some(()))).unwrap().expect("a free slot")
    }

    #[test]
    fn a_slot_that_is_taken_elsewhere_is_skipped() {
        let place = tempfile::tempdir().unwrap();
        let dir = dir_in(place.path());
        let claimed = dir.claim(|slot| Ok((slot == 2).then_some("held")));
        let claimed = claimed.unwrap().expect("slot 2 is free");
        assert_eq!((claimed.slot, claimed.held), (2, "held"));
        assert_eq!(names(&dir), ["002.port"]);
        claimed.dir.release(2);
    }

    fn names(dir: &DirPath) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&dir.0)
            .map(|entries| {
                entries
                    .map(|e| e.unwrap().file_name().into_string().unwrap())
                    .collect()
            })
            .unwrap_or_default();
        names.sort();
        names
    }

    #[test]
    fn the_lowest_free_slot_is_claimed_and_the_last_release_removes_the_directory() {
        let place = tempfile::tempdir().unwrap();
        let dir = dir_in(place.path());
        let (a, b) = (claim(&dir), claim(&dir));
        assert_eq!((a.slot, b.slot), (0, 1));
        a.dir.create(a.slot, "m0").unwrap();
        a.dir.release(a.slot);
        assert_eq!(names(&dir), ["001.port"]);
        b.dir.release(b.slot);
        assert!(!dir.0.exists());
    }

    #[test]
    fn only_files_of_dead_owners_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let dir = dir_in(place.path());
        let alive = claim(&dir);
        let dead = claim(&dir);
        dead.dir.create(dead.slot, "m7").unwrap();
        dead.dir.create(0x123, "m0").unwrap(); // a slot without a port file
        drop(dead); // the kernel drops a dead process's lock in the same way
        assert_eq!(claim(&dir).slot, 1);
        assert_eq!(names(&dir), ["000.port", "001.port"]);
        drop(alive);
    }

    /// The memory of processes in a deleted network namespace was never freed.
    #[test]
    fn files_of_dead_owners_at_other_addresses_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: String| DirPath(place.path().join(name));
        let user = user_name();
        let dead = claim(&at(format!("{user}@10.0.0.9-4026531999")));
        dead.dir.create(dead.slot, "m0").unwrap();
        let gone = dead.dir.path().to_owned();
        drop(dead);
        let alive = claim(&at(format!("{user}@10.0.0.8-4026531999")));
        let of_another = place.path().join(format!("{user}7"));
        fs::create_dir(&of_another).unwrap();
        let own = claim(&at(user));
        assert!(!gone.exists());
        assert_eq!(names(&DirPath(alive.dir.path().to_owned())), ["000.port"]);
        assert!(of_another.exists());
        drop((alive, own));
    }

    #[test]
    fn foreign_files_do_not_prevent_claiming_a_slot() {
        let place = tempfile::tempdir().unwrap();
        let dir = dir_in(place.path());
        let first = claim(&dir);
        // Opening it for reading would block until there is a writer.
        let fifo = dir.0.join("001.port");
        mknodat(CWD, fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::create_dir(dir.0.join("002.port")).unwrap();
        fs::write(dir.0.join("notes.txt"), "x").unwrap();
        assert_eq!((first.slot, claim(&dir).slot), (0, 1));
        assert_eq!(
            names(&dir),
            ["000.port", "001.port", "002.port", "notes.txt"]
        );
    }

    #[test]
    fn only_names_that_ports_give_their_files_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let dir = dir_in(place.path());
        let first = claim(&dir);
        let kept = [
            "000.txt",
            "00a.c",
            "00a.cx1",
            "00a.portrait",
            "00a.s01",
            "00a.sFF",
            "00a.server",
            "00A.port",
            "0a.port",
            "200.port",
            "abc.tar",
            "fff.m1",
        ];
        for name in kept {
            fs::write(dir.0.join(name), "").unwrap();
        }
        for name in ["001.port", "00a.m0", "00a.s1061c06", "00a.wake", "1ff.c12"] {
            fs::write(dir.0.join(name), "").unwrap();
        }
        first.dir.release(first.slot);
        let mut expected: Vec<_> = kept.map(str::to_owned).into();
        expected.sort();
        assert_eq!(names(&dir), expected);
    }

    #[test]
    fn one_living_process_listens_for_a_service() {
        let place = tempfile::tempdir().unwrap();
        let dir = dir_in(place.path());
        let (first, second) = (claim(&dir), claim(&dir));
        first.dir.announce(first.slot, 0x0106_1c06).unwrap();
        assert_eq!(second.dir.listener(0x0106_1c06), Some(0));
        assert_eq!(second.dir.listener(0x0106_1c07), None);
        let taken = second.dir.announce(second.slot, 0x0106_1c06).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        // The process dies.
        drop(first);
        second.dir.announce(second.slot, 0x0106_1c06).unwrap();
        assert_eq!(second.dir.listener(0x0106_1c06), Some(1));
        second.dir.withdraw(second.slot, 0x0106_1c06);
        assert_eq!(second.dir.listener(0x0106_1c06), None);
    }

    #[test]
    fn waiting_for_the_lock_of_a_stopped_process_times_out() {
        let place = tempfile::tempdir().unwrap();
        let dir = dir_in(place.path());
        let _held = dir.open_locked().unwrap();
        let other = File::open(&dir.0).unwrap();
        let error = lock_within(&other.into(), Duration::from_millis(5)).unwrap_err();
        assert!(error.to_string().contains("is one stopped?"), "{error}");
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let dir = dir_in(place.path());
        fs::create_dir(&dir.0).unwrap();
        fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o755)).unwrap();
        let error = dir.claim(|_| Ok(Some(()))).unwrap_err().to_string();
        assert!(
            error.contains("mode 755") && error.contains("ADVERB_SHM"),
            "{error}"
        );
    }
}
