//! Facts about RDMA devices from Linux's `/sys/class/infiniband` and the folders that it links to.
//!
//! Sources: the kernel's `Documentation/ABI/stable/sysfs-class-infiniband` and
//! `testing/sysfs-class-net`, `drivers/infiniband/core/sysfs.c` and `device.c`. Nothing is opened or
//! changed, and no device is asked but through these files: what `libibverbs` knows (limits of a
//! device) is not here.
//!
//! A [`Sysfs`] reads below a root directory, so that tests can build one. A missing
//! `/sys/class/infiniband` means that there are no devices; a file that cannot be read or that holds
//! something strange is an error that names it. Words that this version does not know survive as
//! [`Open::Other`].

mod counters;
mod device;
mod error;
mod file;
mod netdev;
mod open;
mod pci;
mod port;

use std::path::{Path, PathBuf};

pub use device::{Driver, RdmaDevice};
pub use error::SysfsError;
pub use netdev::{MacAddress, Netdev};
pub use open::{NodeType, Open, PhysState, PortState};
pub use pci::{LinkSpeed, PciAddress, PciLink};
use port::Gids;
pub use port::{GidEntry, LinkRate, Port};

/// The `/sys` below a root directory.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

impl Sysfs {
    /// Returns the `sys` below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Sysfs { root: root.into() }
    }

    /// Returns the directory that contains `sys`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns all RDMA devices, by name in natural order (`mlx5_9` before `mlx5_10`); empty if the kernel
    /// has no InfiniBand class.
    pub fn devices(&self) -> Result<Vec<RdmaDevice>, SysfsError> {
        let names = file::names(&self.infiniband())?;
        names
            .iter()
            .map(|name| RdmaDevice::read(self, name, Gids::All))
            .collect()
    }

    /// Returns the device with this name, if it exists.
    pub fn device(&self, name: &str) -> Result<Option<RdmaDevice>, SysfsError> {
        self.read(name, Gids::All)
    }

    /// The device of this name, if it is there, with the tables of GIDs only up to the first entry that names
    /// a network interface: reading an entry takes several system calls, and drivers have up to 1,024.
    pub fn device_without_gids(&self, name: &str) -> Result<Option<RdmaDevice>, SysfsError> {
        self.read(name, Gids::UntilNetdev)
    }

    /// Returns the driver of the device with this name, if both exist.
    pub fn driver(&self, name: &str) -> Result<Option<Driver>, SysfsError> {
        let dir = self.infiniband().join(name);
        let node = file::optional(&dir.join("node_type"))?;
        let read = |node: String| device::driver(&dir, name, &Open::from(node.as_str()));
        node.map_or(Ok(None), read)
    }

    fn read(&self, name: &str, gids: Gids) -> Result<Option<RdmaDevice>, SysfsError> {
        let names = file::names(&self.infiniband())?;
        names
            .iter()
            .any(|there| there == name)
            .then(|| RdmaDevice::read(self, name, gids))
            .transpose()
    }

    fn infiniband(&self) -> PathBuf {
        self.class("infiniband")
    }

    fn class(&self, class: &str) -> PathBuf {
        self.root.join("sys/class").join(class)
    }
}

impl Default for Sysfs {
    /// The `/sys` of this machine.
    fn default() -> Self {
        Sysfs::at("/")
    }
}
