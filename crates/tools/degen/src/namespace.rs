//! Network namespaces of the calling thread.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, UnshareFlags, capabilities,
    configure_capability_in_ambient_set, move_into_link_name_space, set_capabilities,
};

use crate::system_calls::{bring_up_loopback, unshare};

/// A network namespace. It exists at least as long as this.
#[derive(Debug)]
pub(crate) struct Namespace(OwnedFd);

impl Namespace {
    /// Returns the calling thread's.
    pub(crate) fn current() -> io::Result<Self> {
        Self::open(&PathBuf::from("/proc/thread-self/ns/net"))
    }

    /// Opens a file such as `/run/netns/NAME`.
    pub(crate) fn open(file: &PathBuf) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Namespace(rustix::fs::open(file, flags, Mode::empty())?))
    }

    /// Makes a namespace with a loopback interface, and moves the calling thread into it.
    pub(crate) fn enter_new() -> io::Result<Self> {
        unshare(UnshareFlags::NEWNET)?;
        bring_up_loopback()?;
        Self::current()
    }

    /// Moves the calling thread into it.
    pub(crate) fn enter(&self) -> io::Result<()> {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(self.0.as_fd(), kind).map_err(Into::into)
    }
}

/// Moves the process into a user namespace of its own, in which it and the programs that it starts may configure
/// networks. Its user and group keep their ids. The process must have one thread.
pub(crate) fn enter_new_user_namespace() -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    unshare(UnshareFlags::NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    let map = |id| format!("{id} {id} 1");
    fs::write("/proc/self/uid_map", map(uid.as_raw()))?;
    fs::write("/proc/self/gid_map", map(gid.as_raw()))?;
    // A program that is not started as root keeps only ambient capabilities.
    let mut sets = capabilities(None)?;
    sets.inheritable = sets.permitted;
    set_capabilities(None, sets)?;
    for capability in sets
        .permitted
        .iter()
        .filter(|c| CapabilitySet::all().contains(*c))
    {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(())
}
