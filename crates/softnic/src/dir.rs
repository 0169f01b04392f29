//! The directory of the local port: who is there, and what is left of those who are gone.
//!
//! ```text
//! /dev/shm/adverb-UID/        0700, owned by the user ($ADVERB_SHM replaces /dev/shm)
//!   003.port                  a process's port; locked (flock) while it lives
//!   003.wake                  FIFO: wakes its engine
//!   003.c0, 003.c1 …          FIFOs: its completion channels
//!   003.m0, 003.m1 …          its memory regions
//! /dev/shm/adverb-UID@ADDR-NS/   the same for ports with UDP port at an address of network
//!                                namespace NS (its inode): there slot n has UDP port 4791 + n
//! ```
//! All names of a slot begin with its number. Slots are taken and stale ones reaped under a lock on
//! the directory itself. The kernel drops a lock when its holder dies, however it dies.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use adverb_verbs::OpenError;
use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock, mknodat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::layout::MAX_SLOTS;

/// Environment variable that names another directory than `/dev/shm` to make ours in.
const PLACE: &str = "ADVERB_SHM";

/// How long the directory's lock may be held, which is for less than a millisecond by who is not stopped …
const PATIENCE: Duration = Duration::from_secs(30);
/// … and the time between two tries to get it.
const PAUSE: Duration = Duration::from_millis(1);

/// The user's directory.
#[derive(Clone, Debug)]
pub(crate) struct Dir {
    path: PathBuf,
}

/// A claimed slot; its port file stays locked while this lives.
#[derive(Debug)]
pub(crate) struct Claim<T> {
    /// The slot.
    pub(crate) slot: u32,
    /// Its port file.
    pub(crate) file: File,
    /// What the claimant holds beside it.
    pub(crate) held: T,
}

/// A lock on the directory, released when dropped.
struct Locked(#[allow(dead_code, reason = "held for its lock")] File);

impl Dir {
    /// The directory where `$ADVERB_SHM`, or else `/dev/shm`, says.
    pub(crate) fn from_env() -> Self {
        let place =
            std::env::var_os(PLACE).map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
        Dir {
            path: place.join(format!("adverb-{}", geteuid().as_raw())),
        }
    }

    /// The directory of the ports at one address of this network namespace: their slots are those
    /// of its UDP ports.
    pub(crate) fn of_address(&self, ip: IpAddr) -> Self {
        let namespace = fs::metadata("/proc/thread-self/ns/net").map_or(0, |meta| meta.ino());
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!("@{ip}-{namespace}"));
        Dir { path: name.into() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Path of a file of `slot`: its port, a FIFO, a region.
    pub(crate) fn file(&self, slot: u32, name: &str) -> PathBuf {
        self.path.join(format!("{slot:03x}.{name}"))
    }

    /// Takes the lowest free slot that `hold` gets (none: it is somebody else's elsewhere), after
    /// removing what dead processes left. None where no slot is free.
    pub(crate) fn claim<T>(
        &self,
        mut hold: impl FnMut(u32) -> Result<Option<T>, OpenError>,
    ) -> Result<Option<Claim<T>>, OpenError> {
        let _locked = self.lock_creating()?;
        self.reap_locked()
            .map_err(|e| self.failed("look for stale files", e))?;
        for slot in 0..MAX_SLOTS {
            let path = self.file(slot, "port");
            match new_file(&path) {
                Ok(file) => {
                    // Blocks only while somebody asks whether the owner lives.
                    flock(&file, FlockOperation::LockExclusive)
                        .map_err(|e| self.failed("lock a new port file", e.into()))?;
                    match hold(slot) {
                        Ok(Some(held)) => return Ok(Some(Claim { slot, file, held })),
                        Ok(None) => self.remove_slot(&format!("{slot:03x}.")),
                        Err(e) => {
                            self.remove_slot(&format!("{slot:03x}."));
                            let _ = fs::remove_dir(&self.path);
                            return Err(e);
                        }
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(self.failed("create a port file", e)),
            }
        }
        let _ = fs::remove_dir(&self.path);
        Ok(None)
    }

    /// Removes the files of `slot`, and the directory if it was the last.
    pub(crate) fn release(&self, slot: u32) {
        if let Ok(_locked) = self.lock() {
            self.remove_slot(&format!("{slot:03x}."));
            let _ = self.reap_locked();
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Removes what dead processes left.
    pub(crate) fn reap(&self) {
        if let Ok(_locked) = self.lock() {
            let _ = self.reap_locked();
        }
    }

    /// Opens a file of another process's slot, if it is this user's.
    pub(crate) fn open_peer(&self, slot: u32, name: &str) -> io::Result<File> {
        let path = self.file(slot, name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(NOFOLLOW)
            .open(path)?;
        let is_mine = file.metadata()?.uid() == geteuid().as_raw();
        if is_mine {
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
        new_file(&self.file(slot, name))
    }

    /// Creates a FIFO of `slot` and opens it for reading (and writing, so that it never ends).
    pub(crate) fn create_fifo(&self, slot: u32, name: &str) -> io::Result<File> {
        let path = self.file(slot, name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(NONBLOCK)
            .open(path)
    }

    /// Opens a FIFO of another process for writing (and reading, so that a write after its owner
    /// has gone raises no SIGPIPE).
    pub(crate) fn open_fifo(&self, slot: u32, name: &str) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(NONBLOCK | NOFOLLOW)
            .open(self.file(slot, name))
    }

    fn lock_creating(&self) -> Result<Locked, OpenError> {
        loop {
            match DirBuilder::new().mode(0o700).create(&self.path) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(self.failed("create the directory", e));
                }
                _ => {}
            }
            self.check_ours()?;
            match self.lock() {
                Ok(locked) => return Ok(locked),
                // The last process went and took the directory along: once more.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(self.failed("lock the directory", e)),
            }
        }
    }

    /// Locks the directory; `NotFound` where it was removed meanwhile.
    fn lock(&self) -> io::Result<Locked> {
        let dir = File::open(&self.path)?;
        lock_within(&dir, PATIENCE)?;
        let (held, named) = (dir.metadata()?, fs::metadata(&self.path)?);
        if (held.dev(), held.ino()) == (named.dev(), named.ino()) {
            Ok(Locked(dir))
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    fn check_ours(&self) -> Result<(), OpenError> {
        let meta = match fs::symlink_metadata(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(|e| self.failed("look at the directory", e))?,
        };
        let mine = meta.uid() == geteuid().as_raw();
        if meta.is_dir() && mine && meta.mode() & 0o077 == 0 {
            return Ok(());
        }
        let mode = meta.mode() & 0o7777;
        let uid = meta.uid();
        Err(self.refused(
            format!(
                "{} (mode {mode:o}, uid {uid}) is not a private directory of this user",
                self.path.display()
            ),
            "remove it, or set ADVERB_SHM to a directory of your own",
        ))
    }

    fn reap_locked(&self) -> io::Result<()> {
        let mut names: Vec<String> = fs::read_dir(&self.path)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        for slot in names.chunk_by(|a, b| prefix(a) == prefix(b)) {
            let port = self.path.join(format!("{}port", prefix(&slot[0])));
            let alive = OpenOptions::new()
                .read(true)
                .custom_flags(NONBLOCK | NOFOLLOW)
                .open(port)
                .is_ok_and(|f| Self::is_alive(&f));
            if !alive && prefix(&slot[0]).len() == 4 {
                self.remove_slot(prefix(&slot[0]));
            }
        }
        Ok(())
    }

    fn remove_slot(&self, prefix: &str) {
        let Ok(entries) = fs::read_dir(&self.path) else {
            return;
        };
        for entry in entries.flatten() {
            if entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.starts_with(prefix))
            {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn failed(&self, action: &str, source: io::Error) -> OpenError {
        let action = format!("{action} in {}", self.path.display());
        OpenError::System {
            device: "soft".into(),
            action,
            source,
        }
    }

    fn refused(&self, reason: String, remedy: &str) -> OpenError {
        OpenError::Unavailable {
            device: "soft".into(),
            reason,
            remedy: remedy.into(),
        }
    }
}

/// Locks `dir`, unless somebody holds it for longer than `patience`.
fn lock_within(dir: &File, patience: Duration) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match flock(dir, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < patience => std::thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {
                let reason = format!("a process holds it for {patience:?}: is one stopped?");
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            locked => return Ok(locked?),
        }
    }
}

/// Everything up to and with the dot.
fn prefix(name: &str) -> &str {
    name.find('.').map_or(name, |dot| &name[..=dot])
}

const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn dir_in(place: &Path) -> Dir {
        Dir {
            path: place.join("adverb-test"),
        }
    }

    fn claim(dir: &Dir) -> Claim<()> {
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
        dir.release(2);
    }

    fn names(dir: &Dir) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir.path())
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
    fn slots_are_given_lowest_first_and_the_last_one_takes_the_directory_along() {
        let place = tempfile::tempdir().unwrap();
        let dir = dir_in(place.path());
        let (a, b) = (claim(&dir), claim(&dir));
        assert_eq!((a.slot, b.slot), (0, 1));
        dir.create(a.slot, "m0").unwrap();
        dir.release(a.slot);
        assert_eq!(names(&dir), ["001.port"]);
        dir.release(b.slot);
        assert!(!dir.path().exists());
    }

    #[test]
    fn files_of_a_dead_owner_are_reaped_and_those_of_a_living_one_are_not() {
        let place = tempfile::tempdir().unwrap();
        let dir = dir_in(place.path());
        let alive = claim(&dir);
        let dead = claim(&dir);
        dir.create(dead.slot, "m7").unwrap();
        dir.create(0x123, "m0").unwrap(); // a slot without a port file
        drop(dead); // the kernel drops a dead process's lock in the same way
        assert_eq!(claim(&dir).slot, 1);
        assert_eq!(names(&dir), ["000.port", "001.port"]);
        drop(alive);
    }

    #[test]
    fn what_no_process_left_there_stops_nobody() {
        let place = tempfile::tempdir().unwrap();
        let dir = dir_in(place.path());
        let first = claim(&dir);
        // To open it for reading would wait for a writer.
        mknodat(CWD, dir.file(1, "port"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::create_dir(dir.file(2, "port")).unwrap();
        fs::write(dir.path().join("notes.txt"), "x").unwrap();
        assert_eq!((first.slot, claim(&dir).slot), (0, 1));
        assert_eq!(
            names(&dir),
            ["000.port", "001.port", "002.port", "notes.txt"]
        );
    }

    #[test]
    fn a_process_that_is_stopped_with_the_lock_is_not_waited_for_for_ever() {
        let place = tempfile::tempdir().unwrap();
        let dir = dir_in(place.path());
        let _held = dir.lock_creating().unwrap();
        let other = File::open(dir.path()).unwrap();
        let error = lock_within(&other, Duration::from_millis(5)).unwrap_err();
        assert!(error.to_string().contains("is one stopped?"), "{error}");
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let dir = dir_in(place.path());
        fs::create_dir(dir.path()).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let error = dir.claim(|_| Ok(Some(()))).unwrap_err().to_string();
        assert!(
            error.contains("mode 755") && error.contains("ADVERB_SHM"),
            "{error}"
        );
    }
}
