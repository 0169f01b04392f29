//! Facts about a machine and a process.

mod cpus;
mod files;
mod libraries;
mod process;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use adverb_sysfs::{Netdev, PciAddress, RdmaDevice, Sysfs, SysfsError};
use adverb_units::Bytes;
use adverb_verbs::PortNum;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};

pub use cpus::CpuSet;
pub use libraries::Libraries;
pub use process::{Limit, Process};

use files::{line, names, numbered};

/// All facts that the checks use.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The process.
    pub process: Process,
    /// RDMA devices, by name.
    pub devices: Vec<DeviceFacts>,
    /// Libraries of user space.
    pub libraries: Libraries,
    /// Whether `ib_uverbs` is loaded (or built in).
    pub has_uverbs: bool,
    /// `/dev/infiniband/rdma_cm`.
    pub rdma_cm: Access,
    /// Pages.
    pub memory: Memory,
    /// CPUs and NUMA nodes.
    pub processors: Processors,
    /// Where the user-space device keeps its files.
    pub shared_memory: SharedMemory,
    /// Network interfaces except loopback, by name: Soft-RoCE can be added to each.
    pub netdevs: Vec<String>,
}

/// An RDMA device and what else is known of it.
#[derive(Clone, Debug)]
pub struct DeviceFacts {
    /// The device in `/sys/class/infiniband`.
    pub rdma: RdmaDevice,
    /// Its file `/dev/infiniband/uverbsN`; also missing if `ib_uverbs` has none for it.
    pub file: Access,
    /// Its IOMMU.
    pub iommu: Iommu,
    /// The network interfaces behind its ports.
    pub netdevs: BTreeMap<PortNum, Netdev>,
}

/// Whether a file can be opened for reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It can.
    Granted,
    /// The system refuses.
    Denied,
    /// The file does not exist.
    Missing,
}

/// The IOMMU between a device and memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Iommu {
    /// None, or the device is not a PCI device.
    Absent,
    /// It passes addresses through.
    Passthrough,
    /// It translates; with the kernel's name of the domain type (`DMA`, `DMA-FQ`), if known.
    Translating(Option<String>),
}

/// Huge pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Reserved pages, by size.
    pub huge_pages: Vec<HugePages>,
    /// `always`, `madvise` or `never`; `None` if the kernel does not support them.
    pub transparent: Option<String>,
}

/// Reserved pages of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Size of a page.
    pub size: Bytes,
    /// Pages reserved.
    pub total: u64,
    /// Of these, not in use.
    pub free: u64,
}

/// CPUs and NUMA nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    /// The frequency governor of each CPU, if the system has governors.
    pub governors: BTreeMap<u32, String>,
    /// The CPUs of each NUMA node.
    pub nodes: BTreeMap<u32, CpuSet>,
}

/// Where the user-space device keeps its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    /// The directory.
    pub dir: PathBuf,
    /// Whether this process may make files there.
    pub access: Access,
    /// Free space for this process; `None` if unknown.
    pub free: Option<Bytes>,
    /// What processes that have ended left there.
    pub leftovers: Vec<Leftover>,
    /// What has the name of a directory of this user's, but is refused by the device.
    pub refused: Vec<RefusedDir>,
}

/// What has the name of a directory of this user's, but is not a directory that only this user may read and change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedDir {
    /// Its path.
    pub dir: PathBuf,
    /// Its owner.
    pub uid: u32,
    /// Its permissions; `None` if it is not a directory.
    pub mode: Option<u32>,
}

/// A directory of the user-space device without a live process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The directory.
    pub dir: PathBuf,
    /// The memory that its files use.
    pub bytes: Bytes,
}

impl Machine {
    /// Gathers facts below `root` (`/` for this machine) for `process`. Device files are opened and closed;
    /// nothing is changed.
    ///
    /// # Errors
    /// `/sys/class/infiniband` cannot be read or parsed. Other facts that cannot be read are missing.
    pub fn gather(root: &Path, process: Process) -> Result<Self, SysfsError> {
        let sysfs = Sysfs::at(root);
        let devices = sysfs.devices()?.into_iter();
        let devices = devices.map(|rdma| DeviceFacts::gather(&sysfs, rdma));
        Ok(Machine {
            devices: devices.collect::<Result<_, _>>()?,
            libraries: Libraries::search(root, &process),
            has_uverbs: root.join("sys/class/infiniband_verbs").exists(),
            rdma_cm: Access::of_device(&root.join("dev/infiniband/rdma_cm")),
            memory: Memory::gather(root),
            processors: Processors::gather(root),
            shared_memory: SharedMemory::at(&process.shared_memory(root), process.uid),
            netdevs: netdevs(root),
            process,
        })
    }
}

impl DeviceFacts {
    fn gather(sysfs: &Sysfs, rdma: RdmaDevice) -> Result<Self, SysfsError> {
        let dev = sysfs.root().join("dev/infiniband");
        let mut netdevs = BTreeMap::new();
        for port in &rdma.ports {
            let netdev = port.netdev.as_deref().map(|name| sysfs.netdev(name));
            if let Some(netdev) = netdev.transpose()?.flatten() {
                netdevs.insert(port.number, netdev);
            }
        }
        Ok(DeviceFacts {
            file: rdma
                .uverbs
                .as_ref()
                .map_or(Access::Missing, |name| Access::of_device(&dev.join(name))),
            iommu: rdma
                .pci
                .map_or(Iommu::Absent, |pci| Iommu::of(sysfs.root(), pci)),
            netdevs,
            rdma,
        })
    }
}

impl Access {
    /// Checks access by opening the file: only that respects a container's rules.
    fn of_device(path: &Path) -> Self {
        if !path.exists() {
            return Access::Missing;
        }
        let opened = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path);
        if opened.is_ok() {
            Access::Granted
        } else {
            Access::Denied
        }
    }

    fn of_dir(path: &Path) -> Self {
        use rustix::fs::Access as Rights;
        if !path.is_dir() {
            return Access::Missing;
        }
        let needed = Rights::READ_OK | Rights::WRITE_OK | Rights::EXEC_OK;
        match rustix::fs::access(path, needed) {
            Ok(()) => Access::Granted,
            Err(_) => Access::Denied,
        }
    }
}

impl Iommu {
    fn of(root: &Path, pci: PciAddress) -> Self {
        let group = root.join(format!("sys/bus/pci/devices/{pci}/iommu_group"));
        if !group.exists() {
            return Iommu::Absent;
        }
        match line(&group.join("type")) {
            Some(kind) if kind == "identity" => Iommu::Passthrough,
            kind => Iommu::Translating(kind),
        }
    }
}

impl Memory {
    fn gather(root: &Path) -> Self {
        let mm = root.join("sys/kernel/mm");
        let sizes = numbered(&mm.join("hugepages"), "hugepages-", "kB");
        let pages = sizes.into_iter().map(|(kib, dir)| {
            let count = |name| line(&dir.join(name))?.parse().ok();
            Some(HugePages {
                size: Bytes::kib(kib.into()),
                total: count("nr_hugepages")?,
                free: count("free_hugepages")?,
            })
        });
        Memory {
            huge_pages: pages.flatten().collect(),
            transparent: line(&mm.join("transparent_hugepage/enabled")).and_then(|t| chosen(&t)),
        }
    }
}

/// `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

impl Processors {
    fn gather(root: &Path) -> Self {
        let system = root.join("sys/devices/system");
        let governors = numbered(&system.join("cpu"), "cpu", "")
            .into_iter()
            .filter_map(|(cpu, dir)| {
                let governor = line(&dir.join("cpufreq/scaling_governor"))?;
                Some((cpu, governor))
            });
        let nodes = numbered(&system.join("node"), "node", "")
            .into_iter()
            .filter_map(|(node, dir)| {
                let cpus = line(&dir.join("cpulist")).unwrap_or_default();
                Some((node, cpus.parse().ok()?))
            });
        Processors {
            governors: governors.collect(),
            nodes: nodes.collect(),
        }
    }
}

impl SharedMemory {
    fn at(dir: &Path, user: u32) -> Self {
        let stat = rustix::fs::statvfs(dir).ok();
        SharedMemory {
            dir: dir.to_owned(),
            access: Access::of_dir(dir),
            free: stat.map(|s| Bytes::new(s.f_bavail.saturating_mul(s.f_frsize))),
            leftovers: leftovers(dir),
            refused: refused(dir, user),
        }
    }
}

/// Looks for what the device refuses to use as a directory of this user.
fn refused(shared_memory: &Path, user: u32) -> Vec<RefusedDir> {
    let names = names(shared_memory).into_iter();
    let refused = |name: String| {
        let dir = shared_memory.join(name);
        let meta = fs::symlink_metadata(&dir).ok()?;
        let mode = meta.is_dir().then_some(meta.mode() & 0o777);
        let uid = meta.uid();
        (mode != Some(0o700) || uid != user).then_some(RefusedDir { dir, uid, mode })
    };
    names
        .filter(|name| user_of(name) == Some(user))
        .filter_map(refused)
        .collect()
}

/// Looks for directories without a live process among those that this process may enter.
fn leftovers(shared_memory: &Path) -> Vec<Leftover> {
    let names = names(shared_memory).into_iter();
    let dirs = names
        .filter(|name| user_of(name).is_some())
        .map(|name| shared_memory.join(name));
    let leftover = |dir: PathBuf| {
        let files: Vec<PathBuf> = fs::read_dir(&dir)
            .ok()?
            .map(|entry| Some(entry.ok()?.path()))
            .collect::<Option<_>>()?;
        let blocks = files
            .iter()
            .filter_map(|file| fs::symlink_metadata(file).ok());
        let bytes = Bytes::new(512 * blocks.map(|file| file.blocks()).sum::<u64>());
        (!files.is_empty() && !files.iter().any(|file| is_of_live_process(file)))
            .then_some(Leftover { dir, bytes })
    };
    dirs.filter_map(leftover).collect()
}

/// Returns the user whose directories have this name: `adverb-UID`, or `adverb-UID@ADDR-NS`.
fn user_of(name: &str) -> Option<u32> {
    let uid = name.strip_prefix("adverb-")?;
    uid.split('@').next()?.parse().ok()
}

/// Whether this is the port file of a live process, which holds a lock on it. A file that cannot be opened may be one.
fn is_of_live_process(file: &Path) -> bool {
    if file.extension().is_none_or(|extension| extension != "port") {
        return false;
    }
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(file, how, Mode::empty());
    opened.map_or(true, |port| {
        flock(&port, FlockOperation::NonBlockingLockShared).is_err()
    })
}

fn netdevs(root: &Path) -> Vec<String> {
    names(&root.join("sys/class/net"))
        .into_iter()
        .filter(|name| name != "lo" && name != "bonding_masters")
        .collect()
}
