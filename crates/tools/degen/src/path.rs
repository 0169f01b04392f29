//! The path: two namespaces, each with an interface whose other end is this process.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{self, PathBuf};
use std::process::{Child, Command};

use crate::namespace::{Namespace, enter_new_user_namespace};
use crate::system_calls::{make_interface, open_tun, spawn};

/// Name of the interface in either namespace.
const INTERFACE: &str = "degen0";

/// The two ends of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ends {
    /// New namespaces. Without root they belong to a new user namespace.
    New,
    /// Existing namespaces, by name (as `ip netns` lists them) or file.
    Existing([String; 2]),
}

/// The path cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// There is no TUN device.
    #[error(
        "cannot open /dev/net/tun: {0}; load the module (`modprobe tun`), or pass the device to the container \
         (`--device /dev/net/tun`)"
    )]
    Tun(#[source] io::Error),
    /// The kernel refuses namespaces.
    #[error(
        "cannot make network namespaces: {0}; run as root, or allow user namespaces (sysctl \
         user.max_user_namespaces, user.max_net_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
    )]
    Forbidden(#[source] io::Error),
    /// A namespace does not exist.
    #[error("network namespace '{name}': {}: {source}; `ip netns` lists names", .file.display())]
    NoNamespace {
        /// As it was given.
        name: String,
        /// Where it was looked for.
        file: PathBuf,
        /// Why it cannot be opened.
        source: io::Error,
    },
    /// The process may not enter a namespace.
    #[error("cannot enter network namespace '{name}': {source}; run as root")]
    Enter {
        /// As it was given.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The interface cannot be made.
    #[error("cannot make the interface {INTERFACE} with address {address} and MTU {mtu}: {source}")]
    Interface {
        /// Its address.
        address: Ipv4Addr,
        /// Its MTU.
        mtu: u32,
        /// Why.
        source: io::Error,
    },
}

/// Two namespaces, near and far, whose only connection is this process. The calling thread is in the far one, except
/// between existing namespaces, where it returns to its own.
#[derive(Debug)]
pub struct Path {
    namespaces: [Namespace; 2],
    tuns: [OwnedFd; 2],
}

impl Path {
    /// Makes the path with these addresses of its ends. The process must have one thread.
    ///
    /// # Errors
    /// There is no TUN device, the kernel forbids it, or a namespace does not exist.
    pub fn make(ends: &Ends, addresses: [Ipv4Addr; 2], mtu: u32) -> Result<Self, PathError> {
        // Before anything else, so that its absence is what is reported.
        drop(open_tun().map_err(PathError::Tun)?);
        // A TUN device belongs to the namespace in which it was opened.
        let interface = |end: usize| {
            let tun = open_tun().map_err(PathError::Tun)?;
            let peers = [addresses[end], addresses[1 - end]];
            let made = make_interface(&tun, INTERFACE, peers, mtu);
            made.map_err(|source| PathError::Interface {
                address: addresses[end],
                mtu,
                source,
            })?;
            Ok(tun)
        };
        let [near, far] = match ends {
            Ends::New => {
                let near = enter_first().map_err(PathError::Forbidden)?;
                let near = (near, interface(0)?);
                let far = Namespace::enter_new().map_err(PathError::Forbidden)?;
                [near, (far, interface(1)?)]
            }
            Ends::Existing(names) => {
                let own = Namespace::current().map_err(PathError::Forbidden)?;
                let [near, far] = [0, 1].map(|end| {
                    let namespace = existing(&names[end])?;
                    let entered = namespace.enter();
                    entered.map_err(|source| PathError::Enter {
                        name: names[end].clone(),
                        source,
                    })?;
                    Ok((namespace, interface(end)?))
                });
                own.enter().map_err(PathError::Forbidden)?;
                [near?, far?]
            }
        };
        Ok(Path {
            namespaces: [near.0, far.0],
            tuns: [near.1, far.1],
        })
    }

    /// Makes the path in a thread that ends then, so that the calling thread stays in its namespace.
    ///
    /// # Errors
    /// As [`Path::make`]; without root always, because a process with several threads cannot enter a user namespace.
    pub fn make_elsewhere(addresses: [Ipv4Addr; 2], mtu: u32) -> Result<Self, PathError> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| Path::make(&Ends::New, addresses, mtu));
            thread.join().expect("making a path does not panic")
        })
    }

    /// Moves the calling thread into the near (0) or far (1) namespace.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn enter(&self, end: usize) -> io::Result<()> {
        self.namespaces[end].enter()
    }

    /// Calls `work` with the calling thread in the near (0) or far (1) namespace, in which the sockets and processes
    /// that it makes remain.
    ///
    /// # Errors
    /// The thread cannot change its namespace.
    pub fn within<T>(&self, end: usize, work: impl FnOnce() -> T) -> io::Result<T> {
        let own = Namespace::current()?;
        self.enter(end)?;
        let result = work();
        own.enter()?;
        Ok(result)
    }

    /// Starts a program in the near (0) or far (1) namespace. The kernel kills it when the calling thread ends, also by
    /// SIGKILL; the processes that it has started itself remain.
    ///
    /// # Errors
    /// As [`Path::within`]; the inner error is why the program was not started.
    pub fn spawn(&self, end: usize, command: &mut Command) -> io::Result<io::Result<Child>> {
        self.within(end, || spawn(command))
    }

    /// Returns a command line that starts the program that follows it in the far namespace.
    pub fn far_prefix() -> String {
        let pid = std::process::id();
        format!("nsenter --target {pid} --net")
    }

    /// Returns the router's ends of the two interfaces, which do not block.
    pub fn tuns(&self) -> [&OwnedFd; 2] {
        self.tuns.each_ref()
    }
}

/// Moves the calling thread into a new namespace; if that needs privileges, into one of a new user namespace.
fn enter_first() -> io::Result<Namespace> {
    match Namespace::enter_new() {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            enter_new_user_namespace()?;
            Namespace::enter_new()
        }
        made => made,
    }
}

fn existing(name: &str) -> Result<Namespace, PathError> {
    let file = match name.contains(path::MAIN_SEPARATOR) {
        true => PathBuf::from(name),
        false => PathBuf::from("/run/netns").join(name),
    };
    Namespace::open(&file).map_err(|source| PathError::NoNamespace {
        name: name.to_owned(),
        file,
        source,
    })
}
